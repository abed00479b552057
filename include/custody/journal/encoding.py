"""The encoding of events in a journal's records: many as one Arrow record batch, few as rows of MessagePack.

A record batch costs some hundred microseconds and some kilobytes however few events it holds, a row a few microseconds;
docs/design/008 has the measurements. Both kinds begin with the first event id and the number of events, so that
records can be put in order before any event is decoded.

Events are encoded before they get their ids: a value that no column can hold is refused while that costs nothing, and
every acknowledged event can be read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.errors import CorruptionError, InvalidInputError
from custody.format.framing import HEAD_BYTES, PAYLOAD_BYTES_MAX, Frame, frame, framed
from custody.model import (
    EVENT_SCHEMA,
    NO_EVENTS,
    AttributeMask,
    Event,
    int64_column,
    require_types,
    text_problems,
    to_batch,
    to_present,
)
from custody.model.columns import copied_columns, read_batch, view_batch

# Kinds of records are part of the format: add, never change.
KIND_BATCH = 3
KIND_ROWS = 4
# A balance of what writing and reading cost (docs/design/008); readers take either kind, so it may change.
ROWS_MAX = 32  # at most so many events are written as rows
COLUMN_ROWS_MAX = 10  # of events that come as columns; to make objects of them takes longer
RECORD_BYTES = 32 << 20  # larger appends become several records, so that a reader's memory is bounded
JOURNAL_SCHEMA = EVENT_SCHEMA.remove(0)
"""The columns of a batch: all but the event ids, which the head of the record gives."""

# Far below the 2 GiB that the texts of one column can have, whatever decoding adds to the bytes of a record.
_PART_BYTES = 256 << 20
_BUFFERS_OF_A_COLUMN = 16
"""The most buffers that a column has, those of a claim; `nbytes` counts each, where all of them are one memory."""
_IDS = struct.Struct("<QI")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Event])


_NO_MASK = AttributeMask()
Record = tuple[bytes | memoryview, ...]
"""A framed record in the pieces that it is written in, one behind the other."""


class PreparedEvents:
    """Events ready to be numbered and appended.

    Args:
        events: the events.
        mask: the attributes whose values are not stored. Every event comes through here on its way to a journal.

    Raises:
        InvalidInputError: a value fits no column, or an event no record; the message says which.
    """

    def __init__(self, events: Sequence[Event], mask: AttributeMask = _NO_MASK) -> None:
        self.count = len(events)
        self._bodies: Sequence[tuple[int, int, bytes | memoryview]]
        try:
            message = _exact_message(events) if len(events) > ROWS_MAX else None
            if message is not None:
                self._bodies = _message_records(message, len(events), mask)
                return
            _require_types(events)
            events = mask.events(events)
            self._bodies = _rows(events) if len(events) <= ROWS_MAX else _batches(events)
        except UnicodeEncodeError as error:
            raise InvalidInputError(_first_text_problem(events) or str(error)) from error

    @classmethod
    def of_columns(cls, batch: pa.RecordBatch, mask: AttributeMask = _NO_MASK) -> PreparedEvents:
        """Return events that are columns already, of JOURNAL_SCHEMA; raises as the constructor does."""
        prepared = cls(())
        batch = mask.rows(batch)
        prepared.count = batch.num_rows
        prepared._bodies = _batch_records(batch)
        return prepared

    @classmethod
    def of_few(cls, events: Sequence[Event], mask: AttributeMask = _NO_MASK) -> PreparedEvents:
        """Return events that were columns and became objects, which are rows on disk."""
        prepared = cls(())
        prepared.count = len(events)
        prepared._bodies = _rows(mask.events(events))
        return prepared

    @property
    def size(self) -> int:
        """Length of the encoded events in bytes."""
        return sum([len(body) for _, _, body in self._bodies])

    def records(self, first_event_id: int) -> list[Record]:
        """Return the events as records, numbered one-up."""
        records: list[Record] = []
        for kind, count, body in self._bodies:
            ids = _IDS.pack(first_event_id, count)
            # A batch is not copied again; a few rows are copied more quickly than the system takes their pieces.
            records.append(framed(kind, ids, body) if kind == KIND_BATCH else (frame(kind, ids, body),))
            first_event_id += count
        return records


def batch_record(batch: pa.RecordBatch, first_event_id: int) -> bytes:
    """Return a batch of JOURNAL_SCHEMA as one record, numbered one-up."""
    return frame(KIND_BATCH, _IDS.pack(first_event_id, batch.num_rows), memoryview(batch.serialize()))


def _require_types(events: Sequence[Event]) -> None:
    for number, event in enumerate(events):
        try:
            require_types(event)
        except InvalidInputError as error:
            raise InvalidInputError(f"event {number} of the batch: {error}") from error


def _first_text_problem(events: Sequence[Event]) -> str | None:
    problems = ((number, problem) for number, event in enumerate(events) for problem in text_problems(event))
    return next((f"event {number} of the batch: {problem}. Nothing was stored." for number, problem in problems), None)


def _rows(events: Sequence[Event]) -> list[tuple[int, int, bytes]]:
    """Return (kind, events, body) of records of rows."""
    body = _ENCODER.encode(events)
    if len(body) <= RECORD_BYTES or len(events) == 1:
        _check_fits(len(body))
        return [(KIND_ROWS, len(events), body)]
    return [record for half in _halves(events) for record in _rows(half)]


def _batches(events: Sequence[Event]) -> list[tuple[int, int, memoryview]]:
    """Return (kind, events, body) of records of one batch each."""
    # Without ids: these are taken later, under the writer's lock, and the head of the record gives them.
    batch = to_batch(events, 0).remove_column(0)
    return _batch_records(pa.RecordBatch.from_arrays(batch.columns, schema=JOURNAL_SCHEMA))


def _exact_message(events: Sequence[Event]) -> memoryview | None:
    # Here: a command that appends no batch of objects need not load it.
    from custody.model.event_message import exact_message

    return exact_message(events)


def _message_records(message: memoryview, count: int, mask: AttributeMask) -> list[tuple[int, int, memoryview]]:
    """Return (kind, events, body) of the records of a batch that is serialized already."""
    if mask or len(message) > RECORD_BYTES:
        return _batch_records(mask.rows(read_batch(message, JOURNAL_SCHEMA)))
    _check_fits(len(message))
    return [(KIND_BATCH, count, message)]


def _batch_records(batch: pa.RecordBatch) -> list[tuple[int, int, memoryview]]:
    if batch.num_rows > 1 and _bytes_at_most(batch) > RECORD_BYTES and batch.nbytes > RECORD_BYTES:
        # Slices share the memory of the batch, and each is serialized with only the rows that it shows.
        middle = batch.num_rows // 2
        return _batch_records(batch.slice(0, middle)) + _batch_records(batch.slice(middle))
    body = memoryview(batch.serialize())  # not copied: large appends are bound by the memory's speed
    _check_fits(len(body))
    return [(KIND_BATCH, batch.num_rows, body)]


def _bytes_at_most(batch: pa.RecordBatch) -> int:
    """Return a bound of `nbytes`, which takes a microsecond for each buffer to tell apart the parts that are used."""
    held: int = sum(column.get_total_buffer_size() for column in batch.columns)
    return held * _BUFFERS_OF_A_COLUMN


def _halves(events: Sequence[Event]) -> tuple[Sequence[Event], Sequence[Event]]:
    middle = len(events) // 2
    return events[:middle], events[middle:]


def _check_fits(body_bytes: int) -> None:
    most = PAYLOAD_BYTES_MAX // 2  # a record may become the part of another one
    if body_bytes > most:
        raise InvalidInputError(f"an event has at most {most} bytes in a journal, got {body_bytes}")


@dataclass(frozen=True, slots=True)
class EventRecord:
    """One record of events, not decoded yet: its events have the ids from `first_event_id` on."""

    path: Path
    offset: int
    kind: int
    schema: pa.Schema
    """The columns of its file's batches."""
    first_event_id: int
    count: int
    body: memoryview

    @classmethod
    def of(cls, item: Frame, path: Path, offset: int, schema: pa.Schema) -> EventRecord:
        """Return what a frame of KIND_BATCH or KIND_ROWS, `offset` bytes into a file, says before its events."""
        first, count = _IDS.unpack_from(item.payload)
        return cls(path, offset, item.kind, schema, first, count, item.payload[_IDS.size :])

    @property
    def last_event_id(self) -> int:
        """The greatest id in it."""
        return self.first_event_id + self.count - 1

    @property
    def bytes(self) -> int:
        """Its length in the file."""
        return HEAD_BYTES + _IDS.size + len(self.body)


