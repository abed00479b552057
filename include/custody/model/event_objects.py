"""Columns become events: the rows of a table or batch as `Event` objects, made column by column.

Arrow makes the Python values of a column in one go. Lists and maps are cut from the flat columns of their elements:
value by value, they take five times as long. Then one call makes each event. Nothing is checked again, as a column has
only values of its type; what an event must have and a column lacks is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice, repeat
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from custody.model.columns import EVENT_SCHEMA
from custody.model.event import ContentClaim, Event

_FIELDS = msgspec.structs.fields(Event)
_SHARED_KEYS_MIN = 256
"""From so many names of attributes on, equal ones become one text: it is quicker to make, and takes less memory."""


def to_events(data: pa.Table | pa.RecordBatch) -> list[Event]:
    """Return the rows of a table or batch as events, in their order; columns it lacks are absent values.

    Raises:
        msgspec.ValidationError: a value is absent that every event has.
    """
    held = dict(zip(data.schema.names, data.columns, strict=True))
    rows = data.num_rows
    # By place, without a frame of Python for each: named, 38 values take thrice as long.
    return list(map(Event, *(_values(field, held.get(field.name), rows) for field in _FIELDS))) if rows else []


def _values(field: msgspec.structs.FieldInfo, column: pa.Array | pa.ChunkedArray | None, rows: int) -> Iterable[Any]:
    """Return the values of one column, or as many times what an event has without it."""
    if column is None or column.null_count == rows:
        # A column of nothing but nulls says nothing: in many blocks a third of all columns.
        if field.default_factory is not msgspec.NODEFAULT:
            return (field.default_factory() for _ in range(rows))
        if field.default is msgspec.NODEFAULT:
            raise msgspec.ValidationError(f"Object missing required field `{field.name}`")
        return repeat(field.default, rows)
    if column.null_count and field.name in _NEVER_NULL:
        raise _null(field.name)
    make = _MAKERS.get(field.name)
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if make is None:
        values: list[Any] = column.to_pylist()
        return values
    return make(chunks[0]) if len(chunks) == 1 else [value for chunk in chunks for value in make(chunk)]


def _times(array: pa.Array) -> list[Any]:
    # Of the same bits: for a few rows a cast takes longer than all else.
    values: list[Any] = array.view(pa.int64()).to_pylist()
    return values


def _attributes(array: pa.MapArray) -> list[Any]:
    first, lengths = _bounds(array)
    names = array.keys.slice(first, sum(lengths))
    if names.null_count:
        raise _null("a name of an attribute")
    pairs = zip(_names(names), array.items.slice(first, sum(lengths)).to_pylist(), strict=True)
    return list(map(dict, map(islice, repeat(pairs), lengths)))


def _names(names: pa.Array) -> list[Any]:
    values: list[Any]
    if len(names) < _SHARED_KEYS_MIN:
        values = names.to_pylist()
        return values
    encoded = names.dictionary_encode()
    indices = encoded.indices
    # By the buffer: `to_numpy` imports pandas where it is installed.
    codes = np.frombuffer(indices.buffers()[1], np.int32, len(indices), indices.offset * np.dtype(np.int32).itemsize)
    values = np.array(encoded.dictionary.to_pylist(), np.object_)[codes].tolist()
    return values


def _uuids(array: pa.ListArray) -> list[Any]:
    first, lengths = _bounds(array)
    uuids = array.values.slice(first, sum(lengths))
    if uuids.null_count:
        raise _null("a uuid of a list")
    elements = iter(uuids.to_pylist())
    return [tuple(islice(elements, length)) if length else () for length in lengths]


def _claims(array: pa.StructArray) -> list[Any]:
    return [None if claim is None else ContentClaim(**claim) for claim in array.to_pylist()]


def _bounds(array: pa.ListArray | pa.MapArray) -> tuple[int, list[int]]:
    """Return where the elements of the first row begin, and how many each row has."""
    offsets: list[int] = array.offsets.to_pylist()
    return offsets[0], [end - start for start, end in zip(offsets, islice(offsets, 1, None), strict=False)]


def _null(what: str) -> msgspec.ValidationError:
    return msgspec.ValidationError(f"Expected a value, got `null`: {what}")


def _maker(kind: pa.DataType) -> Callable[[Any], list[Any]] | None:
    if pa.types.is_timestamp(kind):
        return _times
    if pa.types.is_map(kind):
        return _attributes
    if pa.types.is_list(kind):
        return _uuids
    return _claims if pa.types.is_struct(kind) else None


_MAKERS = {field.name: make for field in EVENT_SCHEMA if (make := _maker(field.type)) is not None}
_NEVER_NULL = frozenset(field.name for field in EVENT_SCHEMA if not field.nullable)
