"""Which events of a table readers may give out, by the tombstones of a catalog: a pure function on Arrow columns."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import filterfalse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog.transaction_pb2 import AddTombstone
from custody.errors import InvalidInputError


def check_tombstone(stone: AddTombstone) -> AddTombstone:
    """Return a tombstone that says which events it means.

    Raises:
        InvalidInputError: it has no id, an empty time range, or no condition: it would mean every event.
    """
    if len(stone.id) != 16:
        raise InvalidInputError(f"tombstone: expected an id of 16 bytes, got {len(stone.id)}.")
    if is_remnant(stone):
        return stone
    if not (stone.event_ids or stone.flowfile_uuids or stone.to_time_ms or stone.attributes):
        raise InvalidInputError("tombstone: expected event ids, FlowFile uuids, a time range or attributes, got none.")
    if stone.to_time_ms and stone.to_time_ms <= stone.from_time_ms:
        raise InvalidInputError(f"tombstone: expected a time after {stone.from_time_ms}, got {stone.to_time_ms}.")
    return stone


def is_remnant(stone: AddTombstone) -> bool:
    """Whether a tombstone only says what was erased already, and hides nothing."""
    return bool(stone.erased or stone.erased_groups)


def visible(tombstones: Iterable[AddTombstone], table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return which rows of a table with the event columns may be given out: booleans, shape (rows,), no nulls.

    Needs the columns event_id, event_time, flowfile_uuid, previous_attributes and updated_attributes, as far as the
    tombstones ask for them.
    """
    buried = pa.array(np.zeros(table.num_rows, np.bool_))
    for stone in tombstones:
        if not is_remnant(stone):
            buried = pc.or_(buried, _meant(stone, table))
    return pc.invert(buried)


def columns_needed(tombstones: Iterable[AddTombstone]) -> list[str]:
    """Return the columns that `visible` looks at, so that a reader decodes no others."""
    wanted: set[str] = set()
    for stone in filterfalse(is_remnant, tombstones):
        wanted |= {"event_id"} if stone.event_ids or stone.before_event_id else set()
        wanted |= {"flowfile_uuid"} if stone.flowfile_uuids else set()
        wanted |= {"event_time"} if stone.to_time_ms else set()
        wanted |= {"previous_attributes", "updated_attributes"} if stone.attributes else set()
    return sorted(wanted)


def may_mean(stone: AddTombstone, first_event_id: int, last_event_id: int, first_ms: int, last_ms: int) -> bool:
    """Whether a tombstone can mean an event of a file with these bounds (times in ms); False needs no reading."""
    if is_remnant(stone) or (stone.before_event_id and first_event_id >= stone.before_event_id):
        return False
    if stone.to_time_ms and not (first_ms < stone.to_time_ms and stone.from_time_ms <= last_ms):
        return False
    return not stone.event_ids or any(first_event_id <= event_id <= last_event_id for event_id in stone.event_ids)


def _meant(stone: AddTombstone, table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return the rows for which every condition of a tombstone holds."""
    conditions = []
    if stone.event_ids:
        conditions.append(pc.is_in(table.column("event_id"), pa.array(list(stone.event_ids), pa.int64())))
    if stone.before_event_id:
        conditions.append(pc.less(table.column("event_id"), pa.scalar(stone.before_event_id, pa.int64())))
    if stone.flowfile_uuids:
        conditions.append(pc.is_in(table.column("flowfile_uuid"), pa.array(list(stone.flowfile_uuids), pa.string())))
    if stone.to_time_ms:
        times = table.column("event_time").cast(pa.int64())
        conditions += [pc.greater_equal(times, stone.from_time_ms), pc.less(times, stone.to_time_ms)]
    for attribute in stone.attributes:
        before = _has(table.column("previous_attributes"), attribute.name, attribute.value)
        conditions.append(pc.or_(before, _has(table.column("updated_attributes"), attribute.name, attribute.value)))
    meant = conditions[0]
    for condition in conditions[1:]:
        meant = pc.and_(meant, condition)
    return pc.fill_null(meant, False)


def _has(maps: pa.ChunkedArray, name: str, value: str) -> pa.ChunkedArray:
    found = pc.map_lookup(maps.combine_chunks(), pa.scalar(name), "last")
    return pc.fill_null(pc.equal(found, value), False)
