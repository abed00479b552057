"""Events that arrive as columns: converted to the journal's schema and validated in bulk, not event by event."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import InvalidInputError
from custody.model.columns import EVENT_SCHEMA, to_present
from custody.model.event import Event, EventType
from custody.model.event_objects import to_events
from custody.model.validation import (
    INT64_MAX,
    KNOWN_TYPES,
    NEED_RELATIVES,
    NEED_TRANSIT_URI,
    TEXTS_NEEDED,
    TIME_MS_MAX,
    Severity,
    check_event,
)

_NEEDED = [field.name for field in msgspec.structs.fields(Event) if field.required]
_SCHEMA = EVENT_SCHEMA.remove(0)
_TYPES = {field.name: field.type for field in _SCHEMA}
_NOTHING = "Nothing was stored."
_RELATIVES = ("parent_uuids", "child_uuids")
_CLAIMS = ("content_claim", "previous_content_claim")
_CLAIM_NUMBERS = ("offset", "size")
_NESTED = (*_RELATIVES, "previous_attributes", "updated_attributes")
_ELEMENTS_MAX = 4096
_ELEMENTS_A_ROW = 64
"""Of more elements for each row, most are those of other rows, and are left alone."""
_SIZES = ("file_size", "previous_file_size", "source_ordinal")
_TIMES = ("event_time", "flowfile_entry_date", "lineage_start_date")
_NOT_NULL = [field.name for field in _SCHEMA if not field.nullable]
_BOUNDS = {
    **dict.fromkeys(_SIZES, (0, INT64_MAX)),
    **dict.fromkeys(_TIMES, (0, TIME_MS_MAX)),
    "event_duration": (-1, INT64_MAX),
}
"""The least and the greatest value of a column."""


def require_valid_columns(events: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return events as one batch of EVENT_SCHEMA without `event_id`; columns that say nothing may be left out.

    Times are timestamps, or whole numbers of milliseconds. The rules are those of `check_event`.

    Raises:
        InvalidInputError: a column is unknown or missing, has a type that does not fit, or holds a value that an event
            must not have; the message names the column and the first row.
    """
    whole = _converted(events)
    if _is_right(whole):
        return whole
    for name, expected, wrong in _wrong(whole):
        row = pc.index(wrong, pa.scalar(value=True)).as_py()
        if row >= 0:
            raise InvalidInputError(f"column {name}, row {row}: expected {expected}. {_NOTHING}")
    return whole


def valid_events(events: pa.Table | pa.RecordBatch) -> list[Event]:
    """Return the events of columns as objects: for a few, of which a look at each is quicker than one at each column.

    Raises:
        InvalidInputError: as `require_valid_columns`.
    """
    batch = _as_they_are(events)
    few = None if batch is None else _good_events(batch)
    if few is None:
        # The columns tell which value is wrong.
        few = to_events(require_valid_columns(events))
    return few


def _as_they_are(events: pa.Table | pa.RecordBatch) -> pa.RecordBatch | None:
    """Return events as one batch of columns of the schema, some of which may be left out; None where it takes more."""
    if not _FITTING.has(events.schema):
        return None
    if isinstance(events, pa.RecordBatch):
        return _validated(events)
    batches = events.to_batches()
    return _validated(batches[0]) if len(batches) == 1 else None


class _FittingSchema:
    """Knows which schemas are those of events, and keeps the last one: a producer sends the same each time."""

    def __init__(self) -> None:
        self._last = _SCHEMA

    def has(self, schema: pa.Schema) -> bool:
        """Whether all columns are of an event, as they are in a journal, and none is missing that an event needs."""
        if schema.equals(self._last):
            return True
        names = set(schema.names)
        # A column that is left out gets no values made up: events have what is absent by themselves.
        is_fitting = (
            len(names) == len(schema)
            and names.issuperset(_NEEDED)
            and all(_TYPES.get(field.name) == field.type for field in schema)
        )
        if is_fitting:
            self._last = schema
        return is_fitting


_FITTING = _FittingSchema()


def _good_events(batch: pa.RecordBatch) -> list[Event] | None:
    """Return the events of a batch; None if one of them has an error."""
    try:
        few = to_events(batch)
    except msgspec.ValidationError:
        return None  # a null where there must be none
    problems = (problem for event in few for problem in check_event(event))
    return None if any(problem.severity is Severity.ERROR for problem in problems) else few


def without_bad_rows(events: pa.Table | pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, str]]:
    """Return the good events as `require_valid_columns` does, and of each bad row what was expected where.

    Raises:
        InvalidInputError: a column is unknown or missing, or has a type that does not fit.
    """
    whole = _converted(events)
    bad: dict[int, str] = {}
    if _is_right(whole):
        return whole, bad
    for name, expected, wrong in _wrong(whole):
        for row in pc.indices_nonzero(pc.fill_null(wrong, fill_value=False)).to_pylist():
            bad.setdefault(row, f"column {name}: expected {expected}")
    if not bad:
        return whole, bad
    is_good = pc.invert(pc.is_in(pa.array(range(whole.num_rows)), value_set=pa.array(bad, pa.int64())))
    return whole.filter(is_good), dict(sorted(bad.items()))


