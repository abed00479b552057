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
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.errors import CorruptionError, InvalidInputError
from custody.format.framing import HEAD_BYTES, PAYLOAD_BYTES_MAX, Frame, frame
from custody.model import (
    EVENT_SCHEMA,
    AttributeMask,
    Event,
    require_types,
    text_problems,
    to_batch,
    to_events,
    to_present,
)
from custody.model.columns import read_batch

# Kinds of records are part of the format: add, never change.
KIND_BATCH = 3
KIND_ROWS = 4
# A balance of what writing and reading cost (docs/design/008); readers take either kind, so it may change.
ROWS_MAX = 32  # at most so many events are written as rows
RECORD_BYTES = 32 << 20  # larger appends become several records, so that a reader's memory is bounded
JOURNAL_SCHEMA = EVENT_SCHEMA.remove(0)
"""The columns of a batch: all but the event ids, which the head of the record gives."""

# Far below the 2 GiB that the texts of one column can have, whatever decoding adds to the bytes of a record.
_PART_BYTES = 256 << 20
_IDS = struct.Struct("<QI")
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(list[Event])


_NO_MASK = AttributeMask()


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
        for number, event in enumerate(events):
            try:
                require_types(event)
            except InvalidInputError as error:
                raise InvalidInputError(f"event {number} of the batch: {error}") from error
        self._bodies: list[tuple[int, int, bytes | memoryview]]
        try:
            events = mask.events(events)
            self._bodies = list(_rows(events) if len(events) <= ROWS_MAX else _batches(events))
        except UnicodeEncodeError as error:
            raise InvalidInputError(_first_text_problem(events) or str(error)) from error

    @classmethod
    def of_columns(cls, batch: pa.RecordBatch, mask: AttributeMask = _NO_MASK) -> PreparedEvents:
        """Return events that are columns already, of JOURNAL_SCHEMA; raises as the constructor does."""
        prepared = cls(())
        batch = mask.rows(batch)
        prepared.count = batch.num_rows
        # A few are rows on disk, however they came: a batch of Arrow's has a kilobyte of its own.
        is_few = batch.num_rows <= ROWS_MAX
        prepared._bodies = list(_rows(to_events(batch)) if is_few else _batch_records(batch))
        return prepared

    def records(self, first_event_id: int) -> list[bytes]:
        """Return the events as records, numbered one-up."""
        records = []
        for kind, count, body in self._bodies:
            records.append(frame(kind, _IDS.pack(first_event_id, count), body))
            first_event_id += count
        return records


def batch_record(batch: pa.RecordBatch, first_event_id: int) -> bytes:
    """Return a batch of JOURNAL_SCHEMA as one record, numbered one-up."""
    return frame(KIND_BATCH, _IDS.pack(first_event_id, batch.num_rows), memoryview(batch.serialize()))


def _first_text_problem(events: Sequence[Event]) -> str | None:
    problems = ((number, problem) for number, event in enumerate(events) for problem in text_problems(event))
    return next((f"event {number} of the batch: {problem}. Nothing was stored." for number, problem in problems), None)


def _rows(events: Sequence[Event]) -> Iterator[tuple[int, int, bytes]]:
    """Yield (kind, events, body) of records of rows."""
    body = _ENCODER.encode(events)
    if len(body) <= RECORD_BYTES or len(events) == 1:
        _check_fits(len(body))
        yield KIND_ROWS, len(events), body
    else:
        for half in _halves(events):
            yield from _rows(half)


def _batches(events: Sequence[Event]) -> Iterator[tuple[int, int, memoryview]]:
    """Yield (kind, events, body) of records of one batch each."""
    # Without ids: these are taken later, under the writer's lock, and the head of the record gives them.
    batch = to_batch(events, 0).remove_column(0)
    yield from _batch_records(pa.RecordBatch.from_arrays(batch.columns, schema=JOURNAL_SCHEMA))


def _batch_records(batch: pa.RecordBatch) -> Iterator[tuple[int, int, memoryview]]:
    if batch.nbytes > RECORD_BYTES and batch.num_rows > 1:
        # Slices share the memory of the batch, and each is serialized with only the rows that it shows.
        middle = batch.num_rows // 2
        yield from _batch_records(batch.slice(0, middle))
        yield from _batch_records(batch.slice(middle))
        return
    body = memoryview(batch.serialize())  # not copied: large appends are bound by the memory's speed
    _check_fits(len(body))
    yield KIND_BATCH, batch.num_rows, body


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
    tables = [EVENT_SCHEMA.empty_table()]
    tables += [_with_ids(part, _decode_rows) for part in _parts(rows)]
    # Records of one file share one schema object: its identity is enough, no columns are compared.
    for _, same in groupby(batches, key=lambda record: id(record.schema)):
        tables.append(_with_ids(list(same), _decode_batches))
    table = pa.concat_tables(tables)
    firsts = [record.first_event_id for record in (*rows, *batches)]
    # Rows were put before batches, so ids may be out of order; a sort copies everything and is rarely needed.
    return table if firsts == sorted(firsts) else table.sort_by("event_id")


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
    place = f"{records[0].path} @{records[0].offset}"
    ids = _event_ids(records)
    try:
        columns = read(records)
    # Decoders fail in many ways; behind a right checksum all of them mean the same.
    except (msgspec.MsgspecError, pa.ArrowException, OSError, ValueError, TypeError) as error:
        raise CorruptionError(f"{place}: expected records of events, got {error}.") from error
    if len(ids) != columns.num_rows:
        raise CorruptionError(f"{place}: expected {len(ids)} events in {len(records)} records, got {columns.num_rows}.")
    return to_present(columns.add_column(0, EVENT_SCHEMA.field(0), pa.array(ids)))


def _decode_rows(records: Sequence[EventRecord]) -> pa.Table:
    events = list(chain.from_iterable(_DECODER.decode(record.body) for record in records))
    return pa.Table.from_batches([to_batch(events, 0)]).remove_column(0)


def _decode_batches(records: Sequence[EventRecord]) -> pa.Table:
    schema = records[0].schema
    batches = [read_batch(record.body, schema) for record in records]
    return pa.Table.from_batches(batches, schema=schema)


def _event_ids(records: Sequence[EventRecord]) -> npt.NDArray[np.int64]:
    """Return the ids of all events of records, shape (events,)."""
    firsts = np.fromiter((record.first_event_id for record in records), np.int64, len(records))
    counts = np.fromiter((record.count for record in records), np.int64, len(records))
    # Each record's first id minus the rows before it, repeated, plus the row's number: no loop over events.
    starts = np.cumsum(counts) - counts
    ids: npt.NDArray[np.int64] = np.repeat(firsts - starts, counts) + np.arange(counts.sum())
    return ids