def decode(records: Sequence[EventRecord]) -> pa.Table:
    """Return the events of records, in the order of ids, with EVENT_SCHEMA.

    Raises:
        CorruptionError: a record is whole but does not hold what its head says.
    """
    rows = [record for record in records if record.kind == KIND_ROWS]
    batches = [record for record in records if record.kind == KIND_BATCH]
    tables = [NO_EVENTS]
    tables += [_with_ids(part, _decode_rows) for part in _parts(rows)]
    numbers = _numbered_schemas(batches)
    for _, same in groupby(batches, key=lambda record: numbers[id(record.schema)]):
        tables.append(_with_ids(list(same), _decode_batches))
    table = pa.concat_tables(tables)
    firsts = [record.first_event_id for record in (*rows, *batches)]
    # Rows were put before batches, so ids may be out of order; a sort copies everything and is rarely needed.
    return table if firsts == sorted(firsts) else table.sort_by("event_id")


def _numbered_schemas(records: Sequence[EventRecord]) -> dict[int, int]:
    """Return the number of each schema object by its identity; equal schemas have one number.

    Records of one file share one schema object, and nearly always all files have equal ones: the records of several
    files, which alternate, are decoded together.
    """
    numbers: dict[int, int] = {}
    schemas: list[pa.Schema] = []
    for record in records:
        if id(record.schema) not in numbers:
            same = (number for number, schema in enumerate(schemas) if schema.equals(record.schema))
            numbers[id(record.schema)] = next(same, len(schemas))
            schemas.append(record.schema)
    return numbers


