"""The meaning of tombstones, conditions and holds: which rows of an Arrow table they match."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import filterfalse

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog.transaction_pb2 import AddHold, AddTombstone, Condition
from custody.errors import InvalidInputError

_ID_MAX = (1 << 63) - 1
"""Event ids are compared as signed 64-bit numbers."""


def check_tombstone(stone: AddTombstone) -> AddTombstone:
    """Return a tombstone that says which events it means.

    Raises:
        InvalidInputError: it has no id, an empty time range, or no condition: it would mean every event.
    """
    if len(stone.id) != 16:
        raise InvalidInputError(f"tombstone: expected an id of 16 bytes, got {len(stone.id)}.")
    if is_remnant(stone):
        return stone
    _check_condition("tombstone", stone)
    for part in stone.unless:
        # Here a bound of ids is enough: what is excepted may be everything that came before.
        _check_condition("tombstone: unless", part, is_bound_enough=True)
    return stone


def check_hold(hold: AddHold) -> AddHold:
    """Return a hold that has a name and says which events it means.

    Raises:
        InvalidInputError: it has no name, an empty time range, or no condition: it would mean every event.
    """
    if not hold.name:
        raise InvalidInputError("hold: expected a name, got none.")
    _check_condition(f"hold {hold.name}", hold.condition)
    return hold


def _check_condition(what: str, part: AddTombstone | Condition, *, is_bound_enough: bool = False) -> None:
    greatest = max([part.before_event_id, *part.event_ids])
    if greatest > _ID_MAX:
        raise InvalidInputError(f"{what}: expected event ids of at most {_ID_MAX}, got {greatest}.")
    is_bound = bool(is_bound_enough and part.before_event_id)
    # A condition without any limit would mean every event; one forgotten field must not forget everything.
    if not (
        part.event_ids or part.flowfile_uuids or part.to_time_ms or part.attributes or part.event_types or is_bound
    ):
        raise InvalidInputError(f"{what}: expected event ids, FlowFile uuids, a time range or attributes, got none.")
    if part.to_time_ms and part.to_time_ms <= part.from_time_ms:
        raise InvalidInputError(f"{what}: expected a time after {part.from_time_ms}, got {part.to_time_ms}.")


def is_remnant(stone: AddTombstone | Condition) -> bool:
    """Whether a tombstone only says what was erased already, and hides nothing."""
    return isinstance(stone, AddTombstone) and bool(stone.erased or stone.erased_groups)


def visible(tombstones: Iterable[AddTombstone], table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return which rows of a table with the event columns may be given out: booleans, shape (rows,), no nulls.

    Needs the columns that `columns_needed` names.
    """
    return pc.invert(matching_rows([stone for stone in tombstones if not is_remnant(stone)], table))


def matching_rows(parts: Iterable[AddTombstone | Condition], table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return which rows of a table at least one of some tombstones or conditions means: booleans, shape (rows,)."""
    mask = pa.array(np.zeros(table.num_rows, np.bool_))
    for part in parts:
        mask = pc.or_(mask, _meant(part, table))
    return mask


def columns_needed(parts: Iterable[AddTombstone | Condition]) -> list[str]:
    """Return the columns that `visible` or `matching_rows` looks at, so that a reader decodes no others."""
    columns: set[str] = set()
    for stone in filterfalse(is_remnant, parts):
        columns |= {"event_id"} if stone.event_ids or stone.before_event_id else set()
        columns |= {"flowfile_uuid"} if stone.flowfile_uuids else set()
        columns |= {"event_time"} if stone.to_time_ms else set()
        columns |= {"event_type"} if stone.event_types else set()
        columns |= {"previous_attributes", "updated_attributes"} if stone.attributes else set()
        columns.update(columns_needed(stone.unless) if isinstance(stone, AddTombstone) else ())
    return sorted(columns)


def may_match(
    stone: AddTombstone | Condition, first_event_id: int, last_event_id: int, first_ms: int, last_ms: int
) -> bool:
    """Whether a tombstone can mean an event of a file with these bounds (times in ms); False needs no reading."""
    if is_remnant(stone) or (stone.before_event_id and first_event_id >= stone.before_event_id):
        return False
    if stone.to_time_ms and not (first_ms < stone.to_time_ms and stone.from_time_ms <= last_ms):
        return False
    # Only bounds are looked at, so True may be wrong and costs a read; False has to be right.
    return not stone.event_ids or any(first_event_id <= event_id <= last_event_id for event_id in stone.event_ids)


def _meant(stone: AddTombstone | Condition, table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return the rows for which every condition holds that is set, and none of what is excepted."""
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
    if stone.event_types:
        conditions.append(pc.is_in(table.column("event_type"), pa.array(list(stone.event_types), pa.string())))
    for attribute in stone.attributes:
        before = _has(table.column("previous_attributes"), attribute.name, attribute.value)
        conditions.append(pc.or_(before, _has(table.column("updated_attributes"), attribute.name, attribute.value)))
    mask = conditions[0]
    for condition in conditions[1:]:
        mask = pc.and_(mask, condition)
    # A null compares as null, and a null means neither: an event without the value is not meant.
    mask = pc.fill_null(mask, False)
    if isinstance(stone, AddTombstone) and stone.unless:
        mask = pc.and_not(mask, matching_rows(stone.unless, table))
    return mask


def _has(maps: pa.ChunkedArray, name: str, value: str) -> pa.ChunkedArray:
    # The last value counts, as in the index and in Python, when a map has a key twice.
    values = pc.map_lookup(maps.combine_chunks(), pa.scalar(name), "last")
    return pc.fill_null(pc.equal(values, value), False)
