"""Merging sealed groups: their events in the order of ids, in bounded memory.

The ids of a record are consecutive, and no two records share one. So the heads of the records alone put all events in
order: the files are mapped, their records sorted by first id, and decoded a chunk at a time.

Many journals are merged by ranges of ids, which several processes can do at once. A range is a run of these records; it
says which bytes of which journals hold them, so that whoever merges it reads no more than these.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa

from custody.errors import CorruptionError
from custody.journal.encoding import EventRecord, decode
from custody.journal.groups import Group
from custody.journal.journal_file import JournalDamage, JournalFile, read_records
from custody.made_types import made_at_import
from custody.model import require_keeping
from custody.vfs import FileSystem, release_pages

# A range's events are about as large in memory as in the journals. So much less than the bytes of a log keeps the
# last events of a range out of a log of their own.
_FILLED = 7 / 8


class JournalSlice(msgspec.Struct, frozen=True, kw_only=True):
    """The bytes of a sealed journal that hold the records of a range: whole ones, from `start` to `stop`."""

    journal: str
    """Its name, which no other journal of the merged groups has."""
    head: int
    """Where the columns of its batches are described: up to here; 0 where the description is damaged."""
    start: int
    stop: int


class MergeRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range of event ids of sealed groups, and where its records are."""

    first_event_id: int
    last_event_id: int
    events: int
    bytes: int
    """Of its records in the journals."""
    sha256: str
    """Of the ids and places of its records: with other records, as after damage, it is another range."""
    slices: tuple[JournalSlice, ...]


made_at_import(MergeRange)


