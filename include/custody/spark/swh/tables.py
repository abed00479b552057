"""Writes the tables of a database: runs of sorted rows are merged, a file a range of keys.

Spark sorts what each of its tasks has and writes it as a run, without sending rows around; steps that walk in arrays
write runs themselves. A task a range then merges the runs into a file with small row groups of an exact size and an
index beside it, which Spark's own writer cannot do.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from custody.spark.swh.work import Work
from custody.swh.table_file import WrittenFile
from custody.swh.tables import TABLES
from custody.swh.walks.runs import Range, cut, merged
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write_table(work: Work, name: str, rows: DataFrame) -> None:
    """Write rows as the table of that name; ids as bigint, dates as seconds in bigint."""
    spec = TABLES[name]
    columns = [column for column in spec.schema.names if column != spec.key or not spec.derives_key]
    order = [column for column in spec.order if column in columns]
    merge_runs(work, name, work.runs(rows.select(*columns), order).folder)


def merge_runs(work: Work, name: str, folder: Path) -> None:
    """Write the runs of a folder as the table of that name."""
    runs = sorted(folder.glob("*.parquet"))
    target = work.attempt / "tables" / name
    PosixFileSystem().make_directory(target)
    ranges = cut(runs, TABLES[name], work.sizes.file_rows)
    made = work.each(ranges, partial(_merge, name, runs, target, work.sizes.group_rows))
    work.files += [msgspec.json.decode(file, type=WrittenFile) for file in made if file]


def _merge(name: str, runs: list[Path], folder: Path, group_rows: int, part: Range) -> bytes:
    """Write one range in a Python worker; return its description, nothing for an empty one."""
    fs = PosixFileSystem()
    target = folder / f"{part.number:05}.parquet"
    # A task that Spark tries again finds what its first try left.
    fs.remove(target)
    fs.remove(target.with_suffix(".ef"))
    written = merged(fs, TABLES[name], runs, part, target, group_rows=group_rows)
    return msgspec.json.encode(written) if written is not None else b""
