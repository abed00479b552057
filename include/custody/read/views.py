"""The events of several writers at one moment, each event once: the archive stands for the writers that it took up.

Whether a writer was taken up is decided by the states that the answer itself is made of. Whichever is read first, the
archive or the writer, an event is in the files of one of them: the archive's transaction lists the new files and passes
over the old ones at once, and a retired writer's catalog does not change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

from custody.catalog import AddTombstone, CatalogState, FederatedState
from custody.catalog.persistent_map import FileMap, PersistentMap
from custody.eventlog import Damage
from custody.read.kept_looks import KeptLooks
from custody.read.reader import Snapshot, snapshot
from custody.read.results import Notices
from custody.read.time_travel import AsOf, snapshot_at, tombstones_since
from custody.store import carried
from custody.workspace import Workspace

T = TypeVar("T")
R = TypeVar("R")


def open_views(
    workspaces: Iterable[Workspace],
    notices: Notices,
    as_of: AsOf | None = None,
    kept: KeptLooks | None = None,
) -> Iterator[tuple[Workspace, Snapshot]]:
    """Yield the events of writers, now or as of a revision or a time, without those that are in the archive.

    A writer of which nothing was committed by then is left out, and one that the archive took up, unless journals of it
    came back later: they are in no archive. What was seen of writers that did not change since is taken from `kept`.

    Raises:
        NotFoundError, PrunedError, CorruptionError: as `snapshot_at` and `snapshot`.
    """
    listed = list(workspaces)
    views = list(_views(listed, notices, as_of, kept))
    if not views:
        return
    database = views[0][0].database
    workspaces_by_name = {item.writer: item for item, _ in views}
    federated = FederatedState(
        database, {item.writer: view.state for item, view in views}, lambda name: workspaces_by_name[name].state()
    )
    absorbed = federated.absorbed
    for writer, text in federated.refuted.items():
        notices(Damage(workspaces_by_name[writer].paths.home, None, None, None, text, is_doubt=True))
    forgotten = {} if as_of is None else _forgotten_in_the_archive(database, listed)
    for workspace, view in views:
        if workspace.writer in absorbed:
            if not view.tail.is_empty:
                yield workspace, replace(view, state=_without_files(view.state))
        elif workspace.writer in forgotten:
            stones = {**view.state.tombstones, **forgotten[workspace.writer]}
            yield workspace, replace(view, state=replace(view.state, tombstones=PersistentMap(stones)))
        else:
            yield workspace, view


def _views(
    workspaces: list[Workspace], notices: Notices, as_of: AsOf | None, kept: KeptLooks | None
) -> Iterator[tuple[Workspace, Snapshot]]:
    """Yield the views of writers in their order; those of many are made side by side where each waits for a store."""

    def view_of(workspace: Workspace) -> tuple[Snapshot | None, list[Damage]]:
        damages: list[Damage] = []
        take = damages.append
        if as_of is not None:
            return snapshot_at(workspace, as_of, take), damages
        return snapshot(workspace, take) if kept is None else kept.snapshot(workspace, take), damages

    views = side_by_side(view_of, workspaces, of=workspaces)
    for workspace, (view, damages) in zip(workspaces, views, strict=True):
        # In the order of the writers, whichever was ready first.
        for damage in damages:
            notices(damage)
        if view is not None:
            yield workspace, view


def side_by_side(work: Callable[[T], R], items: Sequence[T], *, of: Sequence[Workspace]) -> list[R]:
    """Return what `work` gives for each item, in their order; several are under way where each waits for a store.

    Args:
        of: the writers that the items are of. On a disk nothing waits, and threads would only take turns.
    """
    if len(items) < 2 or not of[0].catalog.objects.store.is_remote:
        return [work(item) for item in items]
    with ThreadPoolExecutor(min(_PARALLEL, len(items))) as threads:
        return list(threads.map(carried(work), items))


def _without_files(state: CatalogState) -> CatalogState:
    return replace(state, files=FileMap(), shards=PersistentMap())


def _forgotten_in_the_archive(database: str, workspaces: list[Workspace]) -> dict[str, dict[str, AddTombstone]]:
    """Return by writer what was forgotten after the archive took it up: with the ids that the events had before.

    The writer's own files still have these events, and answers as of an earlier time are made of them.
    """
    by_writer: dict[str, dict[str, AddTombstone]] = {}
    states = {workspace.writer: workspace.state() for workspace in workspaces}
    for workspace in workspaces:
        state = states[workspace.writer]
        entries = [
            entry
            for entry in state.absorbed.values()
            if entry.database == database and entry.writer in states and states[entry.writer].seal is not None
        ]
        stones = tombstones_since(workspace, state) if entries else {}
        for entry in entries:
            moved = {name: _moved_back(stone, entry.first_event_id) for name, stone in stones.items()}
            by_writer[entry.writer] = {name: stone for name, stone in moved.items() if stone is not None}
    return by_writer


def _moved_back(stone: AddTombstone, base: int) -> AddTombstone | None:
    """Return a tombstone of the archive as one of a writer whose event N is `base` + N there; None for no event."""
    moved = AddTombstone()
    moved.CopyFrom(stone)
    del moved.event_ids[:]
    moved.event_ids.extend(number - base for number in stone.event_ids if number >= base)
    if stone.event_ids and not moved.event_ids:
        return None
    if stone.before_event_id:
        if stone.before_event_id <= base:
            return None
        moved.before_event_id = stone.before_event_id - base
    for condition in moved.unless:
        numbers = [number - base for number in condition.event_ids if number >= base]
        # With ids of other writers alone it means no event here; without any it would mean every one.
        if condition.event_ids and not numbers:
            numbers = [_NO_EVENT]
        del condition.event_ids[:]
        condition.event_ids.extend(numbers)
        condition.before_event_id = max(condition.before_event_id - base, 1) if condition.before_event_id else 0
    return moved


# Each thread waits for the store most of the time; of fewer writers each is read after the other.
_PARALLEL = 16
_NO_EVENT = (1 << 63) - 1
