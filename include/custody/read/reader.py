"""Reading the events of one writer: from live logs first, then from the journals that are not live yet.

Every function obeys the snapshot rule of `custody.workspace.snapshot`, so that no event is missed while rollover moves
it. An event that a live log holds is found without a look at the journals. What is damaged or absent goes to a
callback, `on_damage`; without one, damage raises CorruptionError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, CatalogState
from custody.eventlog import Damage, EventLog, OnDamage, TableOfContents, refuse
from custody.eventlog.blocks import numbers, one_chunk
from custody.format.number_sets import distinct
from custody.journal import Group, count_pending
from custody.model import INT64_MAX, NO_EVENTS, Event
from custody.read.cache import EventIds, caches_of, hiding, open_log, read_tail, read_tail_in_parts
from custody.read.found_events import FoundEvents, objects_of
from custody.read.results import report_absent, report_earlier
from custody.read.tail import Tail
from custody.read.tombstone_filter import seen_events, visible_copies, visible_events, visible_rows
from custody.workspace import Moment, Workspace, attempts, read_at_one_moment


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One writer's events at one moment: the catalog's state, and the acknowledged events that are not live."""

    state: CatalogState
    tail: Tail = field(default_factory=Tail)

    @property
    def next_event_id(self) -> int:
        """One more than the greatest id that was given out."""
        last = self.tail.last_event_id
        return max(self.state.next_event_id, 0 if last is None else last + 1)

    def visible_tail(self, workspace: Workspace) -> Tail:
        """Return the events of the tail without those that must not be given out."""
        if not hiding(workspace, self.state):
            return self.tail
        return self.tail.choosing(partial(visible_events, workspace, self.state))


def snapshot(
    workspace: Workspace,
    on_damage: OnDamage = refuse,
    choose: Callable[[list[Group]], list[Group]] = lambda waiting: waiting,
    *,
    is_for_few: bool = False,
) -> Snapshot:
    """Take a snapshot; its tail holds the events of the waiting groups that `choose` returns, all by default.

    With `is_for_few` single events are taken from it, and large groups are not decoded for them.

    Raises:
        CorruptionError: the catalog is damaged, or a journal is and `on_damage` does not pass it over; ids are not
            given out on a guess.
    """
    return snapshot_and_moment(workspace, on_damage, choose, is_for_few=is_for_few)[0]


def snapshot_and_moment(
    workspace: Workspace,
    on_damage: OnDamage = refuse,
    choose: Callable[[list[Group]], list[Group]] = lambda waiting: waiting,
    *,
    is_for_few: bool = False,
) -> tuple[Snapshot, Moment]:
    """Take a snapshot as `snapshot` does, and return it with the moment that it was made of; raises as `snapshot`."""
    state, (moment, tail) = read_at_one_moment(
        workspace,
        lambda moment: (
            moment,
            read_tail_in_parts(workspace, choose(moment.waiting), on_damage, is_for_few=is_for_few),
        ),
    )
    # By the same listing: journals that are another's are told of the moment that the answer is of.
    report_absent(workspace, moment, on_damage)
    is_all_seen = workspace.visibility is None or not workspace.visibility.hides_events
    return Snapshot(state, tail if is_all_seen else tail.choosing(partial(seen_events, workspace))), moment


def next_event_id(workspace: Workspace) -> int:
    """Return one more than the greatest id that was given out, without reading what waits."""
    state, waiting = read_at_one_moment(workspace, lambda moment: count_pending(workspace.fs, moment.waiting))
    return max(state.next_event_id, waiting.next_event_id)


def get_many(
    workspace: Workspace,
    event_ids: Sequence[int],
    view: Snapshot | None = None,
    on_damage: OnDamage = refuse,
    *,
    keep: bool = False,
) -> list[Event]:
    """Return the events with these ids, in id order; ids that do not exist are left out.

    With `keep` the events themselves are cached, not only the blocks in which they lie.
    """
    # Other numbers cannot be ids, and do not fit into a column of ids.
    ids = distinct(np.array([event_id for event_id in event_ids if 0 <= event_id <= INT64_MAX], np.int64))
    found = find(workspace, ids, view, on_damage, keep=keep)
    return objects_of([found], caches_of(workspace).events)[0]


