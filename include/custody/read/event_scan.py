"""Scans in parts: the events of all writers as parts that other processes read, for engines with workers of their own.

A plan is made where the repository is, from the catalog and the journals alone: logs and blocks that the catalog's
statistics rule out get no part, acknowledged events that are in no log yet travel within their parts, and so does what
says which events of a log were forgotten. A part is read anywhere that sees the logs, on a disk or in an object store,
without a look at the catalog. Of a log in an object store only the table of contents and the blocks that may hold
events that are asked for are fetched.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, AddTombstone, CatalogState, columns_needed, is_remnant, may_match
from custody.catalog.data_files import DataFiles
from custody.catalog.file_reference import FileReference
from custody.catalog.pruning import PrunedReads, Restriction
from custody.config import Settings
from custody.errors import ConflictError, CorruptionError, NotFoundError
from custody.eventlog import EventLog, TableOfContents, refuse
from custody.format.number_sets import is_among
from custody.model import EVENT_SCHEMA, INT64_MAX
from custody.model.visibility import Visibility
from custody.read.cache import caches_of
from custody.read.reader import snapshot
from custody.read.sql import SQL_SCHEMA
from custody.read.time_travel import AsOf, snapshot_at
from custody.read.tombstone_filter import given_out
from custody.vfs import FileSystem
from custody.workspace import Workspace

# Of the events that travel within parts, before they are sent: a part of a plan should stay small.
_TAIL_PART_BYTES = 8 << 20
IdRange = tuple[int, int]
"""From the first to the last event id, both included."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events are asked for: those that meet all conditions that are set."""

    ids: tuple[IdRange, ...] | None = None
    """Sorted, without overlaps."""
    from_ms: int | None = None
    """Event time, included."""
    to_ms: int | None = None
    """Event time, excluded."""
    event_types: tuple[str, ...] | None = None
    flowfile_uuids: tuple[str, ...] | None = None

    @property
    def columns(self) -> set[str]:
        """The columns that have to be read for it."""
        is_asked = {
            "event_id": self.ids is not None,
            "event_time": self.from_ms is not None or self.to_ms is not None,
            "event_type": self.event_types is not None,
            "flowfile_uuid": self.flowfile_uuids is not None,
        }
        return {name for name, asked in is_asked.items() if asked}

    def alternatives(self) -> list[list[Restriction]]:
        """Return what an event has to meet, as the catalog compares it."""
        others = []
        if self.from_ms is not None or self.to_ms is not None:
            last = None if self.to_ms is None else self.to_ms - 1
            others.append(Restriction(column="event_time", least=self.from_ms, greatest=last))
        if self.flowfile_uuids is not None:
            values = tuple(uuid.encode() for uuid in self.flowfile_uuids)
            others.append(Restriction(column="flowfile_uuid", values=values))
        if self.ids is None:
            return [others] if others else []
        return [[Restriction(column="event_id", least=low, greatest=high), *others] for low, high in self.ids]

    def matching(self, table: pa.Table) -> pa.Table:
        """Return the events of a table that meet it; the table has its columns."""
        if self.ids is not None:
            table = table.filter(pa.array(_within(np.asarray(table.column("event_id")), self.ids)))
        conditions = []
        times = EVENT_SCHEMA.field("event_time").type
        if self.from_ms is not None:
            conditions.append(pc.greater_equal(table.column("event_time"), pa.scalar(self.from_ms, times)))
        if self.to_ms is not None:
            conditions.append(pc.less(table.column("event_time"), pa.scalar(self.to_ms, times)))
        for name, values in (("event_type", self.event_types), ("flowfile_uuid", self.flowfile_uuids)):
            if values is not None:
                conditions.append(pc.is_in(table.column(name), pa.array(values, pa.string())))
        return table.filter(reduce(pc.and_, conditions)) if conditions else table


ALL = EventFilter()


@dataclass(frozen=True, slots=True)
class ScanPart:
    """Some events of one writer: of a log, or, without one, those that it carries itself."""

    writer: str
    log: FileReference | None = None
    blocks: tuple[int, ...] | None = None
    """The blocks that may hold events that are asked for, by their bloom filters; None for all."""
    ids: tuple[IdRange, ...] | None = None
    """Only events within these belong to the part; None for all."""
    tombstones: tuple[bytes, ...] = ()
    """Those that may mean events of the log, encoded."""
    visibility: Visibility | None = None
    """What the asker may see; None for everything."""
    events: bytes = b""
    """The events that are in no log yet: Arrow's stream format."""


@dataclass
class ScanPlan:
    """Parts whose events are those of one moment, and what was ruled out."""

    parts: list[ScanPart] = field(default_factory=list)
    reads: PrunedReads = field(default_factory=PrunedReads)


