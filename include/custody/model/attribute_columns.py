"""Columns for formats whose events are much the same: of attributes from a column for each name, and of one text."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa


def attribute_column(values: Mapping[str, pa.StringArray]) -> pa.MapArray:
    """Return the attributes of rows, shape (rows,), as a map of texts.

    Args:
        values: by name, in the order of a row's attributes; a null is an attribute that the row does not have.
    """
    names, columns = list(values), list(values.values())
    rows = len(columns[0])
    # Value by value of the first row, then of the second; the columns lie one behind the other.
    places = np.arange(len(names) * rows).reshape(len(names), rows).T
    is_held = np.column_stack([column.is_valid().to_numpy(zero_copy_only=False) for column in columns])
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(is_held.sum(axis=1), out=offsets[1:])
    held = places[is_held]
    keys = pa.array(names, pa.string()).take(pa.array(held // max(rows, 1)))
    return pa.MapArray.from_arrays(pa.array(offsets), keys, pa.concat_arrays(columns).take(pa.array(held)))


def constant_column(text: str, rows: int) -> pa.StringArray:
    """Return a column of one text, shape (rows,)."""
    return pa.repeat(pa.scalar(text, pa.string()), rows)
