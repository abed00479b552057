"""What was taken from tables so far, field by field, in memory or, beyond a bound, in a file beside the shard.

A shard is written field by field, tables come with all fields: this is the turn from the one to the other. What is
kept is a few bytes an event and field, not the events.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.format.batches import read_batch
from custody.index.arrays import integers, to_arrow
from custody.index.values import Values
from custody.vfs import FileSystem, WritableFile

SPILL_NAME = "taken.partial"
_TERMS = pa.schema([pa.field("terms", pa.string())])
_PLACES = pa.schema([("codes", pa.int32()), ("rows", pa.int64())])
_TEXT_PLACES = _PLACES.append(pa.field("positions", pa.int32()))


class Runs:
    """Values of successive tables by field; `rows` in them count from the first row of the first table."""

    def __init__(self, fs: FileSystem, folder: Path, memory_bytes: int) -> None:
        self._fs = fs
        self._path = folder / SPILL_NAME
        self._memory_bytes = memory_bytes
        self._kept: dict[str, list[Values]] = {}
        self._kept_bytes = 0
        self._file: WritableFile | None = None
        self._spilled: dict[str, list[tuple[int, int, pa.Schema]]] = {}

    def add(self, name: str, values: Values, first_row: int) -> None:
        """Take a field's values of the next table."""
        if len(values.rows):
            moved = Values(values.terms, values.codes, values.rows + first_row, values.positions)
            self._kept.setdefault(name, []).append(moved)
            self._kept_bytes += _bytes(moved)

    def settle(self) -> None:
        """Move all that is in memory to the file when it is too much."""
        if self._kept_bytes <= self._memory_bytes:
            return
        if self._file is None:
            self._file = self._fs.create(self._path)
        for name, runs in self._kept.items():
            for run in runs:
                self._spilled.setdefault(name, []).extend(_spill(self._file, batch) for batch in _batches(run))
        self._kept.clear()
        self._kept_bytes = 0

    def take(self, name: str) -> list[Values]:
        """Return a field's values, in the order of the tables, and forget them."""
        places = self._spilled.pop(name, [])
        if places:
            view = self._fs.view(self._path)
            batches = [read_batch(view[start : start + size], schema) for start, size, schema in places]
            spilled = [_values(terms, codes) for terms, codes in zip(batches[::2], batches[1::2], strict=True)]
        else:
            spilled = []
        return spilled + self._kept.pop(name, [])

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            self._fs.remove(self._path)
            self._file = None


def _bytes(values: Values) -> int:
    positions = 0 if values.positions is None else values.positions.nbytes
    terms: int = values.terms.nbytes
    return terms + values.codes.nbytes + values.rows.nbytes + positions


def _batches(values: Values) -> list[pa.RecordBatch]:
    columns = [to_arrow(values.codes), to_arrow(values.rows)]
    if values.positions is not None:
        columns.append(to_arrow(values.positions))
    schema = _PLACES if values.positions is None else _TEXT_PLACES
    return [
        pa.RecordBatch.from_arrays([values.terms], schema=_TERMS),
        pa.RecordBatch.from_arrays(columns, schema=schema),
    ]


def _spill(file: WritableFile, batch: pa.RecordBatch) -> tuple[int, int, pa.Schema]:
    place = file.tell()
    size = file.write(batch.serialize())
    return place, size, batch.schema


def _values(terms: pa.RecordBatch, places: pa.RecordBatch) -> Values:
    codes, rows = integers(places.column(0), np.int32), integers(places.column(1), np.int64)
    positions = integers(places.column(2), np.int32) if places.num_columns > 2 else None
    return Values(terms.column(0), codes, rows, positions)
