"""A body of Arrow columns: what it would take in memory is bounded before any of it is taken.

Few bytes of a stream can stand for many: compressed buffers name the size that they inflate to, a dictionary or a run
stands for any number of values, a column of nulls has no bytes at all. So sizes are read from the heads of the
messages first, and of the types those are taken whose values take bytes of the body.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import InvalidInputError
from custody.serving.http_requests import BodyRefusedError

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
"""Kinds of messages, as the format numbers them."""
_INT64 = struct.Struct("<q")
_MESSAGES_MAX = 10_000
"""A stream is cut into batches by its sender; each costs some work, whatever it holds."""


def bounded_table(body: bytes, events_max: int, bytes_max: int) -> pa.Table:
    """Return the table of a stream.

    Raises:
        InvalidInputError: it is no stream, or has columns of types whose values take no bytes.
        BodyRefusedError: it has more rows, or takes more bytes.
    """
    try:
        _check_sizes(body, events_max, bytes_max)
        with pa.ipc.open_stream(pa.py_buffer(body)) as stream:
            for field in stream.schema:
                if not _takes_bytes(field.type):
                    raise InvalidInputError(f"column {field.name}: expected a plain type, got {field.type}")
            table = stream.read_all()
        # Offsets that lead astray are read as they are by what comes next.
        table.validate(full=True)
        taken = sum(_decoded_bytes(chunk) for column in table.columns for chunk in column.chunks)
    except (pa.ArrowException, OSError, ValueError, struct.error, IndexError) as error:
        raise InvalidInputError(f"expected an Arrow stream of events, got {str(error)[:200]}") from None
    if taken > bytes_max:
        raise _too_large(bytes_max)
    return table


def _too_large(bytes_max: int) -> BodyRefusedError:
    return BodyRefusedError(
        413, "too-large", f"expected columns of at most {bytes_max} bytes in memory (capture.body_bytes_max)"
    )


def _check_sizes(body: bytes, events_max: int, bytes_max: int) -> None:
    """Raise where the messages of a stream say of themselves that they hold too much."""
    rows = nbytes = 0
    for count, message in enumerate(_messages(body)):
        if count >= _MESSAGES_MAX:
            raise BodyRefusedError(413, "too-large", f"expected at most {_MESSAGES_MAX} batches, got more")
        head = _Table.root(memoryview(message.metadata))
        kind, header = head.byte(1), head.table(2)
        if kind == _DICTIONARY and header is not None:
            header = header.table(1)
        if kind not in (_DICTIONARY, _BATCH) or header is None:
            continue
        if kind == _BATCH:
            rows += header.long(0)
        nbytes += _inflated_bytes(header, memoryview(message.body))
        if rows > events_max:
            raise BodyRefusedError(
                413, "events", f"expected at most {events_max} events (capture.body_events_max), got {rows} or more"
            )
        if nbytes > bytes_max:
            raise _too_large(bytes_max)


def _messages(body: bytes) -> Iterator[pa.Message]:
    reader = pa.ipc.MessageReader.open_stream(pa.py_buffer(body))
    while True:
        try:
            message = reader.read_next_message()
        except StopIteration:
            return
        yield message


def _inflated_bytes(batch: _Table, body: memoryview) -> int:
    """Return what the compressed buffers of a batch say that they inflate to; 0 where none is compressed."""
    if batch.table(3) is None:
        return 0
    total = 0
    for place, length in batch.pairs(2):
        if length:
            size = _INT64.unpack_from(body, place)[0]
            total += length if size < 0 else size  # -1: this one is as it is
    return total


class _Table:
    """A table of a FlatBuffer; raises struct.error or IndexError where it leads out of the bytes."""

    def __init__(self, data: memoryview, place: int) -> None:
        self._data = data
        self._place = place
        self._fields = place - struct.unpack_from("<i", data, place)[0]
        self._size = struct.unpack_from("<H", data, self._fields)[0]

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, struct.unpack_from("<I", data, 0)[0])

    def _at(self, number: int) -> int | None:
        """Return where a field is, None for one that has its default."""
        entry = 4 + 2 * number
        offset = struct.unpack_from("<H", self._data, self._fields + entry)[0] if entry < self._size else 0
        return self._place + offset if offset else None

    def byte(self, number: int) -> int:
        place = self._at(number)
        return 0 if place is None else self._data[place]

    def long(self, number: int) -> int:
        place = self._at(number)
        value = 0 if place is None else _INT64.unpack_from(self._data, place)[0]
        if value < 0:
            raise ValueError(f"a length of {value}")
        return int(value)

    def table(self, number: int) -> _Table | None:
        place = self._at(number)
        return None if place is None else _Table(self._data, place + struct.unpack_from("<I", self._data, place)[0])

    def pairs(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield a vector of structs of two numbers each."""
        place = self._at(number)
        if place is None:
            return
        begin = place + struct.unpack_from("<I", self._data, place)[0]
        (count,) = struct.unpack_from("<I", self._data, begin)
        for at in range(count):
            yield struct.unpack_from("<qq", self._data, begin + 4 + 16 * at)


def _takes_bytes(kind: pa.DataType, *, is_row: bool = True) -> bool:
    """Whether each value of a type takes bytes of the body, or is one of a row."""
    if pa.types.is_null(kind):
        return is_row
    if pa.types.is_dictionary(kind):
        return is_row and _is_flat(kind.value_type)
    if pa.types.is_struct(kind):
        return is_row and all(_takes_bytes(field.type) for field in kind)
    if pa.types.is_map(kind):
        return is_row and _is_flat(kind.key_type) and _is_flat(kind.item_type)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return is_row and _is_flat(kind.value_type)
    return _is_flat(kind)


def _is_flat(kind: pa.DataType) -> bool:
    return (
        *(pa.types.is_string(kind), pa.types.is_large_string(kind)),
        *(pa.types.is_integer(kind), pa.types.is_floating(kind), pa.types.is_boolean(kind)),
        *(pa.types.is_timestamp(kind), pa.types.is_date(kind), pa.types.is_binary(kind)),
    ).count(True) > 0


def _decoded_bytes(values: pa.Array) -> int:
    """Return about how many bytes an array takes when its dictionaries are decoded."""
    if pa.types.is_struct(values.type):
        return sum(_decoded_bytes(values.field(number)) for number in range(values.type.num_fields))
    if not pa.types.is_dictionary(values.type):
        return int(values.nbytes)
    codes = values.indices.drop_null().to_numpy(zero_copy_only=False)
    if pa.types.is_string(values.type.value_type) or pa.types.is_large_string(values.type.value_type):
        lengths = pc.fill_null(pc.binary_length(values.dictionary), 0).to_numpy(zero_copy_only=False)
        return int(lengths[codes].sum(dtype=np.int64)) + 4 * len(values)
    return 8 * len(values)
