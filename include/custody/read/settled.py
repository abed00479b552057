"""How far a writer's events are settled: below a bound no event can appear any more that is not there now.

Ids are given out before events are written, and threads write at the same time: of the newest events one may be there
while one before it is still on its way. A reader that goes on from a cursor (an export, a follower) must not pass such
a gap. Behind a sealed group nothing can come into it; in an open one only the ids without a gap from its first one on
are settled, and only once they are durable: a reader sees a record before its writer has synced it.
"""

from __future__ import annotations

import errno

import numpy as np

from custody.errors import StorageError
from custody.eventlog import OnDamage
from custody.eventlog.blocks import numbers, one_chunk
from custody.journal import Group
from custody.read.cache import read_tail
from custody.workspace import Workspace, attempts


def settled_bound(workspace: Workspace, on_damage: OnDamage, known: int = 0) -> int:
    """Return the event id below which a writer's events are settled; groups that wait are read for that.

    `known` is a bound that was returned before: groups that end before it are not read, and nothing is synced again.

    Durability: on return the events below the bound survive power loss, whatever the sync policy of their journal.

    Raises:
        StorageError: a container is missing: any id may lie there.
        EarlierStateError: the catalog is of an earlier moment than one that was seen.
        ConflictError: journals change too fast to be read; try again.
        CorruptionError: the catalog is damaged, or a journal is and `on_damage` does not pass it over.
    """
    for attempt in attempts(workspace):
        with attempt as moment:
            for missing in workspace.missing():
                raise StorageError(f"{missing}. Nobody can go on behind what may lie there: bring it back first.")
            workspace.require_newest()
            # Listed once more: a journal that gets another name while its folder is listed may be in no listing.
            if workspace.groups() != moment.groups:
                raise StorageError(errno.ENOENT, "journals moved while they were listed")
            bound = max(moment.state.next_event_id, known)
            waiting = sorted(moment.waiting, key=lambda item: item.first_event_id)
            for number, group in enumerate(waiting):
                is_known = number + 1 < len(waiting) and waiting[number + 1].first_event_id <= known
                if is_known and group.is_sealed:
                    continue
                end = _settled_end(workspace, group, on_damage, known)
                if not group.is_sealed:
                    return end
                bound = max(bound, end)
            return bound
    raise AssertionError("every attempt ended before its look was complete")


def _settled_end(workspace: Workspace, group: Group, on_damage: OnDamage, known: int) -> int:
    """Return one more than the last settled id of a group that waits."""
    ids = numbers(one_chunk(read_tail(workspace, [group], on_damage).column("event_id")), np.int64)
    if group.is_sealed:
        return int(ids[-1]) + 1 if len(ids) else group.first_event_id
    end = group.first_event_id + _run_length(ids, group.first_event_id)
    if end > max(known, group.first_event_id):
        _settle(workspace, group)
    return end


def _run_length(ids: np.typing.NDArray[np.int64], first: int) -> int:
    """Return how many of some ascending ids follow each other without a gap from `first` on."""
    gaps = np.flatnonzero(ids != first + np.arange(len(ids)))
    return int(gaps[0]) if len(gaps) else len(ids)


def _settle(workspace: Workspace, group: Group) -> None:
    """Make durable what was read of a group's open journals.

    If power went before the writer's own sync, recovery would cut the record, and its id might be given to another
    event, which a cursor has passed already. A sealed journal was synced before it got its name.
    """
    for path in group.open:
        workspace.fs.sync_file(path)