def stored_events(workspace: Workspace, event_ids: Sequence[int]) -> tuple[list[Event], set[int]]:
    """Return the events with these ids as `get_many` does, forgotten ones among them; and the ids of those.

    An ingest compares events with them; a forgotten one must not be given out. Erased ones are left out.
    """
    found = find(workspace, distinct(np.array(event_ids, np.int64)), None, refuse, keep=False, with_forgotten=True)
    events = objects_of([found], caches_of(workspace).events)[0]
    shown = {event.event_id for event in visible_copies(workspace, workspace.state(), events)}
    return events, {event.event_id for event in events} - shown


def stored_values(workspace: Workspace, event_ids: Sequence[int], columns: Sequence[str]) -> pa.Table:
    """Return some columns of the events with these ids, `event_id` among them, forgotten ones included.

    Erased events are left out.
    """
    ids = distinct(np.array(event_ids, np.int64))
    _, held, others, tail = _located(workspace, ids, None, refuse)
    opened = ((open_log(workspace, file, refuse), of_log) for file, of_log in held)
    found = [log.values(of_log, columns) for log, of_log in opened if log is not None]
    if tail is not None:
        found.append(tail.of_ids(others).select(columns))
    return pa.concat_tables(found or [NO_EVENTS.select(columns)])


def find(
    workspace: Workspace,
    ids: EventIds,
    view: Snapshot | None,
    on_damage: OnDamage,
    *,
    keep: bool,
    with_forgotten: bool = False,
) -> FoundEvents:
    """Find the events of a writer with some ids, which go up; `objects_of` makes events of what was found.

    With `keep` it takes those that the cache of events has, and that cache gets the others. Forgotten events are left
    out, but for `with_forgotten`.
    """
    caches = caches_of(workspace)
    state, held, others, tail = _located(workspace, ids, view, on_damage)
    if with_forgotten:
        state = replace(state, tombstones={})
    found = FoundEvents()
    for file, of_log in held:
        missing = of_log
        if keep:
            keys = caches.events.keys(workspace, file, state, of_log)
            cached = caches.events.get_many(keys)
            found.cached += [event for event in cached if event is not None]
            found.keys.update(zip(of_log.tolist(), keys, strict=True))
            missing = of_log[[event is None for event in cached]]
        log = open_log(workspace, file, on_damage) if len(missing) else None
        if log is not None:
            _find_in_log(found, workspace, log, state, missing, on_damage)
    if tail is not None:
        found.rows += visible_events(workspace, state, tail.of_ids(others)).to_batches()
    return found


def _located(
    workspace: Workspace, ids: EventIds, view: Snapshot | None, on_damage: OnDamage
) -> tuple[CatalogState, list[tuple[AddFile, EventIds]], EventIds, Tail | None]:
    """Return the state at one moment, the live logs with those of the ids that each holds, and the others.

    The tail that may hold the others is None where nothing is asked of it.
    """
    caches = caches_of(workspace)
    if view is None:
        report_earlier(workspace, on_damage)
    state = view.state if view else workspace.state()
    held, others = caches.live(workspace, state).by_log(ids)
    # Only now: most reads by id find everything in live logs, and need no look at the journals.
    if view is None and len(others):
        view = snapshot(workspace, on_damage, lambda waiting: _groups_of(waiting, others), is_for_few=True)
        # The snapshot has a state of its own, perhaps a newer one: what became live meanwhile has a log now.
        held, others = caches.live(workspace, view.state).by_log(ids)
    return view.state if view else state, held, others, view.tail if view is not None and len(others) else None


def _find_in_log(
    found: FoundEvents, workspace: Workspace, log: EventLog, state: CatalogState, ids: EventIds, on_damage: OnDamage
) -> None:
    """Find the events of a log with these ids that may be given out.

    Few events of a block are read by their copies, as far as there are any; others, and what has no whole copy, by
    decoding blocks. The events of a damaged block that have whole copies are not lost.
    """
    copied = log.copied_if_sparse(ids)
    found.copied += visible_copies(workspace, state, copied.events)
    found.copied_bytes += copied.nbytes
    if not len(copied.missing):
        return
    unread: list[Damage] = []
    found.rows += visible_rows(workspace, state, log.rows(copied.missing, unread.append))
    for damage in unread:
        within = copied.missing
        if damage.first_event_id is not None and damage.last_event_id is not None:
            within = within[(within >= damage.first_event_id) & (within <= damage.last_event_id)]
        saved = log.copied(within)
        found.copied += visible_copies(workspace, state, saved.events)
        found.copied_bytes += saved.nbytes
        if len(saved.missing):
            on_damage(damage)


