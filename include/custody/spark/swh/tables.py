"""Writes the tables of a database: Spark sorts, pyarrow writes.

Spark cuts a table into ranges of its key and sorts each of them. A task a range then writes the file anew with small
row groups of an exact size and an index beside it, which Spark's own writer cannot do.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from custody.spark.swh.work import Work, Written
from custody.swh.table_file import WrittenFile, write_table_file
from custody.swh.tables import TABLES
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_table(work: Work, name: str, rows: DataFrame | Written) -> None:
    """Write rows as the table of that name; ids as bigint, dates as seconds in bigint."""
    spec = TABLES[name]
    columns = [column for column in spec.schema.names if column != spec.key or not spec.derives_key]
    # Counted before they are cut into ranges, and not computed again for it.
    source = rows if isinstance(rows, Written) else work.checkpoint(rows.select(*columns))
    order = [column for column in spec.order if column in columns]
    count = max(-(-source.rows // work.sizes.file_rows), 1)
    frame = source.frame.select(*columns)
    ranges = frame.repartition(1) if count == 1 else frame.repartitionByRange(count, spec.range_column)
    sorted_rows = work.checkpoint(ranges.sortWithinPartitions(*order))
    # Spark numbers its files by partition, and partitions by range.
    sources = sorted(str(path) for path in sorted_rows.folder.glob("*.parquet"))
    folder = work.attempt / "tables" / name
    PosixFileSystem().make_directory(folder)
    numbered = list(enumerate(sources))
    task = partial(_rewrite, name, str(folder), work.sizes.group_rows)
    if numbered:
        context = work.session.sparkContext
        made = context.parallelize(numbered, len(numbered)).map(task).collect()
        work.files += [msgspec.json.decode(file, type=WrittenFile) for file in made if file]


def _rewrite(name: str, folder: str, group_rows: int, numbered: tuple[int, str]) -> bytes:
    """Write one range in a Python worker; return its description, nothing for an empty one."""
    number, source = numbered
    fs = PosixFileSystem()
    target = Path(folder) / f"{number:05}.parquet"
    # A task that Spark tries again finds what its first try left.
    fs.remove(target)
    fs.remove(target.with_suffix(".ef"))
    written = write_table_file(fs, TABLES[name], [Path(source)], target, group_rows=group_rows)
    return msgspec.json.encode(written) if written is not None else b""