def check(records: Sequence[EventRecord]) -> None:
    """Check that records hold what their heads say; nothing of them is kept, and of batches only the heads are read.

    Raises:
        CorruptionError: one does not.
    """
    for record in records:
        place = f"{record.path} @{record.offset}"
        with _named(place):
            is_batch = record.kind == KIND_BATCH
            message = pa.py_buffer(record.body)
            held = (
                pa.ipc.read_record_batch(message, record.schema).num_rows
                if is_batch
                else len(_DECODER.decode(record.body))
            )
        if held != record.count:
            raise CorruptionError(f"{place}: expected {record.count} events in a record, got {held}.")


def view_batches(records: Sequence[EventRecord]) -> list[pa.RecordBatch]:
    """Return the batches of records of one schema where they lie, for `decode_column`.

    Raises:
        CorruptionError: a record is whole but does not hold what its head says.
    """
    schema = records[0].schema
    batches = []
    for record in records:
        place = f"{record.path} @{record.offset}"
        with _named(place):
            batch = view_batch(record.body, schema)
        if batch.num_rows != record.count:
            raise CorruptionError(f"{place}: expected {record.count} events in 1 records, got {batch.num_rows}.")
        batches.append(batch)
    return batches


def decode_column(records: Sequence[EventRecord], batches: Sequence[pa.RecordBatch], name: str) -> pa.ChunkedArray:
    """Return a column of the events of records, in their order, as EVENT_SCHEMA has it; `batches` are their views.

    Raises:
        CorruptionError: a record is whole but does not hold what its head says.
    """
    if name == "event_id":
        return pa.chunked_array([event_ids(records)])
    schema = records[0].schema
    # Of a column that an older schema version lacks there is nothing but its number of values, which any one has.
    read = name if name in schema.names else schema.names[0]
    with _named(f"{records[0].path} @{records[0].offset}"):
        table = pa.Table.from_arrays([copied_columns(batches, read)], schema=pa.schema([schema.field(read)]))
        return to_present(table, [name]).column(name)