def plan_scan(workspaces: Sequence[Workspace], asked: EventFilter = ALL, as_of: AsOf | None = None) -> ScanPlan:
    """Plan to read the events of writers that meet a filter, now or as they were at an earlier revision or time.

    No log is opened for it.

    Raises:
        CorruptionError: a catalog or a journal is damaged.
        NotFoundError, PrunedError: as `snapshot_at`.
    """
    plan = ScanPlan()
    for workspace in workspaces:
        view = snapshot(workspace) if as_of is None else snapshot_at(workspace, as_of, refuse)
        if view is None:
            continue  # nothing was committed until then
        plan.parts += parts_of_logs(workspace, view.state, asked, plan.reads)
        for table in view.visible_tail(workspace).tables():
            plan.parts += _parts_of_tail(workspace.writer, asked.matching(table))
    return plan


def parts_of_logs(
    workspace: Workspace,
    state: CatalogState,
    asked: EventFilter,
    reads: PrunedReads,
    groups: frozenset[int] | None = None,
) -> Iterator[ScanPart]:
    """Yield the parts of the live logs of a state that may hold events that meet a filter.

    With `groups`, only the events of these journal groups.
    """
    alternatives, stones = asked.alternatives(), _Tombstones(state)
    for file in caches_of(workspace).live(workspace, state).files:
        ids = None if groups is None else _ranges_of(file, groups)
        if ids == ():
            continue
        # A log of other groups is not counted: only what the statistics rule out is.
        blocks = reads.blocks_of(file, alternatives) if alternatives or asked.ids is None else []
        if blocks == []:
            continue
        yield ScanPart(
            writer=workspace.writer,
            log=FileReference.of(workspace.catalog.objects.files, file),
            blocks=None if blocks is None else tuple(blocks),
            ids=ids,
            tombstones=tuple(stones.of(file)),
            visibility=workspace.visibility,
        )


class _Tombstones:
    """The tombstones of a state, of which each log gets those that may mean an event of it."""

    def __init__(self, state: CatalogState) -> None:
        self._stones: list[tuple[AddTombstone, npt.NDArray[np.int64]]] = []
        for _, stone in sorted(state.tombstones.items()):
            if not is_remnant(stone):
                without_ids = AddTombstone()
                without_ids.CopyFrom(stone)
                del without_ids.event_ids[:]
                self._stones.append((without_ids, np.sort(np.array(stone.event_ids, np.int64))))

    def of(self, file: AddFile) -> Iterator[bytes]:
        """Yield those that may mean an event of a log, encoded, of their ids only those that it can hold."""
        bounds = file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms
        for without_ids, ids in self._stones:
            first, last = np.searchsorted(ids, [file.first_event_id, file.last_event_id + 1])
            if len(ids) and first == last:
                continue  # without its ids it would mean others
            stone = AddTombstone()
            stone.CopyFrom(without_ids)
            stone.event_ids.extend(ids[first:last].tolist())
            if may_match(stone, *bounds):
                yield stone.SerializeToString()


def read_part(
    settings: Settings, fs: FileSystem, part: ScanPart, asked: EventFilter, columns: Sequence[str]
) -> Iterator[pa.Table]:
    """Yield the events of a part that meet a filter, with some columns of `SQL_SCHEMA`; every block is checked.

    Args:
        settings: of the repository, or with a work folder of this machine's own, into which a log of an object store is
            fetched.

    Raises:
        CorruptionError: the log is damaged.
        ConflictError: the log is gone since the plan was made.
        StorageError: the store or the disk refuses.
    """
    stones = [AddTombstone.FromString(stone) for stone in part.tombstones]
    rules = part.visibility if part.visibility is not None and part.visibility.hides_events else None
    needed = {*columns, *asked.columns, *columns_needed(stones), *(rules.columns if rules is not None else ())}
    if part.ids is not None:
        needed.add("event_id")
    for table in _tables(settings, fs, part, asked, needed):
        chosen = asked.matching(table)
        if part.ids is not None:
            chosen = chosen.filter(pa.array(_within(np.asarray(chosen.column("event_id")), part.ids)))
        if (stones or rules is not None) and chosen.num_rows:
            chosen = chosen.filter(given_out(stones, rules, chosen))
        if chosen.num_rows:
            shown = chosen if part.visibility is None else part.visibility.mask.rows(chosen)
            yield _with_columns(shown, part.writer, columns)


def _tables(
    settings: Settings, fs: FileSystem, part: ScanPart, asked: EventFilter, needed: set[str]
) -> Iterator[pa.Table]:
    """Yield what has to be looked at of a part, with the columns of events among those that are needed."""
    reference = part.log
    if reference is None:
        with pa.ipc.open_stream(part.events) as stream:
            yield stream.read_all()
        return
    # Without any column a table has no rows to count.
    names = [name for name in EVENT_SCHEMA.names if name in needed] or ["event_id"]
    stored = reference.files(settings, fs)
    log = _opened(fs, reference, stored)
    try:
        yield from log.tables(_blocks_to_read(log.toc, part, asked), names)
    except NotFoundError as error:
        raise _gone(reference) from error
    except CorruptionError as error:
        if stored is None:
            raise
        if not stored.exists(reference.path):
            raise _gone(reference) from error
        # The path of a copy, which may be in a folder that is gone soon, tells nobody which log it is.
        raise CorruptionError(str(error).replace(str(log.path), str(reference))) from error