def readable(workspace: Workspace, event_ids: EventIds, view: Snapshot, on_damage: OnDamage) -> npt.NDArray[np.bool_]:
    """Return which of some events can be read, shape (ids,), by the checksums of their blocks, which are not decoded.

    Events that wait in journals count as readable: what of those is damaged has no ids.
    """
    live = caches_of(workspace).live(workspace, view.state)
    holders = live.holders(event_ids)
    is_readable = np.ones(len(event_ids), np.bool_)
    for number in distinct(holders[holders >= 0]).tolist():
        here = holders == number
        log = open_log(workspace, live.files[number], on_damage)
        is_readable[here] = False if log is None else log.readable(event_ids[here], on_damage)
    return is_readable


def name_absent(workspace: Workspace, state: CatalogState, bounds: tuple[int, int], on_damage: OnDamage) -> None:
    """Report the live logs with events between two times, ms, both included, that are gone; only folders are listed.

    A log that is open can be read although its name is gone.
    """
    files = workspace.catalog.objects.files
    caches = caches_of(workspace)
    if files.copies is None:
        gone: Set[str] = caches.gone(workspace, state)
        # As a rule none: then nothing is said of any single log.
        if not gone:
            return
    opened = set(caches.logs)
    within = [
        file
        for file in state.files.values()
        if file.first_event_time_ms <= bounds[1]
        and file.last_event_time_ms >= bounds[0]
        and (workspace.log_place(file.path), file.sha256) not in opened
    ]
    if files.copies is not None:
        gone = files.absent(file.path for file in within)
    for file in within:
        if file.path in gone:
            # Whole: of a log that is read by ranges, nobody would look whether it is there.
            open_log(workspace, file, on_damage, whole=True)


def count_blocks(workspace: Workspace, event_ids: Sequence[int], view: Snapshot) -> int:
    """Return how many blocks of live logs hold events with these ids."""
    ids = distinct(np.asarray(event_ids, np.int64))
    live = caches_of(workspace).live(workspace, view.state)
    blocks = 0
    for file, of_log in live.by_log(ids)[0]:
        # Damage was reported when the events were read. Here it only makes a count smaller.
        log = open_log(workspace, file, lambda _: None)
        if log is not None:
            firsts = log.toc.blocks["first_event_id"].astype(np.int64)
            blocks += len(distinct(np.searchsorted(firsts, of_log, side="right")))
    return blocks


def tables_from(
    workspace: Workspace,
    first_event_id: int = 0,
    count: int | None = None,
    on_damage: OnDamage = refuse,
    view: Snapshot | None = None,
) -> Iterator[pa.Table]:
    """Yield up to `count` events from an id on, in id order, a few blocks in a table; journals are read last.

    With `view` the events of its logs, without its tail.
    """
    left = INT64_MAX if count is None else count
    if left < 1 or first_event_id > INT64_MAX:
        return

    def blocks(toc: TableOfContents, position: int) -> range:
        return range(toc.block_of(position) or 0, len(toc.blocks))

    position = max(first_event_id, 0)
    if view is None:
        tables = _walk(workspace, position, lambda _: True, blocks, on_damage)
    else:
        tables = _walk_logs(workspace, view.state, position, blocks, on_damage)
    for table in tables:
        chosen = table.slice(0, left)
        left -= chosen.num_rows
        if chosen.num_rows:
            yield chosen
        if left == 0:
            return


def tables_between(
    workspace: Workspace, start_ms: int, end_ms: int, on_damage: OnDamage = refuse
) -> Iterator[pa.Table]:
    """Yield the events that happened from `start_ms` up to, not with, `end_ms`, in id order.

    Logs are skipped by the times in the catalog, blocks by the times in the table of contents.
    """

    def overlaps(file: AddFile) -> bool:
        return file.first_event_time_ms < end_ms and file.last_event_time_ms >= start_ms

    def blocks(toc: TableOfContents, _: int) -> list[int]:
        return toc.blocks_between(start_ms, end_ms)

    for table in _walk(workspace, 0, overlaps, blocks, on_damage):
        times = table.column("event_time").cast(pa.int64())
        chosen = table.filter(pc.and_(pc.greater_equal(times, start_ms), pc.less(times, end_ms)))
        if chosen.num_rows:
            yield chosen


