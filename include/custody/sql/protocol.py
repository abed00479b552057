"""Protocol between the client and the engine: frames in pipes, and tables in memory that both sides map.

A frame is a kind, a length and that many bytes. To the engine go the text of the query and then its input: tables in
shared memory, and logs by name. From the engine come the names of the tables that the query reads, the columns of the
result, its rows, and how it ended.

Events that must not be given out do not come that far. Those of the live tail are taken out before, and those of the
logs while they are scanned, below the engine. So there is no name under which a query could reach them.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, BinaryIO, Literal

import msgspec
import pyarrow as pa

from custody.made_types import made_at_import

HEAD = struct.Struct("<cQ")
# Between two processes of the same installation, never on disk: these may change.
QUERY, NAMES, SCHEMA, ROWS, END, PROBLEM = b"A", b"N", b"S", b"R", b"E", b"X"
FRAME_BYTES = 8 << 20
"""Rows are sent in frames of about this size, so that neither side holds many of them; one row may be larger."""
# Arrow aligns its buffers to 64 bytes; so do these, and columns are used where they lie.
_ALIGNED = 64
_TAIL, _HIDDEN = " tail", " hidden"  # no table has such a name


class EngineProblem(msgspec.Struct, frozen=True):
    """The reason why there is no result."""

    kind: Literal["query", "run", "memory", "row", "gone"]
    """`query`: it cannot be read, or names what is not allowed. `run`: it failed while it ran; damage may be why.
    `gone`: the file of a log is not there any more; the text is its path."""
    text: str


class AskedOfColumn(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on a column: bounds, both included, or one of some values; times in ms, texts as text."""

    column: str
    least: int | str | None = None
    greatest: int | str | None = None
    values: tuple[int | str, ...] | None = None


class ReadQuery(msgspec.Struct, frozen=True):
    """A query as it was read: the tables that it names, and what it asks of events (`custody.sql.restrictions`)."""

    tables: list[str]
    asked: list[list[AskedOfColumn]]
    columns: list[str] | None = None
    """The columns of events that it may read; None for all."""


class EngineLimits(msgspec.Struct, frozen=True):
    """The resources that the process of one query may take."""

    engine_bytes: Annotated[int, msgspec.Meta(ge=1)]
    """How much the engine may keep in memory before it spills to disk."""
    process_bytes: int
    spill_bytes: int
    row_bytes: int
    cpu_seconds: int


made_at_import(EngineProblem, ReadQuery, EngineLimits)


class LogPart(msgspec.Struct, frozen=True, kw_only=True):
    """A live event log: its path, and what all its events have in common."""

    path: bytes
    writer: str
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    blocks: list[int] | None = None
    """None: all of them."""
    footer: tuple[int, bytes] | None = None
    """Of a log whose own footer is damaged: the offset of the footer, and the footer."""
    lacks: dict[str, object] = msgspec.field(default_factory=dict)
    """The values of columns that the log does not have, by column; other such columns are null."""


class StoredTable(msgspec.Struct, frozen=True):
    """A table that the engine opens itself, from files: what a query does not ask for is not read."""

    opener: str
    """`module:function` of custody that returns a data set when it is called with name and files."""
    files: list[tuple[bytes, bytes]]
    """Paths and SHA-256."""


@dataclass(frozen=True)
class QueryInput:
    """The input of a query: events of logs and of the live tail, and the other tables.

    `hidden` names the events of the logs that must not be given out, in columns `writer` and `event_id`.
    """

    logs: list[LogPart]
    tail: pa.Table | pa.RecordBatchReader
    """Read once: more than fits into memory may come batch by batch. Of `events`, the columns that the query reads."""
    hidden: pa.Table
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    stored: Mapping[str, StoredTable] = field(default_factory=dict)
    masks: Sequence[str] = ()
    """Patterns of names of attributes whose values the engine must not get; the tail comes without them."""
    events: pa.Schema | None = None
    """All columns of the events; None where the tail has them all."""


def send_frame(file: BinaryIO, kind: bytes, payload: bytes | memoryview) -> None:
    """Write one frame."""
    file.write(HEAD.pack(kind, len(payload)))
    file.write(payload)
    file.flush()


def receive_frame(file: BinaryIO) -> bytes:
    """Return the payload of the next frame.

    Raises:
        EOFError: the other side is gone.
    """
    head = file.read(HEAD.size)
    if len(head) < HEAD.size:
        raise EOFError
    length = HEAD.unpack(head)[1]
    payload = file.read(length)
    # Half a frame means that its sender died while it wrote.
    if len(payload) < length:
        raise EOFError
    return payload


def write_input(query_input: QueryInput, memory: int) -> bytes:
    """Put the tables into a memory file, and return the description that the engine needs to find them."""
    places = {}
    with os.fdopen(memory, "wb", closefd=False) as file:
        for name, table in {_TAIL: query_input.tail, _HIDDEN: query_input.hidden, **query_input.tables}.items():
            start = -file.tell() % _ALIGNED + file.tell()
            file.seek(start)
            with pa.ipc.new_stream(file, table.schema) as stream:
                for batch in table if isinstance(table, pa.RecordBatchReader) else table.to_batches():
                    stream.write_batch(batch)
            places[name] = (start, file.tell() - start)
        # An empty file cannot be mapped.
        file.truncate(max(file.tell(), 1))
    events = query_input.tail.schema if query_input.events is None else query_input.events
    return msgspec.msgpack.encode(
        _InputDescription(
            query_input.logs,
            places,
            dict(query_input.stored),
            list(query_input.masks),
            events.serialize().to_pybytes(),
        )
    )


def read_input(description: bytes, memory: int) -> QueryInput:
    """Return the input that was written; the columns of the tables stay where they lie."""
    written = _DESCRIPTION.decode(description)
    mapped = pa.py_buffer(mmap.mmap(memory, 0, access=mmap.ACCESS_READ))
    tables = {
        name: pa.ipc.open_stream(mapped.slice(start, length)).read_all()
        for name, (start, length) in written.places.items()
    }
    tail = _with_all(tables.pop(_TAIL), pa.ipc.read_schema(pa.py_buffer(written.events)))
    return QueryInput(written.logs, tail, tables.pop(_HIDDEN), tables, written.stored, written.masks)


def _with_all(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return a table with all columns of a schema: those that it lacks are null, and nobody reads them."""
    if table.schema.names == schema.names:
        return table
    longest = max((batch.num_rows for batch in table.to_batches()), default=0)
    # One array for all batches: as many nulls as events would take the memory that leaving the columns out spares.
    nothing = {field.name: pa.nulls(longest, field.type) for field in schema if field.name not in table.schema.names}
    batches = [
        pa.RecordBatch.from_arrays(
            [
                nothing[name].slice(0, batch.num_rows) if name in nothing else batch.column(name)
                for name in schema.names
            ],
            schema=schema,
        )
        for batch in table.to_batches()
    ]
    return pa.Table.from_batches(batches, schema)


class _InputDescription(msgspec.Struct):
    """A `QueryInput` without its tables, and where in the memory these lie."""

    logs: list[LogPart]
    places: dict[str, tuple[int, int]]
    stored: dict[str, StoredTable]
    masks: list[str]
    events: bytes


_DESCRIPTION = msgspec.msgpack.Decoder(_InputDescription)
