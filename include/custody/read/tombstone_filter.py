"""Tombstone filter: keeps events that were forgotten, or that the asker may not see, out of every answer.

Events that were forgotten lie on disk until a compaction erases them. `visible_events` filters tables of events as they
are read. An index knows only ids, so `hidden_ids` finds the ids of such events in advance, for searches and SQL.

What an asker may not see is the `visibility` of the workspace through which is read. For that reader such an event is
as one that was forgotten, and values of attributes are masked: this is the only place that looks at it. Events are
chosen by their own values, and masked after that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, AddTombstone, CatalogState, columns_needed, may_match, visible
from custody.eventlog import Damage, EventLog, OnDamage
from custody.format.number_sets import distinct
from custody.model import EVENT_SCHEMA, Event, to_batch
from custody.read.cache import EventIds, caches_of, hiding, open_log
from custody.workspace import Workspace

if TYPE_CHECKING:
    from custody.model.visibility import Visibility

_NONE = np.empty(0, np.int64)


def seen_events(workspace: Workspace, table: pa.Table) -> pa.Table:
    """Return the events of a table that the asker may see, forgotten ones included; it has all columns of an event.

    Nothing is masked: it is for the tail, of which `visible_events` gives some out.
    """
    rules = _rules(workspace)
    return table if rules is None or not table.num_rows else table.filter(rules.rows(table))


def visible_events(workspace: Workspace, state: CatalogState, table: pa.Table) -> pa.Table:
    """Return the events of a table that may be given out, as they may be; it has all columns of an event."""
    seen = seen_events(workspace, table)
    if state.tombstones and seen.num_rows:
        seen = seen.filter(visible(state.tombstones.values(), seen))
    return seen if workspace.visibility is None else workspace.visibility.mask.rows(seen)


def visible_rows(workspace: Workspace, state: CatalogState, pieces: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """Return the same of events in pieces."""
    # A table of many pieces takes longer to make than they take to read.
    if not pieces or (not state.tombstones and workspace.visibility is None):
        return pieces
    batches: list[pa.RecordBatch] = visible_events(workspace, state, pa.Table.from_batches(pieces)).to_batches()
    return batches


def visible_copies(workspace: Workspace, state: CatalogState, events: list[Event]) -> list[Event]:
    """Return those of some events that may be given out, as they may be."""
    shown = _chosen(workspace, state, events)
    return shown if workspace.visibility is None else list(workspace.visibility.mask.events(shown))


def _chosen(workspace: Workspace, state: CatalogState, events: list[Event]) -> list[Event]:
    if (not state.tombstones and _rules(workspace) is None) or not events:
        return events
    batch = to_batch(events, 0)
    ids = pa.array([event.event_id for event in events], pa.int64())
    table = pa.Table.from_batches([batch]).set_column(0, EVENT_SCHEMA.field(0), ids)
    is_visible = _given_out(workspace, state.tombstones.values(), table).to_pylist()
    return [event for event, is_shown in zip(events, is_visible, strict=True) if is_shown]


def hidden_ids(workspace: Workspace, state: CatalogState, on_damage: OnDamage) -> EventIds:
    """Return the ids of the events of the live logs that must not be given out, sorted.

    Where the columns that a tombstone needs cannot be read, all ids that it may hide are among them: no answer gives
    out, or counts, what may be forgotten. A log is read once for the same tombstones, unless a part of it is damaged.
    """
    visibility = _rules(workspace)
    if not state.tombstones and visibility is None:
        return _NONE
    stones = [state.tombstones[name] for name in sorted(state.tombstones)]
    caches = caches_of(workspace)
    names = hiding(workspace, state)
    parts = [_NONE]
    for file in caches.live(workspace, state).files:
        bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
        affecting = [stone for stone in stones if may_match(stone, *bounds)]
        if not affecting and visibility is None:
            continue
        # The tombstones are part of the key: another one changes the answer. A log with one digest never changes.
        key = ("hidden", workspace.paths.home, file.path, file.sha256, names)
        ids = caches.decoded.get(key)
        if not isinstance(ids, np.ndarray):
            ids, is_whole = _hidden_in(workspace, file, affecting, on_damage)
            # What was computed beside damage is not kept: the file may be repaired before the next search.
            if is_whole:
                # An empty array costs something, too: the cache is bounded by costs alone.
                caches.decoded.put(key, ids, ids.nbytes + 100)
        parts.append(ids)
    return np.sort(np.concatenate(parts))


def _hidden_in(
    workspace: Workspace, file: AddFile, stones: Sequence[AddTombstone], on_damage: OnDamage
) -> tuple[EventIds, bool]:
    """Return the ids of one log that tombstones hide, or may hide, and whether all of it could be read.

    Only the columns that the tombstones need are decoded.
    """
    unread: list[Damage] = []

    def pass_over(damage: Damage) -> None:
        if damage.is_doubt:
            return  # nothing that these columns need
        on_damage(damage)
        unread.append(damage)

    log = open_log(workspace, file, pass_over)
    parts = [_NONE]
    if log is not None:
        rules = _rules(workspace)
        seen = [] if rules is None else rules.columns
        columns = sorted({"event_id", *columns_needed(stones), *seen})
        for table in log.tables(range(len(log.toc.blocks)), columns, pass_over):
            hidden = table.filter(pc.invert(_given_out(workspace, stones, table)))
            parts.append(np.asarray(hidden.column("event_id").combine_chunks()))
    # An event that cannot be read may be one that was forgotten. To give out less than is there is a notice; to give
    # out what was forgotten would be a breach.
    for damage in unread:
        bounds = _bounds(damage, file, log)
        parts += [_possible_ids(stone, *bounds[:2]) for stone in stones if may_match(stone, *bounds)]
        if _rules(workspace) is not None:
            parts.append(np.arange(bounds[0], bounds[1] + 1))
    return distinct(np.concatenate(parts).astype(np.int64)), log is not None and not unread


def given_out(
    stones: Iterable[AddTombstone], rules: Visibility | None, table: pa.Table
) -> pa.ChunkedArray | pa.BooleanArray:
    """Return which rows of a table may be given out: booleans, shape (rows,), no nulls.

    Needs the columns of the tombstones (`columns_needed`) and of the rules, which hide events from the asker.
    """
    rows = visible(stones, table)
    return rows if rules is None else pc.and_(rows, rules.rows(table))


def _given_out(
    workspace: Workspace, stones: Iterable[AddTombstone], table: pa.Table
) -> pa.ChunkedArray | pa.BooleanArray:
    return given_out(stones, _rules(workspace), table)


def _rules(workspace: Workspace) -> Visibility | None:
    """Return what hides events from the asker; None where nothing does, whatever is masked."""
    visibility = workspace.visibility
    return visibility if visibility is not None and visibility.hides_events else None


def _bounds(damage: Damage, file: AddFile, log: EventLog | None) -> tuple[int, int, int, int]:
    """Return the first and last id, and the first and last time in ms, of what cannot be read of a log."""
    # Damage that names no block counts for the whole log.
    if log is None or damage.block is None or damage.first_event_id is None or damage.last_event_id is None:
        return file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms
    block = log.toc.blocks[damage.block]
    times = int(block["first_event_time"]), int(block["last_event_time"])
    return damage.first_event_id, damage.last_event_id, *times


def _possible_ids(stone: AddTombstone, first: int, last: int) -> EventIds:
    """Return the ids from `first` to `last` that a tombstone may hide, whatever their events say."""
    if stone.event_ids:
        ids = np.array(stone.event_ids, np.int64)
        possible = ids[(ids >= first) & (ids <= last)]
    else:
        possible = np.arange(first, last + 1)
    return possible[possible < stone.before_event_id] if stone.before_event_id else possible
