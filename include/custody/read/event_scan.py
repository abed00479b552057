"""Scans in parts: the events of all writers as parts that other processes read, for engines with workers of their own.

A plan is made where the repository is: logs and blocks that the catalog's statistics rule out get no part, acknowledged
events that are in no log yet travel within their parts, and so do the ids of forgotten events. A part is read anywhere
that sees the logs, without a look at the catalog.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, CatalogState
from custody.catalog.pruning import PrunedReads, Restriction
from custody.errors import ConflictError, NotFoundError
from custody.eventlog import EventLog, refuse
from custody.model import EVENT_SCHEMA, AttributeMask
from custody.read.cache import caches_of
from custody.read.reader import snapshot
from custody.read.sql import SQL_SCHEMA
from custody.read.time_travel import AsOf, snapshot_at
from custody.read.tombstone_filter import hidden_ids
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
    """Some events of one writer: of a log, or, without a path, those that it carries itself."""

    writer: str
    path: str | None = None
    sha256: bytes = b""
    toc_sha256: bytes = b""
    blocks: tuple[int, ...] | None = None
    """The blocks that may hold events that are asked for; None for all."""
    ids: tuple[IdRange, ...] | None = None
    """Only events within these belong to the part; None for all."""
    hidden: bytes = b""
    """The ids of events that must not be given out, as int64."""
    masks: tuple[str, ...] = ()
    """Patterns of names of attributes whose values must not be given out."""
    events: bytes = b""
    """The events that are in no log yet: Arrow's stream format."""


@dataclass
class ScanPlan:
    """Parts whose events are those of one moment, and what was ruled out."""

    parts: list[ScanPart] = field(default_factory=list)
    reads: PrunedReads = field(default_factory=PrunedReads)


def plan_scan(workspaces: Sequence[Workspace], asked: EventFilter = ALL, as_of: AsOf | None = None) -> ScanPlan:
    """Plan to read the events of writers that meet a filter, now or as they were at an earlier revision or time.

    Raises:
        CorruptionError: a catalog, a journal, or a log that holds forgotten events, is damaged.
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
    alternatives, hidden = asked.alternatives(), hidden_ids(workspace, state, refuse)
    for file in caches_of(workspace).live(workspace, state).files:
        ids = None if groups is None else _ranges_of(file, groups)
        if ids == ():
            continue
        # A log of other groups is not counted: only what the statistics rule out is.
        blocks = reads.blocks_of(file, alternatives) if alternatives or asked.ids is None else []
        if blocks == []:
            continue
        first, last = np.searchsorted(hidden, [file.first_event_id, file.last_event_id + 1])
        yield ScanPart(
            writer=workspace.writer,
            path=str(workspace.log_path(file.path)),
            sha256=file.sha256,
            toc_sha256=file.toc_sha256,
            blocks=None if blocks is None else tuple(blocks),
            ids=ids,
            hidden=hidden[first:last].tobytes(),
            masks=() if workspace.visibility is None else workspace.visibility.mask.patterns,
        )


def read_part(fs: FileSystem, part: ScanPart, asked: EventFilter, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Yield the events of a part that meet a filter, with some columns of `SQL_SCHEMA`; every block is checked.

    Raises:
        CorruptionError: the log is damaged.
        ConflictError: the log is gone since the plan was made.
    """
    for table in _tables(fs, part, asked, columns):
        chosen = _without(asked.matching(table), part)
        if chosen.num_rows:
            yield _with_columns(AttributeMask(part.masks).rows(chosen), part.writer, columns)


def _tables(fs: FileSystem, part: ScanPart, asked: EventFilter, columns: Sequence[str]) -> Iterator[pa.Table]:
    if part.path is None:
        with pa.ipc.open_stream(part.events) as stream:
            yield stream.read_all()
        return
    needed = {*columns, *asked.columns, *(["event_id"] if part.hidden or part.ids is not None else [])}
    # Without any column a table has no rows to count.
    names = [name for name in EVENT_SCHEMA.names if name in needed] or ["event_id"]
    log = EventLog(fs, Path(part.path), sha256=part.sha256, toc_sha256=part.toc_sha256)
    try:
        blocks = range(len(log.toc.blocks)) if part.blocks is None else part.blocks
    except NotFoundError as error:
        raise ConflictError(
            f"{part.path}: gone since the scan was planned: the log expired or was compacted. Load the events again."
        ) from error
    yield from log.tables(blocks, names)


def _without(table: pa.Table, part: ScanPart) -> pa.Table:
    """Return the events that belong to a part and may be given out."""
    if not part.hidden and part.ids is None:
        return table
    ids: npt.NDArray[np.int64] = np.asarray(table.column("event_id"))
    is_chosen = ~np.isin(ids, np.frombuffer(part.hidden, np.int64))
    if part.ids is not None:
        is_chosen &= _within(ids, part.ids)
    return table.filter(pa.array(is_chosen))


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


def _within(ids: npt.NDArray[np.int64], ranges: Sequence[IdRange]) -> npt.NDArray[np.bool_]:
    """Return which ids lie in sorted ranges without overlaps, shape (ids,)."""
    if not ranges:
        return np.zeros(len(ids), np.bool_)
    bounds = np.array(ranges, np.int64)
    places = np.searchsorted(bounds[:, 0], ids, side="right") - 1
    within: npt.NDArray[np.bool_] = (places >= 0) & (ids <= bounds[places, 1])
    return within
