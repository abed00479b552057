"""Checks of a writer's event ids over logs and journals: none is there twice, and missing ones are reported.

A missing id is no damage by itself: a crash of a writer with several threads leaves ids that were never acknowledged,
and a compaction erases events. But it is the only trace of a journal that was removed before its rollover. So missing
ids are a notice, unless a known loss or the catalog's history explains them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from custody.catalog import CatalogState
from custody.catalog.removed_events import removed_events
from custody.catalog.state import EMPTY
from custody.errors import CustodyError
from custody.format.names import parse_event_log
from custody.journal import Group, left_to_original, read_end, writer_states
from custody.maintenance.findings import Finding, Level
from custody.maintenance.verification.check_journals import record_ranges
from custody.workspace import Workspace

EventIdRange = tuple[int, int]
"""The first and the last id of a run."""
# A long-lived writer may have very many gaps: the rest becomes one finding.
_REPORTED_MAX = 100
_Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Held:
    first: _Ids
    last: _Ids
    paths: list[str]


def check_ids(workspace: Workspace, state: CatalogState, level: Level) -> Iterator[Finding]:
    """Yield ids that are there twice, and ids that nothing holds."""
    held = _held(workspace, state, level)
    yield from _doubled(workspace, held)
    gaps = list(missing_ids(workspace, state, held=held))
    where, writer = workspace.paths.home, workspace.writer
    for first, last in gaps[:_REPORTED_MAX]:
        text = f"{where}: nothing holds the ids {first} to {last}: never told, erased long ago, or lost."
        yield Finding.of("ids-missing", where, text, writer=writer, events=last - first + 1, ids=(first, last))
    for first, last, backup in left_to_original(workspace.incarnations.readable_claims()):
        text = (
            f"{where}: the ids {first} to {last} are left to the original: this repository was restored from {backup}. "
            "There they may be those of events that are not here."
        )
        yield Finding.of("ids-left-out", where, text, writer=writer, ids=(first, last))
    if len(gaps) > _REPORTED_MAX:
        unreported = gaps[_REPORTED_MAX:]
        text = (
            f"{where}: nothing holds ids in {len(unreported)} more stretches, the last one up to {unreported[-1][1]}."
        )
        first, last = unreported[0][0], unreported[-1][1]
        yield Finding.of("ids-missing", where, text, writer=writer, events=last - first + 1, ids=(first, last))
    yield from _removed(workspace, state)
    for path in sorted(state.files):
        file = state.files[path]
        inside = file.last_event_id - file.first_event_id + 1 - file.rows
        noted = sum(_overlap(loss, (file.first_event_id, file.last_event_id)) for loss in lost_ranges(state))
        # A compaction erases ids on purpose: gaps count only in logs straight from a rollover.
        if inside > noted and parse_event_log(path) is not None and not _is_rewritten(path):
            text = f"{workspace.log_place(path)}: {inside} ids within it belong to no event: never told, or lost."
            ids = file.first_event_id, file.last_event_id
            yield Finding.of("ids-missing", path, text, writer=writer, events=inside, ids=ids)


def _removed(workspace: Workspace, state: CatalogState) -> Iterator[Finding]:
    """Yield the logs that a kept transaction took off the list without saying why, unless their loss is noted since."""
    if state.revision < 0:
        return
    try:
        start = workspace.catalog.at(state.floor) if state.floor else EMPTY
        gone = [each for each in removed_events(start, workspace.catalog.timeline()) if each.reason == "none"]
    except CustodyError:
        return  # a damaged history accuses nobody
    for each in gone:
        ids = [(file.first_event_id, file.last_event_id) for file in each.files]
        live = [(file.first_event_id, file.last_event_id) for file in state.files.values()]
        if not subtract_ranges(ids, [*lost_ranges(state), *live]):
            continue
        where = workspace.catalog.objects
        text = (
            f"{where}: revision {each.revision} took {each.events} events off the list and says no reason: they are "
            "neither expired, nor forgotten, nor known to be lost, nor in another log."
        )
        first, last = min(low for low, _ in ids), max(high for _, high in ids)
        yield Finding.of("events-removed", where, text, writer=workspace.writer, events=each.events, ids=(first, last))


def missing_ids(
    workspace: Workspace, state: CatalogState, level: Level = Level.DEFAULT, held: _Held | None = None
) -> Iterator[EventIdRange]:
    """Yield the runs of ids that nothing holds and nothing explains."""
    held = held or _held(workspace, state, level)
    # Ranges may overlap (doubled ids): the running maximum of their ends is where each gap begins.
    ends = np.maximum.accumulate(held.last) if len(held.last) else held.last
    starts = [0, *(ends + 1).tolist()]
    stops = [*(held.first - 1).tolist(), max(state.next_event_id, _floor(workspace)) - 1]
    gaps = [(first, last) for first, last in zip(starts, stops, strict=True) if first <= last]
    if gaps:
        left = [(first, last) for first, last, _ in left_to_original(workspace.incarnations.readable_claims())]
        yield from subtract_ranges(gaps, [*lost_ranges(state), *left, *_explained(workspace, state)])


def _floor(workspace: Workspace) -> int:
    """Return the first id that may still be given out: it was raised where ids before it may have been acknowledged."""
    try:
        states = writer_states(workspace.fs, workspace.settings.containers, workspace.writer)
    except CustodyError:
        return 0  # found by the check of the states
    return max((item.floor for item in states.values()), default=0)


def lost_ranges(state: CatalogState) -> list[EventIdRange]:
    """Return the ids that the catalog knows to be lost."""
    return [
        (first, first + count - 1)
        for loss in state.losses.values()
        for first, count in zip(loss.firsts, loss.counts, strict=True)
    ]


def subtract_ranges(ranges: Iterable[EventIdRange], subtracted: Sequence[EventIdRange]) -> list[EventIdRange]:
    """Return the parts of some runs that lie in none of the others."""
    remaining = list(ranges)
    for low, high in subtracted:
        parts = [((first, min(last, low - 1)), (max(first, high + 1), last)) for first, last in remaining]
        remaining = [part for pair in parts for part in dict.fromkeys(pair) if part[0] <= part[1]]
    return remaining


def _held(workspace: Workspace, state: CatalogState, level: Level) -> _Held:
    """Return the holders of ids, by first id: live logs, and the records of groups that are not live."""
    holders = [(file.first_event_id, file.last_event_id, path) for path, file in state.files.items()]
    for group in workspace.groups():
        # The journals of a live group hold the ids of its logs once more, until they are swept.
        if not workspace.is_committed(state, group.first_event_id):
            where = str(group.sealed[0] if group.sealed else group.open[0])
            # The quick level reads no records: ids within a group are then taken for complete.
            ranges = _ends(workspace, group) if level is Level.QUICK else record_ranges(workspace, group)
            holders += [(first, first + count - 1, where) for first, count in ranges]
    holders.sort()
    bounds = np.array([holder[:2] for holder in holders], np.int64).reshape(-1, 2)
    return _Held(bounds[:, 0], bounds[:, 1], [holder[2] for holder in holders])


def _ends(workspace: Workspace, group: Group) -> list[tuple[int, int]]:
    """Return (first id, count) of a group from its end records; open journals are read."""
    ends = [read_end(workspace.fs, path) for path in group.sealed]
    ranges = [(end.first_event_id, end.last_event_id) for end in ends if end is not None]
    bounds = [(first, last) for first, last in ranges if first is not None and last is not None]
    if group.open or not bounds:
        return record_ranges(workspace, group)
    first = min(low for low, _ in bounds)
    return [(first, max(high for _, high in bounds) - first + 1)]


def _doubled(workspace: Workspace, held: _Held) -> Iterator[Finding]:
    if len(held.first) < 2:
        return
    ends = np.maximum.accumulate(held.last)
    # Compared with the greatest end of all before it: a long range may reach over several neighbours.
    for number in (np.flatnonzero(held.first[1:] <= ends[:-1]) + 1).tolist():
        last = int(min(held.last[number], ends[number - 1]))
        path = str(workspace.log_place(held.paths[number]))
        first = int(held.first[number])
        text = f"{path}: the ids {first} to {last} are in {held.paths[number - 1]}, or another file, too."
        ids, events = (first, last), last - first + 1
        yield Finding.of("ids-doubled", path, text, writer=workspace.writer, events=events, ids=ids)


def _explained(workspace: Workspace, state: CatalogState) -> Iterator[EventIdRange]:
    """Yield the ids that were live once and went on purpose, and those of which no history is kept."""
    if state.revision < 0:
        return
    try:
        # The transactions before the floor are pruned: nobody knows which of their ids went on purpose.
        if state.floor > 0:
            yield 0, workspace.catalog.at(state.floor).next_event_id - 1
        for transaction in workspace.catalog.timeline():
            for action in transaction.actions:
                if action.HasField("add_file"):
                    yield action.add_file.first_event_id, action.add_file.last_event_id
    except CustodyError:
        yield 0, state.next_event_id - 1  # a damaged history explains nothing and accuses nobody


def _is_rewritten(path: str) -> bool:
    """Whether a compaction or a repair wrote a log: its name has a suffix."""
    return "." in path.rpartition("/")[2].removesuffix(".parquet")


def _overlap(one: EventIdRange, other: EventIdRange) -> int:
    return max(0, min(one[1], other[1]) - max(one[0], other[0]) + 1)
