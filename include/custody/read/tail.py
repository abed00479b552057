"""The tail: acknowledged events that are in no live log yet, at one moment, in as much memory as the cache may take.

As long as what waits fits into the cache it is decoded once and kept. More of it is read in parts: the records of
sealed journals are checked, and stay where they lie in the mapped files. A part is decoded when it is looked at, only
the columns that are asked for, and is gone before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.journal.encoding import EventRecord, decode, decode_column, event_ids, same_schemas, view_batches
from custody.journal.journal_file import JournalFile
from custody.model import EVENT_SCHEMA, NO_EVENTS, int64_column

PART_BYTES = 16 << 20
"""Of a part in the journals: more of it takes more memory, less of it more calls."""
EventIds = npt.NDArray[np.int64]


class TailPart:
    """Some records of sealed journals: events in the order of ids, columns that are decoded when they are asked for.

    Args:
        records: whole records, in the order of their ids.
        journals: the files in which they lie.
    """

    def __init__(self, records: Sequence[EventRecord], journals: Sequence[JournalFile]) -> None:
        self._records = records
        self._journals = journals
        self._rows: dict[int, pa.Table] = {}
        self._batches: dict[int, list[pa.RecordBatch]] = {}
        self.num_rows = sum(record.count for record in records)

    @cached_property
    def _runs(self) -> list[tuple[bool, list[EventRecord]]]:
        return same_schemas(self._records)

    @property
    def first_event_id(self) -> int:
        """The least id in it."""
        return self._records[0].first_event_id

    @property
    def last_event_id(self) -> int:
        """The greatest id in it."""
        # An id that was given out twice lies in two records, of which the longer one may come first.
        return max(record.last_event_id for record in self._records)

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column of EVENT_SCHEMA.

        Raises:
            CorruptionError: a record is whole but does not hold what its head says.
        """
        if name == "event_id":
            return pa.chunked_array([event_ids(self._records)])
        chunks: list[pa.Array] = []
        for number, (are_batches, records) in enumerate(self._runs):
            if are_batches:
                # Their heads are read once for all columns.
                if number not in self._batches:
                    self._batches[number] = view_batches(records)
                chunks += decode_column(records, self._batches[number], name).chunks
                continue
            # Rows have no columns: they are decoded as a whole, once for all columns.
            if number not in self._rows:
                self._rows[number] = decode(records)
            chunks += self._rows[number].column(name).chunks
        return pa.chunked_array(chunks, EVENT_SCHEMA.field(name).type)

    def table(self, asked: EventIds | None = None) -> pa.Table:
        """Return all events, or those of the records in which some sorted ids lie; raises as `column`."""
        if asked is None:
            return decode(self._records)
        lows = np.searchsorted(asked, [record.first_event_id for record in self._records])
        highs = np.searchsorted(asked, [record.last_event_id for record in self._records], side="right")
        return decode([self._records[number] for number in np.flatnonzero(highs > lows).tolist()])

    def release_memory(self) -> None:
        """Release what looking at it took; it may be looked at again."""
        self._rows.clear()
        self._batches.clear()
        for journal in self._journals:
            journal.release_memory()


def parts_of(journals: Sequence[JournalFile]) -> Iterator[TailPart]:
    """Yield the events of a group's sealed journals as parts, in the order of ids."""
    records = sorted((record for each in journals for record in each.records), key=lambda each: each.first_event_id)
    part: list[EventRecord] = []
    size = 0
    for record in records:
        if part and size + record.bytes > PART_BYTES:
            yield TailPart(part, journals)
            part, size = [], 0
        part.append(record)
        size += record.bytes
    if part:
        yield TailPart(part, journals)


@dataclass(frozen=True, slots=True)
class Tail:
    """The events that wait: those that are decoded, and parts of more of them."""

    decoded: pa.Table = field(default_factory=lambda: NO_EVENTS)
    parts: tuple[TailPart, ...] = ()
    chosen: tuple[Callable[[pa.Table], pa.Table], ...] = ()
    """What takes events out of the parts, or values out of events; of what is decoded they are taken out already."""

    @property
    def is_empty(self) -> bool:
        """Whether there is no event, seen or not."""
        return not self.decoded.num_rows and not self.parts

    @property
    def last_event_id(self) -> int | None:
        """The greatest id; None without any event."""
        if self.is_empty:
            return None
        if self.chosen:
            lasts = [pc.max(table.column("event_id")).as_py() for table in self.tables()]
        else:
            lasts = [pc.max(self.decoded.column("event_id")).as_py(), *(part.last_event_id for part in self.parts)]
        return max((last for last in lasts if last is not None), default=None)

    def choosing(self, choose: Callable[[pa.Table], pa.Table]) -> Tail:
        """Return the events that a function leaves of any table of events."""
        return replace(self, decoded=choose(self.decoded), chosen=(*self.chosen, choose) if self.parts else ())

    def tables(self) -> Iterator[pa.Table]:
        """Yield all events; what a table of the parts took is released behind it, as far as nobody keeps it."""
        yield self.decoded
        for part in self.parts:
            yield self._chosen(part.table())
            part.release_memory()

    def looks(self) -> Iterator[pa.Table | TailPart]:
        """Yield all events as `tables` does, but a part itself where nothing is taken out of it."""
        if self.chosen:
            yield from self.tables()
            return
        yield self.decoded
        for part in self.parts:
            yield part
            part.release_memory()

    def table(self) -> pa.Table:
        """Return all events in one table, however many there are."""
        return pa.concat_tables(self.tables())

    def of_ids(self, asked: EventIds) -> pa.Table:
        """Return the events with some ids; of the parts, only the records that hold them are decoded."""
        asked = np.sort(asked)
        tables = [_with_ids(self.decoded, asked)]
        for part in self.parts:
            here = asked[(asked >= part.first_event_id) & (asked <= part.last_event_id)]
            if len(here):
                tables.append(self._chosen(_with_ids(part.table(here), here)))
                part.release_memory()
        return pa.concat_tables(tables)

    def release_memory(self) -> None:
        """Release what looking at the parts took."""
        for part in self.parts:
            part.release_memory()

    def _chosen(self, table: pa.Table) -> pa.Table:
        for choose in self.chosen:
            table = choose(table)
        return table


def _with_ids(table: pa.Table, asked: EventIds) -> pa.Table:
    return table.filter(pc.is_in(table.column("event_id"), int64_column(np.ascontiguousarray(asked, np.int64))))