def warned_rows(batch: pa.RecordBatch, *, relationship_exported: bool = True) -> npt.NDArray[np.bool_]:
    """Return which rows of good events earn a warning by `check_event`, shape (events,)."""
    kinds = batch.column("event_type").dictionary_encode()  # a batch has a few of them
    codes = kinds.indices.to_numpy(zero_copy_only=False)

    def are(expected: Collection[str]) -> npt.NDArray[np.bool_]:
        of_kinds = np.array([kind in expected for kind in kinds.dictionary.to_pylist()], np.bool_)
        of_rows: npt.NDArray[np.bool_] = of_kinds[codes]
        return of_rows

    warned = ~are(KNOWN_TYPES)
    lacks: list[tuple[Collection[str], Callable[[], npt.NDArray[np.bool_]]]] = [
        (NEED_TRANSIT_URI, lambda: _is_empty(batch.column("transit_uri"))),
        (NEED_RELATIVES, lambda: ~(_has_elements(batch, "parent_uuids") | _has_elements(batch, "child_uuids"))),
        ({EventType.ADDINFO}, lambda: _is_empty(batch.column("alternate_identifier_uri"))),
    ]
    if relationship_exported:
        lacks.append(({EventType.ROUTE}, lambda: _is_empty(batch.column("relationship"))))
    for expected, is_lacking in lacks:
        is_concerned = are(expected)
        if is_concerned.any():
            warned |= is_concerned & is_lacking()
    return warned


def _has_elements(batch: pa.RecordBatch, name: str) -> npt.NDArray[np.bool_]:
    rows: npt.NDArray[np.bool_] = np.diff(batch.column(name).offsets.to_numpy()) > 0
    return rows


def _is_empty(texts: pa.Array) -> npt.NDArray[np.bool_]:
    """Return which texts are null or have no character."""
    is_empty = pc.fill_null(pc.equal(pc.binary_length(texts), 0), fill_value=True)
    rows: npt.NDArray[np.bool_] = is_empty.to_numpy(zero_copy_only=False)
    return rows