def tables_of_logs(
    workspace: Workspace,
    state: CatalogState,
    paths: Sequence[str],
    on_damage: OnDamage = refuse,
    choose: Callable[[AddFile, TableOfContents], Sequence[int]] = lambda _, toc: range(len(toc.blocks)),
) -> Iterator[pa.Table]:
    """Yield the events of some logs that are live in a state, a few blocks in a table; one that expired has none.

    `choose` returns which of the blocks of a log are read, by its table of contents.
    """
    for path in paths:
        log = open_log(workspace, state.files[path], on_damage) if path in state.files else None
        if log is not None:
            for table in log.tables(choose(state.files[path], log.toc), None, on_damage):
                yield visible_events(workspace, state, table)


def _walk(
    workspace: Workspace,
    position: int,
    is_wanted: Callable[[AddFile], bool],
    blocks: Callable[[TableOfContents, int], Sequence[int]],
    on_damage: OnDamage,
) -> Iterator[pa.Table]:
    """Yield tables from the live logs and waiting groups that may hold events from an id on, in the order of ids.

    A group's journals are read when it is its turn; when they are gone by then, its events are in a log.
    """
    for attempt in attempts(workspace):
        with attempt as moment:
            state, live = moment.state, caches_of(workspace).live(workspace, moment.state)
            parts: list[AddFile | Group] = [*live.files, *_groups_from(moment.waiting, position)]
            # Logs and groups are walked together: a group may wait longer than those behind it.
            parts.sort(key=lambda part: part.first_event_id)
            report_absent(workspace, moment, on_damage)
            for part in parts:
                if isinstance(part, Group):
                    table = _from(read_tail(workspace, [part], on_damage), position)
                    yield visible_events(workspace, state, table)
                    # Behind what was given: should a journal be gone, the next attempt goes on from here.
                    position = table.column("event_id")[-1].as_py() + 1 if table.num_rows else position
                elif part.last_event_id >= position:
                    log = open_log(workspace, part, on_damage) if is_wanted(part) else None
                    for table in log.tables(blocks(log.toc, position), None, on_damage) if log else ():
                        yield visible_events(workspace, state, _from(table, position))
                    # Also for a log that was left out: another attempt must not come back to it.
                    position = part.last_event_id + 1


def _walk_logs(
    workspace: Workspace,
    state: CatalogState,
    position: int,
    blocks: Callable[[TableOfContents, int], Sequence[int]],
    on_damage: OnDamage,
) -> Iterator[pa.Table]:
    """Yield tables from the logs of a state that may hold events from an id on, in the order of ids."""
    for file in caches_of(workspace).live(workspace, state).files:
        log = open_log(workspace, file, on_damage) if file.last_event_id >= position else None
        for table in log.tables(blocks(log.toc, position), None, on_damage) if log else ():
            yield visible_events(workspace, state, _from(table, position))


def _from(table: pa.Table, first_event_id: int) -> pa.Table:
    # Ids go up within a table, so a slice is enough, which copies nothing.
    return table.slice(int(np.searchsorted(numbers(one_chunk(table.column("event_id")), np.int64), first_event_id)))


def _groups_of(waiting: list[Group], event_ids: EventIds) -> list[Group]:
    """Return the groups that may hold events with these ids."""
    # How far a group reaches is unknown without reading it, so it may hold all ids up to the next group.
    firsts = np.array([group.first_event_id for group in waiting], np.int64)
    numbers = distinct(np.searchsorted(firsts, event_ids, side="right") - 1)
    return [waiting[number] for number in numbers.tolist() if number >= 0]


def _groups_from(waiting: list[Group], first_event_id: int) -> list[Group]:
    """Return the groups that may hold events from an id on."""
    # All that begin later, and the one before them, which may reach beyond the id.
    later = [group for group in waiting[1:] if group.first_event_id > first_event_id]
    return waiting[len(waiting) - len(later) - 1 :] if waiting else []