class MergeReader:
    """The events of sealed groups of one writer, by id.

    Construction reads the files once and checks every record, but decodes none.

    Args:
        fs: where the journals lie.
        groups: sealed groups.

    Raises:
        FormatVersionError: a journal is of a version that this code does not know, or has columns that it would lose.
        StorageError: a journal cannot be read.
    """

    def __init__(self, fs: FileSystem, groups: Sequence[Group]) -> None:
        self._journals: list[JournalFile] = []
        for path in (path for group in groups for path in group.sealed):
            journal = JournalFile.read(fs, path)
            if journal.header is not None:
                # Before anything is merged: a log of the present schema would drop columns of a newer custody.
                require_keeping(journal.header.schema_version, path)
            self._journals.append(journal)
            # The check touched every page of the file; without this, memory would grow with the number of journals.
            self._journals[-1].release_memory()
        records = [record for journal in self._journals for record in journal.records]
        self._records = sorted(records, key=lambda record: record.first_event_id)
        self.rows = sum(record.count for record in records)
        self.damage: tuple[JournalDamage, ...] = tuple(
            damage for journal in self._journals for damage in journal.damage
        )
        """What cannot be read of them."""

    @property
    def first_event_id(self) -> int | None:
        """The least id; None when there is no event at all."""
        return self._records[0].first_event_id if self._records else None

    @property
    def last_event_id(self) -> int | None:
        """The greatest id; None when there is no event at all."""
        return self._records[-1].last_event_id if self._records else None

    def ranges(self, bytes_max: int) -> list[Sequence[EventRecord]]:
        """Return all records by ranges of ids: one range of up to `bytes_max` bytes, else several equal ones, smaller.

        The cut depends on the records alone. Only where one record is larger is a range larger than `bytes_max`.
        """
        ends = np.cumsum(np.fromiter((record.bytes for record in self._records), np.int64, len(self._records)))
        total = int(ends[-1]) if len(ends) else 0
        if total <= bytes_max:
            return [self._records]
        count = -int(-total // (bytes_max * _FILLED))
        # A record belongs to the range in which it ends.
        cuts = np.searchsorted(ends, [total * number / count for number in range(1, count)], side="right")
        bounds = [0, *(self._between_ids(int(cut)) for cut in cuts), len(self._records)]
        return [self._records[start:stop] for start, stop in pairwise(bounds) if start < stop]

    def _between_ids(self, cut: int) -> int:
        """Return the next place at which no id stands on both sides, should an event be there twice."""
        while 0 < cut < len(self._records) and (
            self._records[cut].first_event_id <= self._records[cut - 1].last_event_id
        ):
            cut += 1
        return cut

    def describe(self, records: Sequence[EventRecord]) -> MergeRange:
        """Return where the records of a range are; the journals' names have to differ."""
        slices: list[JournalSlice] = []
        digest = hashlib.sha256()
        # All records of a journal have the same path object.
        by_journal: dict[int, list[EventRecord]] = {}
        for record in records:
            by_journal.setdefault(id(record.path), []).append(record)
        for journal in self._journals:
            own = by_journal.get(id(journal.path))
            if own is None:
                continue
            places = [(record.offset, record.first_event_id, record.count) for record in own]
            digest.update(f"{journal.path.name}:{len(own)}:".encode() + np.asarray(places, "<i8").tobytes())
            start, stop = min(item.offset for item in own), max(item.offset + item.bytes for item in own)
            # Records that were written together are read together.
            start, stop = _around(journal.joined, start)[0], _around(journal.joined, stop - 1)[1]
            slices.append(JournalSlice(journal=journal.path.name, head=journal.head_bytes, start=start, stop=stop))
        return MergeRange(
            first_event_id=records[0].first_event_id,
            last_event_id=max(record.last_event_id for record in records),
            events=sum(record.count for record in records),
            bytes=sum(record.bytes for record in records),
            sha256=digest.hexdigest(),
            slices=tuple(slices),
        )

    def chunks(self, bytes_max: int, records: Sequence[EventRecord] | None = None) -> Iterator[pa.Table]:
        """Yield all events, or those of a range, in the order of ids, as tables of EVENT_SCHEMA, none of them empty.

        A table is made of records of at most `bytes_max` bytes together, or of a single one.

        Raises:
            CorruptionError: a record is whole but does not hold what its head says.
        """
        for chunk in _chunks(self._records if records is None else records, bytes_max):
            table = decode(chunk)
            for journal in self._journals:
                journal.release_memory()
            yield table


class SlicedJournal(msgspec.Struct, frozen=True):
    """What of a journal is needed for a range: its head, and the bytes of a slice of it."""

    path: Path
    """The journal, for messages."""
    head: memoryview
    start: int
    data: memoryview


class RangeReader:
    """The events of one range of ids, from no more of the journals than its slices.

    Args:
        range: what `MergeReader.describe` returned.
        journals: the bytes of its slices, in their order.

    Raises:
        CorruptionError: the journals do not hold the records of the range.
    """

    def __init__(self, range: MergeRange, journals: Sequence[SlicedJournal]) -> None:
        self._journals = journals
        records: list[EventRecord] = []
        for journal in journals:
            records += (
                record
                for record in read_records(journal.path, journal.head, journal.data, journal.start)
                if range.first_event_id <= record.first_event_id <= range.last_event_id
            )
            # The check touched every page of the slice, as it does of a whole journal.
            release_pages(journal.data)
        self._records = sorted(records, key=lambda record: record.first_event_id)
        self.rows = sum(record.count for record in records)
        if self.rows != range.events:
            named = ", ".join(f"{journal.path} @{journal.start}" for journal in journals)
            raise CorruptionError(
                f"{named}: expected {range.events} events with ids from {range.first_event_id} to "
                f"{range.last_event_id}, which were there when the pass began, got {self.rows}. Run the step again: "
                "what cannot be read is kept in the quarantine."
            )

    def chunks(self, bytes_max: int) -> Iterator[pa.Table]:
        """Yield the events as `MergeReader.chunks` does."""
        for chunk in _chunks(self._records, bytes_max):
            table = decode(chunk)
            for journal in self._journals:
                release_pages(journal.data)
            yield table


def _chunks(records: Sequence[EventRecord], bytes_max: int) -> Iterator[list[EventRecord]]:
    chunk: list[EventRecord] = []
    size = 0
    for record in records:
        if chunk and size + record.bytes > bytes_max:
            yield chunk
            chunk, size = [], 0
        chunk.append(record)
        size += record.bytes
    if chunk:
        yield chunk


def _around(joined: Sequence[tuple[int, int]], place: int) -> tuple[int, int]:
    """Return the bounds of the records that were written together around a place; itself where there are none."""
    number = bisect_right(joined, (place, np.inf)) - 1
    if number >= 0 and place < joined[number][1]:
        return joined[number]
    return place, place + 1
