"""Which live logs are written anew: those that hold forgotten events, and small neighbours, which become one log.

A log waits while journals or a staged unit of its groups are on disk: the events would stay there. No log reaches over
a group that is not live, as the id ranges of logs do not overlap. Small is what has at most half of a log's target
size; so an event is written anew a bounded number of times, and a log that was joined enough is left in peace.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import (
    AddFile,
    AddTombstone,
    CatalogState,
    Condition,
    columns_needed,
    live_groups,
    may_mean,
    meant,
    stored_footer,
    visible,
)
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import EventLog
from custody.maintenance.held import conditions_for
from custody.model import is_newer
from custody.rollover import Workspace


class Rewriting(msgspec.Struct, frozen=True, kw_only=True):
    """Live logs, neighbours in the order of their ids, that become one log, or none; `bytes` are those on disk."""

    writer: str
    paths: tuple[str, ...]
    events: int
    forgotten: int
    """How many of the events are erased."""
    bytes: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    file: AddFile
    size: float
    """Uncompressed bytes; infinite for a log that is not joined with others."""
    forgotten: int


def planned(workspace: Workspace) -> Iterator[Rewriting]:
    """Yield what is to be written anew, by first event id. Logs that a tombstone may mean are read in few columns."""
    on_disk = groups_on_disk(workspace)  # before the catalog, so that no group falls in between
    state = workspace.catalog.load()
    if state.seal is not None:
        return
    target = workspace.settings.eventlog.log_bytes_target
    held = conditions_for(workspace)
    waiting = sorted(on_disk - live_groups(state))
    run: list[_Candidate] = []
    for file in sorted(state.files.values(), key=lambda file: file.first_event_id):
        if on_disk.intersection(file.groups):
            yield from _chosen(workspace, run)
            run = []
            continue
        found = _candidate(workspace, state, file, target, held)
        if run and not _fits(run, found, waiting, target):
            yield from _chosen(workspace, run)
            run = []
        run.append(found)
    yield from _chosen(workspace, run)


def groups_on_disk(workspace: Workspace) -> frozenset[int]:
    """Return the groups of which journals or a staged unit are there, live or not."""
    journals = {group.first_event_id for group in workspace.groups()}
    return frozenset(journals.union(*(manifest.groups for manifest in workspace.manifests())))


def meaning(state: CatalogState, file: AddFile) -> list[AddTombstone]:
    """Return the tombstones that may mean an event of a log, in a fixed order."""
    bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    return [stone for _, stone in sorted(state.tombstones.items()) if may_mean(stone, *bounds)]


def open_file(workspace: Workspace, file: AddFile) -> EventLog:
    """Return a live log."""
    path = workspace.paths.home / file.path
    return EventLog(workspace.fs, path, sha256=file.sha256, toc_sha256=file.toc_sha256)


def erasable(stones: Sequence[AddTombstone], held: Sequence[Condition], table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return which events of a table tombstones mean and no hold does: booleans, shape (rows,)."""
    hidden = pc.invert(visible(stones, table))
    return pc.and_not(hidden, meant(held, table)) if held else hidden


def held_in(held: Mapping[str, Condition], file: AddFile) -> list[Condition]:
    """Return the conditions of holds that may mean an event of a log."""
    bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    return [part for part in held.values() if may_mean(part, *bounds)]


def count_forgotten(
    workspace: Workspace, file: AddFile, stones: Sequence[AddTombstone], held: Sequence[Condition] = ()
) -> int:
    """Return how many events of a log tombstones mean and holds do not; only the columns that these ask for are read.

    Raises:
        CorruptionError, NotFoundError: a block is damaged, or the log is gone.
    """
    if not stones:
        return 0
    log = open_file(workspace, file)
    columns = sorted({"event_id", *columns_needed([*stones, *held])})
    tables = log.tables(range(len(log.toc.blocks)), columns)
    return sum(pc.sum(erasable(stones, held, table)).as_py() or 0 for table in tables)


def _candidate(
    workspace: Workspace, state: CatalogState, file: AddFile, target: int, held: Mapping[str, Condition]
) -> _Candidate:
    try:
        forgotten = count_forgotten(workspace, file, meaning(state, file), held_in(held, file))
    except (CorruptionError, NotFoundError):
        return _Candidate(file, math.inf, 1)  # the attempt to write it anew says what is damaged
    # What a newer custody wrote is not joined: its columns would be lost.
    is_joined = file.size_bytes <= target and not is_newer(file.schema_version)
    size = _plain_bytes(file) if is_joined else math.inf
    return _Candidate(file, size if size <= target / 2 else math.inf, forgotten)


def _plain_bytes(file: AddFile) -> float:
    """Return the uncompressed size as the footer tells it; a log whose footer is too large for the catalog is large."""
    footer = stored_footer(file)
    if footer is None:
        return math.inf
    return float(sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)))


def _fits(run: Sequence[_Candidate], found: _Candidate, waiting: Sequence[int], target: int) -> bool:
    first, last = run[-1].file, found.file
    return (
        sum(item.size for item in run) + found.size <= target
        and (first.table, first.partition) == (last.table, last.partition)
        and not any(first.first_event_id < group < last.first_event_id for group in waiting)
    )


def _chosen(workspace: Workspace, run: Sequence[_Candidate]) -> Iterator[Rewriting]:
    if len(run) > 1 or any(item.forgotten for item in run):
        yield Rewriting(
            writer=workspace.writer,
            paths=tuple(item.file.path for item in run),
            events=sum(item.file.rows for item in run),
            forgotten=sum(item.forgotten for item in run),
            bytes=sum(item.file.size_bytes for item in run),
        )
