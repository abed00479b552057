"""Events that tombstones bury: they lie on disk until a compaction erases them, and are not given out any more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import AddFile, AddTombstone, CatalogState, columns_needed, may_mean, visible
from custody.eventlog import OnDamage
from custody.repository.caches import caches_of
from custody.repository.opening import open_log
from custody.rollover import Workspace

EventIds = npt.NDArray[np.int64]
_NONE = np.empty(0, np.int64)


def shown(state: CatalogState, table: pa.Table) -> pa.Table:
    """Return the events of a table that may be given out; it has all columns of an event."""
    if not state.tombstones or not table.num_rows:
        return table
    return table.filter(visible(state.tombstones.values(), table))


def buried_ids(workspace: Workspace, state: CatalogState, on_damage: OnDamage) -> EventIds:
    """Return the ids of the buried events of the live logs, sorted; a log is looked at once for the same tombstones."""
    if not state.tombstones:
        return _NONE
    stones = [state.tombstones[name] for name in sorted(state.tombstones)]
    caches = caches_of(workspace)
    names = tuple(sorted(state.tombstones))
    parts = [_NONE]
    for file in caches.live(workspace, state).files:
        bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
        meant = [stone for stone in stones if may_mean(stone, *bounds)]
        if not meant:
            continue
        key = ("buried", workspace.paths.home, file.path, file.sha256, names)
        found = caches.decoded.get(key)
        if not isinstance(found, np.ndarray):
            found = _buried_in(workspace, file, meant, on_damage)
            caches.decoded.put(key, found, found.nbytes + 100)
        parts.append(found)
    return np.sort(np.concatenate(parts))


def _buried_in(workspace: Workspace, file: AddFile, stones: Sequence[AddTombstone], on_damage: OnDamage) -> EventIds:
    """Return the ids of one log that tombstones mean; only the columns that they ask for are decoded."""
    log = open_log(workspace, file, on_damage)
    if log is None:
        return _NONE
    columns = sorted({"event_id", *columns_needed(stones)})
    parts = [_NONE]
    for table in log.tables(range(len(log.toc.blocks)), columns, on_damage):
        buried = table.filter(pc.invert(visible(stones, table)))
        parts.append(np.asarray(buried.column("event_id").combine_chunks()))
    return np.concatenate(parts).astype(np.int64)
