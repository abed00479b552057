"""The bulk writer of a shard: tables of events become the files of one Whoosh segment, and the manifest.

A shard is written field by field, while tables come with all fields. So there are two phases: of each table only what
the index needs is kept, in a `SpillBuffer`; then each field is sorted and written as a whole. Memory holds the values
of all fields up to a bound, and the posting lists of one field.

Document 0 is the newest event, so that whatever goes by document number meets the newest first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from custody.index.arrays import integers, to_arrow
from custody.index.dictionary import HEADER, DictionaryWriter
from custody.index.fields import (
    ABSENT,
    NUMBER_FIELDS,
    NUMBER_STEP_BITS,
    POINTER_COLUMN,
    TIME_FIELDS,
    IndexedFields,
    number_values,
)
from custody.index.inverted_field import InvertedField, invert, invert_numbers
from custody.index.manifest import Description, Manifest, Zones
from custody.index.number_columns import empty_stored, plain_column, sortable_column, zones
from custody.index.paged_file import PagedFileWriter, ShardFile
from custody.index.term_filter import SUFFIX, filter_bytes
from custody.index.terms import TermValues
from custody.index.whoosh_writer import TOC_NAME, segment_name, toc_bytes
from custody.model.columns import read_batch
from custody.vfs import FileSystem, WritableFile

# In the folder of the attempt: after a crash it goes with it.
SPILL_NAME = "taken.partial"
_TERMS = pa.schema([pa.field("terms", pa.string())])
_PLACES = pa.schema([("codes", pa.int32()), ("rows", pa.int64())])
_TEXT_PLACES = _PLACES.append(pa.field("positions", pa.int32()))
NUMBERS = (*TIME_FIELDS, *NUMBER_FIELDS)
_TABLE_ROWS = 1 << 16
# Wide rows: so many of them would take too much memory at once.
_TABLE_BYTES = 64 << 20
Numbers = npt.NDArray[np.int64]


def write_segment(
    fs: FileSystem,
    folder: Path,
    tables: Iterable[pa.Table],
    indexed: IndexedFields,
    memory_bytes: int,
) -> Manifest:
    """Write the events of some tables, which come in the order of their ids, into an empty folder.

    Durability: on return the content of the files survives power loss; their names when the folder is synced.
    """
    with closing(SpillBuffer(fs, folder, memory_bytes)) as runs:
        collected = _collect(runs, tables, indexed)
        # Reversed already: the first is the newest, so the ids go down with the document number.
        event_ids = collected.column(POINTER_COLUMN)
        first, last = (int(event_ids[-1]), int(event_ids[0])) if len(event_ids) else (0, -1)
        files = _Files(fs, folder, segment_name(max(first, 0)))
        bounds: dict[str, Zones] = {}
        absent: dict[str, int] = {}
        with_terms: dict[str, Numbers] = {}
        for name in NUMBERS:
            column = collected.column(name)
            bounds[name], absent[name] = zones(column), int((column == ABSENT).sum())
            data = sortable_column(column) if name in indexed.ranges else plain_column(column)
            files.write(f"{files.segment}.{name}.col", [data])
            if name in indexed.ranges:
                with_terms[name] = column
        files.write(f"{files.segment}.{POINTER_COLUMN}.col", [plain_column(event_ids)])
        files.write(f"{files.segment}._stored.col", [empty_stored(collected.rows)])
        dictionary, terms, code = _write_terms(files, runs, with_terms, indexed, collected.rows)
    files.write(TOC_NAME, [toc_bytes(indexed.schema, max(first, 0), collected.rows)])
    description = Description(
        documents=collected.rows,
        first_event_id=first,
        last_event_id=last,
        segment=files.segment,
        layout="bulk",
        attributes=indexed.attributes,
        standard=indexed.standard,
        ranges=indexed.ranges,
        fields=dictionary.fields,
        terms=terms,
        order_type=code,
        absent=absent,
        files=tuple(files.files),
        cut=collected.cut,
    )
    return Manifest(description=description, checksums=np.array(files.checksums, np.uint32), zones=bounds)


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
class _Collected:
    """The values collected from all tables: by field, and numbers in the order of the events."""

    runs: SpillBuffer
    rows: int = 0
    numbers: dict[str, list[Numbers]] = field(default_factory=dict)
    cut: dict[str, int] = field(default_factory=dict)

    def column(self, name: str) -> Numbers:
        """Return a number of each document, the newest event's first; forgets it."""
        return np.concatenate([np.empty(0, np.int64), *self.numbers.pop(name, [])])[::-1].copy()


@dataclass
class _Files:
    """The files written so far."""

    fs: FileSystem
    folder: Path
    segment: str
    files: list[ShardFile] = field(default_factory=list)
    checksums: list[int] = field(default_factory=list)

    def write(self, name: str, pieces: Iterable[bytes]) -> None:
        with closing(PagedFileWriter(self.fs, self.folder / name)) as file:
            for piece in pieces:
                file.write(piece)
            self.add(file)

    def add(self, file: PagedFileWriter) -> None:
        described, checksums = file.finish()
        self.files.append(described)
        self.checksums += checksums


def _collect(runs: SpillBuffer, tables: Iterable[pa.Table], indexed: IndexedFields) -> _Collected:
    collected = _Collected(runs)
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


def _write_terms(
    files: _Files, runs: SpillBuffer, with_terms: dict[str, Numbers], indexed: IndexedFields, documents: int
) -> tuple[DictionaryWriter, int, str]:
    """Write dictionary and postings field by field, in the order of their names, as Whoosh does."""
    names = sorted([*(searched.name for searched in indexed.searched), *with_terms])
    dictionary = DictionaryWriter()
    with ExitStack() as opened:
        terms = opened.enter_context(closing(PagedFileWriter(files.fs, files.folder / f"{files.segment}.trm")))
        postings = opened.enter_context(closing(PagedFileWriter(files.fs, files.folder / f"{files.segment}.pst")))
        terms.write(HEADER)
        # One field after the other, and each is dropped when it is written: memory holds the lists of one field.
        for name in names:
            inverted = _terms(runs, with_terms, name, documents)
            if inverted is not None:
                records, blocks = dictionary.add(name, inverted)
                terms.write(records)
                postings.write(blocks)
        end, count, code = dictionary.finish()
        terms.write(end)
        files.add(terms)
        files.add(postings)
    files.write(f"{files.segment}.{SUFFIX}", [filter_bytes(dictionary.hashes())])
    return dictionary, count, code


def _terms(runs: SpillBuffer, with_terms: dict[str, Numbers], name: str, documents: int) -> InvertedField | None:
    """Return the terms of a field, None when no document has one."""
    if name not in with_terms:
        collected = runs.take(name)
        return invert(collected, documents) if collected else None
    column = with_terms.pop(name)
    having = np.flatnonzero(column != ABSENT)
    return invert_numbers(column[having], having.astype(np.uint32), NUMBER_STEP_BITS) if len(having) else None


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
