"""Tables for tests: made-up rows as Spark would leave them, and a file of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from custody.swh.table_file import WrittenFile, write_table_file
from custody.swh.tables import CONTENTS_IN_REVISIONS, TABLES, TableSpec
from custody.vfs import FileSystem

SPEC = TABLES[CONTENTS_IN_REVISIONS]


def source(folder: Path, contents: list[int], *, row_group: int = 1000) -> Path:
    """Sorted rows of contents in revisions; a content that is named several times has several rows."""
    rows = len(contents)
    table = pa.table(
        {
            "cnt": pa.array(contents, pa.int64()),
            "revrel": pa.array(np.arange(rows) + 10_000_000),
            "revrel_author_date": pa.array(np.arange(rows) * 60 - 5),
            "path": pa.array([b"path/%d" % place for place in range(rows)]),
        }
    )
    path = folder / f"source-{rows}.parquet"
    pq.write_table(table, path, row_group_size=row_group)
    return path


def write(
    fs: FileSystem,
    folder: Path,
    contents: list[int],
    *,
    group_rows: int = 8,
    name: str = "00000",
    spec: TableSpec = SPEC,
) -> WrittenFile:
    written = write_table_file(fs, spec, [source(folder, contents)], folder / f"{name}.parquet", group_rows=group_rows)
    assert written is not None
    return written