def _opened(fs: FileSystem, reference: FileReference, stored: DataFiles | None) -> EventLog:
    ranged = None if stored is None else stored.ranged(reference.path, reference.size)
    if stored is not None and ranged is None:
        stored.path(reference.path)  # a copy of the whole is here: it is compared with the catalog once a process
    path, digests = reference.where(stored), (reference.sha256, reference.beside_sha256)
    return EventLog(fs, path, sha256=digests[0], toc_sha256=digests[1], ranged=ranged)


def _gone(reference: FileReference) -> ConflictError:
    return ConflictError(
        f"{reference}: gone since the scan was planned: the log expired or was compacted. Load the events again."
    )


def _blocks_to_read(toc: TableOfContents, part: ScanPart, asked: EventFilter) -> list[int]:
    """Return the blocks that may hold events that are asked for, by the plan and by the table of contents.

    The plan knows the bloom filters of the blocks; their ids and times are in the table.
    """
    blocks = toc.blocks
    firsts = blocks["first_event_id"].astype(np.int64)
    # The table has only the first id of a block: its last one lies before the next block's first.
    lasts = np.append(firsts[1:] - 1, INT64_MAX)
    may_hold = np.ones(len(blocks), np.bool_)
    for ranges in (asked.ids, part.ids):
        if ranges is not None:
            may_hold &= _overlapping(firsts, lasts, ranges)
    if asked.from_ms is not None:
        may_hold &= blocks["last_event_time"] >= asked.from_ms
    if asked.to_ms is not None:
        may_hold &= blocks["first_event_time"] < asked.to_ms
    if part.blocks is not None:
        may_hold &= is_among(np.arange(len(blocks)), np.array(part.blocks, np.int64))
    numbers: list[int] = np.flatnonzero(may_hold).tolist()
    return numbers


def _with_columns(table: pa.Table, writer: str, columns: Sequence[str]) -> pa.Table:
    schema = pa.schema([SQL_SCHEMA.field(name) for name in columns])
    writers = pa.repeat(pa.scalar(writer), table.num_rows)
    return pa.Table.from_arrays(
        [writers if name == "writer" else table.column(name) for name in columns], schema=schema
    )


def _parts_of_tail(writer: str, tail: pa.Table) -> Iterator[ScanPart]:
    if not tail.num_rows:
        return
    rows = max(1, tail.num_rows * _TAIL_PART_BYTES // max(tail.nbytes, 1))
    for start in range(0, tail.num_rows, rows):
        sink = pa.BufferOutputStream()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_stream(sink, tail.schema, options=options) as stream:
            stream.write_table(tail.slice(start, rows))
        yield ScanPart(writer=writer, events=sink.getvalue().to_pybytes())


def _ranges_of(file: AddFile, groups: frozenset[int]) -> tuple[IdRange, ...]:
    """Return the ids that events of some groups can have in a log: a group's ids end where the next one's begin."""
    firsts = sorted(file.groups)
    ends = [first - 1 for first in firsts[1:]] + [file.last_event_id]
    return joined(pair for first, *pair in zip(firsts, firsts, ends, strict=True) if first in groups)


def joined(ranges: Iterable[Sequence[int]]) -> tuple[IdRange, ...]:
    """Return ranges sorted, with those joined that overlap or touch."""
    result: list[IdRange] = []
    for low, high in sorted((low, high) for low, high in ranges):
        if result and low <= result[-1][1] + 1:
            result[-1] = result[-1][0], max(result[-1][1], high)
        else:
            result.append((low, high))
    return tuple(result)


def _overlapping(
    firsts: npt.NDArray[np.int64], lasts: npt.NDArray[np.int64], ranges: Sequence[IdRange]
) -> npt.NDArray[np.bool_]:
    """Return which of some spans of ids have an id in common with sorted ranges without overlaps, shape (spans,)."""
    if not ranges:
        return np.zeros(len(firsts), np.bool_)
    bounds = np.array(ranges, np.int64)
    places = np.searchsorted(bounds[:, 0], lasts, side="right") - 1
    overlapping: npt.NDArray[np.bool_] = (places >= 0) & (bounds[places, 1] >= firsts)
    return overlapping


def _within(ids: npt.NDArray[np.int64], ranges: Sequence[IdRange]) -> npt.NDArray[np.bool_]:
    """Return which ids lie in sorted ranges without overlaps, shape (ids,)."""
    return _overlapping(ids, ids, ranges)
