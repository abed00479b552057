"""Values of a result of SQL as JSON knows them: times in ISO 8601, attributes as objects."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

INT64_MAX = (1 << 63) - 1
_INFINITE_DAYS = (1 << 31) - 1  # the engine's word for a day without end


def plain_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[list[object]]:
    """Yield the rows of a result, a list of values each."""
    for batch in batches:
        columns = [_values(column) for column in batch.columns]
        yield from map(list, zip(*columns, strict=True))


def _values(column: pa.Array) -> list[object]:
    """Return a column's values as JSON knows them: times in ISO 8601, attributes as objects."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        # Python's datetime has no nanoseconds.
        column = column.cast(pa.timestamp("us", kind.tz), safe=False)
    try:
        values: list[object] = column.to_pylist()
        if pa.types.is_map(kind):
            values = [None if value is None else dict(value) for value in values]  # type: ignore[call-overload]
        return [msgspec.to_builtins(value, str_keys=True) for value in values]
    except (OverflowError, ValueError, TypeError):
        return [_plain(value) for value in column]  # slower, and knows what Python's types cannot hold


def _plain(value: pa.Scalar) -> object:
    """Return a value as JSON knows it, also times beyond the years 1 to 9999 and with nanoseconds."""
    if not value.is_valid:
        return None
    kind = value.type
    if pa.types.is_map(kind):
        return {str(_plain(pair["key"])): _plain(pair["value"]) for pair in value.values}
    if pa.types.is_struct(kind):
        return {kind.field(number).name: _plain(value[number]) for number in range(kind.num_fields)}
    if isinstance(value, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return [_plain(item) for item in value.values]
    if isinstance(value, pa.UnionScalar | pa.DictionaryScalar | pa.ExtensionScalar):
        return _plain(value.value)
    try:
        return msgspec.to_builtins(value.as_py(), str_keys=True)
    except (OverflowError, ValueError, TypeError):
        return _time(value) if pa.types.is_timestamp(kind) or pa.types.is_date(kind) else str(value)


def _time(value: pa.Scalar) -> str:
    unit: Any = value.type.unit if pa.types.is_timestamp(value.type) else "D"
    number: int = value.value
    if abs(number) in (_INFINITE_DAYS, INT64_MAX):
        return "infinity" if number > 0 else "-infinity"
    return f"{np.datetime64(number, unit)}{'Z' if getattr(value.type, 'tz', None) else ''}"
