"""What an index needs of the events, field by field: tables come with all fields, while a shard is written by fields.

Of each table only what the index needs is kept, in a `SpillBuffer`: in memory up to a bound, then in a file of the
attempt. Then each field is taken as a whole. Document 0 is the newest event, so that whatever goes by document number
meets the newest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.index.arrays import integers, to_arrow
from custody.index.fields import NUMBER_FIELDS, POINTER_COLUMN, TIME_FIELDS, IndexedFields, number_values
from custody.index.paged_file import PagedFileWriter, ShardFile
from custody.index.terms import TermValues
from custody.model.columns import read_batch
from custody.vfs import FileSystem, WritableFile

# In the folder of the attempt: after a crash it goes with it.
SPILL_NAME = "taken.partial"
NUMBERS = (*TIME_FIELDS, *NUMBER_FIELDS)
_TERMS = pa.schema([pa.field("terms", pa.string())])
_PLACES = pa.schema([("codes", pa.int32()), ("rows", pa.int64())])
_TEXT_PLACES = _PLACES.append(pa.field("positions", pa.int32()))
_TABLE_ROWS = 1 << 16
# Wide rows: so many of them would take too much memory at once.
_TABLE_BYTES = 64 << 20
Numbers = npt.NDArray[np.int64]


class SpillBuffer:
    """Values of successive tables by field; `rows` in them count from the first row of the first table."""

    def __init__(self, fs: FileSystem, folder: Path, memory_bytes: int) -> None:
        self._fs = fs
        self._path = folder / SPILL_NAME
        self._memory_bytes = memory_bytes
        self._kept: dict[str, list[TermValues]] = {}
        self._kept_bytes = 0
        self._file: WritableFile | None = None
        self._spilled: dict[str, list[tuple[int, int, pa.Schema]]] = {}

    def add(self, name: str, values: TermValues, first_row: int) -> None:
        """Take a field's values of the next table."""
        if len(values.rows):
            # Rows of one table become rows of all tables, so that field by field the runs are simply joined.
            moved = TermValues(values.terms, values.codes, values.rows + first_row, values.positions)
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

    def take(self, name: str) -> list[TermValues]:
        """Return a field's values, in the order of the tables, and forget them."""
        places = self._spilled.pop(name, [])
        if places:
            view = self._fs.view(self._path)
            batches = [read_batch(view[start : start + size], schema) for start, size, schema in places]
            # Views on the mapped file: a field that was spilled is not copied into memory before it is sorted.
            spilled = [_values(terms, codes) for terms, codes in zip(batches[::2], batches[1::2], strict=True)]
        else:
            spilled = []
        # What was spilled is older than what was kept: the order of the tables has to stay.
        return spilled + self._kept.pop(name, [])

    def close(self) -> None:
        """Remove the file."""
        if self._file is not None:
            self._file.close()
            # Before the folder is published: the manifest does not list this file.
            self._fs.remove(self._path)
            self._file = None


@dataclass
class Collected:
    """The values collected from all tables: by field, and numbers in the order of the events."""

    runs: SpillBuffer
    rows: int = 0
    numbers: dict[str, list[Numbers]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)

    def column(self, name: str) -> Numbers:
        """Return a number of each document, the newest event's first; forgets it."""
        return np.concatenate([np.empty(0, np.int64), *self.numbers.pop(name, [])])[::-1].copy()


@dataclass
class SegmentFiles:
    """The files written so far."""

    fs: FileSystem
    folder: Path
    segment: str
    files: list[ShardFile] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        """Write a file, make it durable, and note its size and checksums."""
        with closing(PagedFileWriter(self.fs, self.folder / name)) as file:
            for piece in pieces:
                file.write(piece)
            self.add(file)

    def add(self, file: PagedFileWriter) -> None:
        """Make a file that was written durable, and note its size and checksums."""
        described, checksums = file.finish()
        self.files.append(described)
        self.checksums += checksums


def collect(runs: SpillBuffer, tables: Iterable[pa.Table], indexed: IndexedFields) -> Collected:
    """Take what an index of some fields needs of all tables."""
    collected = Collected(runs)
    fields = indexed.searched
    for table in _pieces(tables):
        for searched in fields:
            values = searched.values(table)
            if values.cut is not None:
                collected.cut[searched.name] = min(values.cut, collected.cut.get(searched.name, values.cut))
            runs.add(searched.name, values, collected.rows)
        for name in (*NUMBERS, POINTER_COLUMN):
            collected.numbers.setdefault(name, []).append(number_values(table, name))
        collected.rows += table.num_rows
        runs.settle()
    return collected


def _pieces(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield tables of a good size: not so small that each costs more than its rows, not so large that they weigh."""
    waiting: list[pa.Table] = []
    for table in tables:
        for start in range(0, table.num_rows, _TABLE_ROWS):
            waiting.append(table.slice(start, _TABLE_ROWS))
            rows, size = (sum(values) for values in zip(*((t.num_rows, t.nbytes) for t in waiting), strict=True))
            if rows >= _TABLE_ROWS or size >= _TABLE_BYTES:
                yield pa.concat_tables(waiting)
                waiting.clear()
    if waiting:
        yield pa.concat_tables(waiting)


def _bytes(values: TermValues) -> int:
    positions = 0 if values.positions is None else values.positions.nbytes
    terms: int = values.terms.nbytes
    return terms + values.codes.nbytes + values.rows.nbytes + positions


def _batches(values: TermValues) -> list[pa.RecordBatch]:
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


def _values(terms: pa.RecordBatch, places: pa.RecordBatch) -> TermValues:
    codes, rows = integers(places.column(0), np.int32), integers(places.column(1), np.int64)
    positions = integers(places.column(2), np.int32) if places.num_columns > 2 else None
    return TermValues(terms.column(0), codes, rows, positions)
