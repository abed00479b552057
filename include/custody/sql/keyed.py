"""Data sets whose rows are looked up by key where the condition of a scan names few keys, and scanned otherwise.

DuckDB scans a data set with the columns and the condition that its query leaves to the scan. Which keys a condition
allows is asked of Arrow itself: ranges of keys are halved, and Arrow drops each half that the condition contradicts.
So every form that Arrow understands counts (`=`, IN, OR, BETWEEN), and one that it does not understand drops nothing:
then the files are scanned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from custody.sql.stand_in import StandIn

KEYS_MAX = 256
"""Conditions that allow more keys are for a scan of the files."""
_FORMAT = ds.ParquetFileFormat()
Range = tuple[int, int]


class KeyedDataset(StandIn):
    """A table with a key of whole numbers. Scans with a condition on few keys look these up.

    Args:
        whole: all rows.
        key: the column that the rows are looked up by.
        ranges: from the first to the last key of each file.
        lookup: gives the rows of some keys, sorted, with some columns; None if a scan is cheaper.
    """

    def __init__(
        self,
        whole: ds.Dataset,
        key: str,
        ranges: Sequence[Range],
        lookup: Callable[[list[int], list[str]], pa.Table | None],
    ) -> None:
        super().__init__(whole)
        self._key = key
        self._ranges = ranges
        self._lookup = lookup

    def scanner(
        self,
        columns: list[str] | None = None,
        filter: pc.Expression | None = None,
        **options: Any,  # noqa: ANN401 - Arrow's
    ) -> ds.Scanner:
        """Return a scan of the rows that meet a condition."""
        return self._rows(filter).scanner(columns=columns, filter=filter, **options)

    def _rows(self, condition: pc.Expression | None) -> ds.Dataset:
        if condition is None:
            return self._whole
        keys = allowed_keys(condition, self.schema, self._key, self._ranges)
        rows = None if keys is None else self._lookup(keys, self.schema.names)
        # The condition holds more than keys, so the rows are filtered by it as those of a scan are.
        return self._whole if rows is None else ds.dataset(rows.select(self.schema.names).cast(self.schema))


def allowed_keys(condition: pc.Expression, schema: pa.Schema, key: str, ranges: Sequence[Range]) -> list[int] | None:
    """Return the keys within some ranges that a condition may allow, sorted; None if these are too many."""
    try:
        return _halved(condition, schema, key, ranges)
    except pa.ArrowInvalid:
        # A number of the condition is outside of what the key's type can be compared with.
        return None


def _halved(condition: pc.Expression, schema: pa.Schema, key: str, ranges: Sequence[Range]) -> list[int] | None:
    keys: set[int] = set()
    waiting = _not_contradicted(condition, schema, key, ranges)
    while waiting and len(keys) + len(waiting) <= KEYS_MAX:
        keys.update(low for low, high in waiting if low == high)
        halves = []
        for low, high in waiting:
            if low < high:
                middle = (low + high) // 2
                halves += [(low, middle), (middle + 1, high)]
        waiting = _not_contradicted(condition, schema, key, halves)
    return None if waiting else sorted(keys)


def _not_contradicted(condition: pc.Expression, schema: pa.Schema, key: str, ranges: Sequence[Range]) -> list[Range]:
    """Return the ranges of keys that have one that the condition may allow."""
    if not ranges:
        return []
    field, kind = ds.field(key), schema.field(key).type
    # Nothing is read of these: each stands for its range.
    nothing = pa.BufferReader(b"")
    fragments = [
        _FORMAT.make_fragment(
            nothing, partition_expression=(field >= pa.scalar(low, kind)) & (field <= pa.scalar(high, kind))
        )
        for low, high in ranges
    ]
    places = {str(one.partition_expression): place for one, place in zip(fragments, ranges, strict=True)}
    stands = ds.FileSystemDataset(fragments, schema, _FORMAT)
    return [places[str(one.partition_expression)] for one in stands.get_fragments(filter=condition)]
