"""The same events for peers that take them one by one."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.eventlog.bulk import tables
from benchmarks.eventlog.measuring import Task
from custody.model import Event, to_events

_TIMES = ("event_time", "flowfile_entry_date", "lineage_start_date")


def batches(task: Task) -> Iterator[list[Event]]:
    """Yield all events, as many at once as a tile has."""
    for table in tables(task.events, task.base):
        yield to_events(table)


def recent_batches(task: Task) -> Iterator[list[Event]]:
    """Yield all events with their times moved so that the last ones happen now: NiFi lets old events expire."""
    tile_ms = None
    tiles = -(-task.events // task.base)
    now_ms = time.time_ns() // 1_000_000
    for table in tables(task.events, task.base):
        if tile_ms is None:
            times = pc.min_max(table["event_time"].cast(pa.int64())).as_py()
            tile_ms = times["max"] - times["min"] + 1
            move_ms = now_ms - times["min"] - tiles * tile_ms
        yield to_events(_moved(table, move_ms))


def _moved(table: pa.Table, by_ms: int) -> pa.Table:
    for name in _TIMES:
        at, kind = table.schema.get_field_index(name), table.schema.field(name)
        table = table.set_column(at, kind, pc.add(table[name].cast(pa.int64()), by_ms).cast(kind.type))
    return table
