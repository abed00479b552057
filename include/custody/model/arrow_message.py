"""Messages of Arrow made of buffers: what `RecordBatch.serialize` returns, without a batch.

Arrow makes a Python object of each column and lets the interpreter go for each call, which a batch of many columns
feels. What a message says of its buffers has one layout for all batches of a schema: so Arrow makes one message, and
its numbers are filled in anew each time. https://arrow.apache.org/docs/format/Columnar.html#encapsulated-message-format
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Buffer: TypeAlias = bytes | memoryview
_ALIGNED = 8
"""Within a message buffers begin at multiples of this."""
_PREFIX = struct.Struct("<Ii")  # a mark, and how many bytes of metadata follow
# The places of fields in Arrow's tables (Message.fbs).
_HEADER, _BODY_LENGTH = 2, 3
_ROWS, _NODES, _BUFFERS = 0, 1, 2


class ColumnBuffers(NamedTuple):
    """A column as a message holds it."""

    nodes: Sequence[tuple[int, int]]
    """Of the column and of all that it consists of: the number of values, and of nulls among them."""
    buffers: Sequence[Buffer]


class MessageTemplate:
    """Makes messages of record batches of one schema."""

    def __init__(self, schema: pa.Schema) -> None:
        # One row of nulls, so that no number is 0: such a one would be left out.
        arrays = [pa.nulls(1, field.type) for field in schema]
        self._head = bytes(_head(pa.RecordBatch.from_arrays(arrays, names=schema.names).serialize()))
        places = _Places.of(self._head)
        self._rows, self._body_length = places.rows, places.body_length
        self._nodes, self._buffers = places.nodes, places.buffers

    def message(self, rows: int, columns: Iterable[ColumnBuffers]) -> memoryview:
        """Return the message of a batch of at least one row."""
        nodes: list[tuple[int, int]] = []
        buffers: list[memoryview] = []
        for column in columns:
            nodes += column.nodes
            buffers += [memoryview(buffer).cast("B") for buffer in column.buffers]
        lengths = np.array(list(map(len, buffers)), np.int64)
        padded = (lengths + (_ALIGNED - 1)) & -_ALIGNED
        ends = np.cumsum(padded)
        begins = ends - padded
        head = bytearray(self._head)
        self._nodes.of(head)[:] = nodes
        told = self._buffers.of(head)
        told[:, 0], told[:, 1] = begins, lengths
        body_length = int(ends[-1])
        struct.pack_into("<q", head, self._rows, rows)
        struct.pack_into("<q", head, self._body_length, body_length)
        # Of Arrow's memory: Python would give so much back to the system, and get it anew, each time.
        message = memoryview(pa.allocate_buffer(len(head) + body_length)).cast("B")
        message[: len(head)] = head
        for buffer, begin in zip(buffers, (begins + len(head)).tolist(), strict=True):
            if length := len(buffer):
                message[begin : begin + length] = buffer
            if padding := -length % _ALIGNED:
                message[begin + length : begin + length + padding] = bytes(padding)
        return message


def column_buffers(array: pa.Array) -> ColumnBuffers:
    """Return an array as a message holds it."""
    message = memoryview(pa.RecordBatch.from_arrays([array], names=[""]).serialize())
    head = _head(message)
    places = _Places.of(head)
    body = message[len(head) :]
    told = places.buffers.of(head).tolist()
    nodes = [(rows, nulls) for rows, nulls in places.nodes.of(head).tolist()]
    return ColumnBuffers(nodes, [body[offset : offset + length] for offset, length in told])


def null_buffers(kind: pa.DataType, rows: int) -> ColumnBuffers:
    """Return a column of nothing but nulls."""
    return column_buffers(pa.nulls(rows, kind))


def _head(message: memoryview) -> memoryview:
    """Return the beginning of a message, up to its buffers."""
    message = memoryview(message)
    _, length = _PREFIX.unpack_from(message)
    return message[: _PREFIX.size + length]


class _Pairs(NamedTuple):
    """Where pairs of numbers lie in the beginning of a message."""

    at: int
    pairs: int

    def of(self, head: bytearray | bytes | memoryview) -> npt.NDArray[np.int64]:
        return np.frombuffer(head, np.int64, 2 * self.pairs, self.at).reshape(self.pairs, 2)


class _Places(NamedTuple):
    """Where the numbers lie in the beginning of a message."""

    rows: int
    body_length: int
    nodes: _Pairs
    buffers: _Pairs

    @classmethod
    def of(cls, head: bytes | memoryview) -> _Places:
        def number(code: str, at: int) -> int:
            return int(struct.unpack_from("<" + code, head, at)[0])

        def field(table: int, place: int) -> int:
            """Return where a field of a table lies: the table of its fields lies at a distance from it."""
            fields = table - number("i", table)
            return table + number("H", fields + 4 + 2 * place)

        def pairs(at: int) -> _Pairs:
            vector = at + number("I", at)
            return _Pairs(vector + 4, number("I", vector))

        message = _PREFIX.size + number("I", _PREFIX.size)
        header = field(message, _HEADER)
        batch = header + number("I", header)
        nodes, buffers = pairs(field(batch, _NODES)), pairs(field(batch, _BUFFERS))
        return cls(field(batch, _ROWS), field(message, _BODY_LENGTH), nodes, buffers)