def same_schemas(records: Sequence[EventRecord]) -> list[tuple[bool, list[EventRecord]]]:
    """Return records in their order, in lists of neighbours that are decoded together; whether they are batches."""
    numbers = _numbered_schemas(records)
    groups = groupby(records, key=lambda each: numbers[id(each.schema)] if each.kind == KIND_BATCH else None)
    return [(number is not None, list(same)) for number, same in groups]


def _parts(records: Sequence[EventRecord]) -> Iterator[list[EventRecord]]:
    """Yield records in lists: the texts of one column of a batch have to stay below 2 GiB."""
    part: list[EventRecord] = []
    size = 0
    for record in records:
        if part and size + record.bytes > _PART_BYTES:
            yield part
            part, size = [], 0
        part.append(record)
        size += record.bytes
    if part:
        yield part


def _with_ids(records: Sequence[EventRecord], read: Callable[[Sequence[EventRecord]], pa.Table]) -> pa.Table:
    """Return the events of records of one kind; both ways of reading leave the ids to this."""
    try:
        columns = _checked(records, read)
    except CorruptionError:
        # Records that are read together may be of several files: one by one they tell which it is.
        for record in records if len(records) > 1 else ():
            _checked([record], read)
        raise
    return to_present(columns.add_column(0, EVENT_SCHEMA.field(0), int64_column(event_ids(records))))


def _checked(records: Sequence[EventRecord], read: Callable[[Sequence[EventRecord]], pa.Table]) -> pa.Table:
    """Return what a way of reading makes of records: as many rows as their heads say."""
    place = f"{records[0].path} @{records[0].offset}"
    count = sum(record.count for record in records)
    with _named(place):
        columns = read(records)
    if count != columns.num_rows:
        raise CorruptionError(f"{place}: expected {count} events in {len(records)} records, got {columns.num_rows}.")
    return columns


@contextmanager
def _named(place: str) -> Iterator[None]:
    """Say where records lie that cannot be decoded."""
    try:
        yield
    # Decoders fail in many ways; behind a right checksum all of them mean the same.
    except (msgspec.MsgspecError, pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise CorruptionError(f"{place}: expected records of events, got {error}.") from error


def _decode_rows(records: Sequence[EventRecord]) -> pa.Table:
    events = list(chain.from_iterable(_DECODER.decode(record.body) for record in records))
    return pa.Table.from_batches([to_batch(events, 0)]).remove_column(0)


def _decode_batches(records: Sequence[EventRecord]) -> pa.Table:
    schema = records[0].schema
    batches = [read_batch(record.body, schema) for record in records]
    # Not only in sum: each must give its own events its own ids. Of one record, the caller says what is wrong.
    if len(records) > 1 and any(map(_differs, batches, records)):
        raise ValueError("other numbers of events")
    return pa.Table.from_batches(batches, schema=schema)


def _differs(batch: pa.RecordBatch, record: EventRecord) -> bool:
    differs: bool = batch.num_rows != record.count
    return differs


def event_ids(records: Sequence[EventRecord]) -> npt.NDArray[np.int64]:
    """Return the ids of all events of records, shape (events,)."""
    firsts = np.fromiter((record.first_event_id for record in records), np.int64, len(records))
    counts = np.fromiter((record.count for record in records), np.int64, len(records))
    # Each record's first id minus the rows before it, repeated, plus the row's number: no loop over events.
    starts = np.cumsum(counts) - counts
    ids: npt.NDArray[np.int64] = np.repeat(firsts - starts, counts) + np.arange(counts.sum())
    return ids
