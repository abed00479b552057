"""Runs: sorted files of rows of one table, which are merged into the table's files, a range of keys at a time.

A task sorts the rows that it has in memory and writes them as a run. The footers of all runs say how the keys are
spread, so ranges of about the same number of rows are cut without reading a row. To merge a range, the few row groups
of each run that hold it are read: one range is in memory, and however many rows a single key has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.swh.table_file import WrittenFile, write_tables
from custody.swh.tables import TableSpec
from custody.vfs import FileSystem

# Small row groups: a merge reads of each run little more than the rows of its range.
_RUN_GROUP_ROWS = 32_768
_PIECE_ROWS = 65_536


class Range(msgspec.Struct, frozen=True):
    """Keys of one file: from the first one on, to that of the next file; None has no bound."""

    number: int
    first: int | bytes | None
    behind: int | bytes | None


def write_run(fs: FileSystem, path: Path, rows: pa.Table) -> None:
    """Write rows, sorted as those of their table, as a run."""
    write_parts(fs, path, [rows])


def write_parts(fs: FileSystem, path: Path, parts: Iterable[pa.Table]) -> int:
    """Write rows that come in parts, at least one, as one file; return how many."""
    following = iter(parts)
    first = next(following)
    count = 0
    with (
        fs.create(path) as file,
        pq.ParquetWriter(
            file,
            first.schema,
            compression="lz4",
            use_dictionary=False,
            store_schema=False,
            write_statistics=first.schema.names[:1],
        ) as writer,
    ):
        for rows in chain([first], following):
            writer.write_table(rows, row_group_size=_RUN_GROUP_ROWS)
            count += rows.num_rows
    return count


def cut_ranges(runs: Sequence[Path], spec: TableSpec, file_rows: int) -> list[Range]:
    """Return ranges of keys of about so many rows; a key is in one range."""
    groups: list[tuple[Any, int]] = []
    for run in runs:
        metadata = pq.read_metadata(run)
        place = metadata.schema.names.index(spec.range_column)
        for number in range(metadata.num_row_groups):
            group = metadata.row_group(number)
            if group.num_rows:
                # The statistics in the footers are all that is read of a run here.
                groups.append((group.column(place).statistics.min, group.num_rows))
    groups.sort()
    ends = np.cumsum([rows for _, rows in groups])
    total = int(ends[-1]) if groups else 0
    files = -(-total // file_rows)
    marks = np.searchsorted(ends, np.arange(1, files) * (total / max(files, 1)))
    # Ranges are cut between keys, never within one: all rows of a key are in one file.
    bounds = sorted({groups[mark][0] for mark in marks.tolist()} - {groups[0][0]} if groups else set())
    return [
        Range(number, first, behind)
        for number, (first, behind) in enumerate(zip([None, *bounds], [*bounds, None], strict=True))
    ]


def merge_range(
    fs: FileSystem, spec: TableSpec, runs: Sequence[Path], part: Range, target: Path, *, group_rows: int
) -> WrittenFile | None:
    """Write the rows of a range as one file of a table, and its index; None if there is no row.

    Durability: on return both files are synced; their names are for the caller to make durable.

    Raises:
        InvalidInputError: a value does not fit its column.
    """
    tables = [table for run in runs if (table := _read(run, spec, part)).num_rows]
    if not tables:
        return None
    rows = pa.concat_tables(tables)
    tables.clear()
    return write_tables(fs, spec, _sorted(spec, rows), target, group_rows=group_rows)


def _read(run: Path, spec: TableSpec, part: Range) -> pa.Table:
    """The rows of a run whose keys are in a range."""
    with pq.ParquetFile(run) as file:
        metadata = file.metadata
        place = metadata.schema.names.index(spec.range_column)
        groups = []
        for number in range(metadata.num_row_groups):
            seen = metadata.row_group(number).column(place).statistics
            is_before = part.first is not None and seen.max < part.first
            is_behind = part.behind is not None and seen.min >= part.behind
            if not (is_before or is_behind):
                groups.append(number)
        columns = [name for name in spec.schema.names if not (spec.derives_key and name == spec.key)]
        table = file.read_row_groups(groups, columns=columns, use_threads=False)
    keys = table.column(spec.range_column)
    # Row groups reach over the bounds of a range: their other rows are cut off here.
    if part.first is not None:
        table = table.filter(pc.greater_equal(keys, part.first))
    if part.behind is not None:
        table = table.filter(pc.less(table.column(spec.range_column), part.behind))
    return table


def _sorted(spec: TableSpec, rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in order, some at a time, so that they are not all in memory twice."""
    order = [name for name in spec.order if name in rows.schema.names]
    if all(pa.types.is_integer(rows.schema.field(name).type) for name in order):
        places = pa.array(np.lexsort([np.asarray(rows.column(name)) for name in reversed(order)]))
    else:
        places = pc.sort_indices(rows, [(name, "ascending") for name in order])
    rows = rows.combine_chunks()
    for start in range(0, len(places), _PIECE_ROWS):
        yield rows.take(places.slice(start, _PIECE_ROWS))