def _converted(events: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Return events in the columns of the schema; what their values are is not looked at."""
    if isinstance(events, pa.RecordBatch) and events.schema.equals(_SCHEMA):
        return _validated(events)
    table = pa.Table.from_batches([events]) if isinstance(events, pa.RecordBatch) else events
    names = table.schema.names
    unknown = [name for name in names if name not in _TYPES]
    if unknown or len(set(names)) < len(names):
        raise InvalidInputError(
            f"columns: expected each at most once out of {', '.join(_SCHEMA.names)}, "
            f"got {', '.join(unknown or names)}. {_NOTHING}"
        )
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise InvalidInputError(f"columns: expected {', '.join(_NEEDED)}, {', '.join(missing)} missing. {_NOTHING}")
    for name in names:
        kind = table.schema.field(name).type
        if not _fits(kind, _TYPES[name]):
            raise InvalidInputError(f"column {name}: expected {_TYPES[name]}, got {kind}. {_NOTHING}")
    try:
        return _validated(_in_schema(table))
    except (pa.ArrowException, ValueError) as error:
        raise _no_values(error) from error


def _validated(batch: pa.RecordBatch) -> pa.RecordBatch:
    # Foreign columns may hold texts that are no UTF-8 and offsets that lead astray; later steps read the buffers as
    # they are.
    try:
        if not _is_small_part(batch):
            batch.validate(full=True)
            return batch
        batch.validate()
        for column in batch.columns:
            _validate_part(column)
    except (pa.ArrowException, ValueError) as error:
        raise _no_values(error) from error
    return batch


def _is_small_part(batch: pa.RecordBatch) -> bool:
    """Whether a batch is a few rows of many: Arrow looks at all elements of a list, also at those of other rows."""
    places = (batch.schema.get_field_index(name) for name in _NESTED)
    held = sum(len(batch.column(place).values) for place in places if place >= 0)
    return bool(held > _ELEMENTS_MAX + _ELEMENTS_A_ROW * batch.num_rows)


def _validate_part(array: pa.Array) -> None:
    """Look at all that a slice of a column shows, whose buffers are known to be long enough; raises as `validate`."""
    kind = array.type
    if pa.types.is_struct(kind):
        array.validate()
        for number in range(kind.num_fields):
            _validate_part(array.field(number))
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        offsets = array.offsets.to_numpy()
        steps = np.diff(offsets)
        if len(array) and (offsets[0] < 0 or offsets[-1] > len(array.values) or (steps < 0).any()):
            raise ValueError(f"offsets of a {kind} that are not in order, or beyond its values")
        first, count = (int(offsets[0]), int(steps.sum())) if len(array) else (0, 0)
        if pa.types.is_list(kind):
            _validate_part(array.values.slice(first, count))
            return
        names = array.keys.slice(first, count)
        if names.null_count:
            raise ValueError("a map with a key that is null")
        _validate_part(names)
        _validate_part(array.items.slice(first, count))
    else:
        array.validate(full=True)


def _no_values(error: Exception) -> InvalidInputError:
    return InvalidInputError(f"columns: expected values of the event schema, got {error}. {_NOTHING}")


def _in_schema(table: pa.Table) -> pa.RecordBatch:
    """Return a table with fitting columns as one batch of the schema."""
    batches = to_present(table, _SCHEMA.names).combine_chunks().to_batches()
    # A table without rows has no batch.
    batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema=_SCHEMA)
    return pa.RecordBatch.from_arrays(batch.columns, schema=_SCHEMA)


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column may be cast: text to text, numbers to numbers, whole numbers of milliseconds to times."""
    if given == wanted or pa.types.is_null(given):
        return True
    if pa.types.is_dictionary(given):
        return _fits(given.value_type, wanted)
    if pa.types.is_string(wanted):
        return bool(pa.types.is_large_string(given) or pa.types.is_string_view(given))
    if pa.types.is_timestamp(wanted):
        return given == pa.int64() or (pa.types.is_timestamp(given) and given.tz is not None)
    if pa.types.is_integer(wanted):
        return bool(pa.types.is_integer(given))
    if pa.types.is_list(wanted):
        is_list = pa.types.is_list(given) or pa.types.is_large_list(given)
        return is_list and _fits(given.value_type, wanted.value_type)
    if pa.types.is_map(wanted):
        is_map = bool(pa.types.is_map(given))
        return is_map and _fits(given.key_type, pa.string()) and _fits(given.item_type, pa.string())
    return bool(pa.types.is_struct(wanted) and pa.types.is_struct(given))


def _is_right(batch: pa.RecordBatch) -> bool:
    """Whether no value breaks a rule, from counts and extremes alone; `_wrong` finds out which one does."""
    if not batch.num_rows:
        return True
    columns = dict(zip(_SCHEMA.names, batch.columns, strict=True))
    for name in _NOT_NULL:
        # Of a list's values all are looked at, those too that a slice does not show: `_wrong` knows better.
        if columns[name].null_count or (name in _RELATIVES and columns[name].values.null_count):
            return False
    if any(not _shortest(columns[name]) for name in TEXTS_NEEDED):
        return False
    if not all(_is_within(columns[name], *bounds) for name, bounds in _BOUNDS.items()):
        return False
    claims = [claim for claim in map(columns.__getitem__, _CLAIMS) if claim.null_count < len(claim)]
    numbers = [pc.struct_field(claim, part) for claim in claims for part in _CLAIM_NUMBERS]
    return all(_is_within(column, 0, INT64_MAX) for column in numbers)


def _shortest(texts: pa.StringArray) -> int:
    """Return the length in bytes of the shortest of some texts, at least one, none of them null."""
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]
    return int(np.diff(offsets).min())


def _is_within(numbers: pa.Array, least: int, most: int) -> bool:
    """Whether all numbers, or times, lie between two bounds; nulls do."""
    if numbers.null_count == len(numbers):
        return True
    if numbers.null_count:
        extremes = pc.min_max(numbers.view(pa.int64()))
        low, high = extremes["min"].as_py(), extremes["max"].as_py()
    else:
        values = np.frombuffer(numbers.buffers()[1], np.int64)[numbers.offset : numbers.offset + len(numbers)]
        low, high = int(values.min()), int(values.max())
    return bool(least <= low and high <= most)


def _wrong(batch: pa.RecordBatch) -> Iterator[tuple[str, str, pa.Array]]:
    """Yield (column, what was expected, which rows break that), each array of shape (events,)."""
    for field in _SCHEMA:
        column = batch.column(field.name)
        # Nulls come first: the comparisons below give null for them, which would count as right.
        if not field.nullable and column.null_count:
            yield field.name, "a value", column.is_null()
        if pa.types.is_list(field.type) and column.values.null_count:
            # The values of a list column are flat: each null is traced back to its row.
            parents = pc.list_parent_indices(column).filter(pc.list_flatten(column).is_null())
            yield field.name, "no null in a list", pc.is_in(pa.array(range(len(column))), parents.cast(pa.int64()))
    for name in TEXTS_NEEDED:
        yield name, "text, got an empty string", pc.equal(pc.binary_length(batch.column(name)), 0)
    for name in _SIZES:
        yield name, "0 to 2^63-1", pc.less(batch.column(name), 0)
    yield "event_duration", "-1 (unset) or more", pc.less(batch.column("event_duration"), -1)
    for name in _TIMES:
        value = batch.column(name).cast(pa.int64())
        wrong = pc.or_(pc.less(value, 0), pc.greater(value, TIME_MS_MAX))
        yield name, "ms since the epoch before the year 10000", wrong
    for name in _CLAIMS:
        claim = batch.column(name)
        for part in _CLAIM_NUMBERS:
            yield name, f"an {part} from 0 to {INT64_MAX}", pc.less(pc.struct_field(claim, part), 0)
