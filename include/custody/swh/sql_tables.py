"""The tables of a database as data sets: their rows are looked up by the index of keys, or scanned.

The SQL engine opens them in its own process, by the names of files that the catalog lists. Lookups read checked pages;
scans map the files and verify the checksum of each page. Ids are as they are on disk, dates in milliseconds.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds

from custody.catalog import CatalogState
from custody.catalog.file_reference import FileReference
from custody.config import Settings
from custody.eventlog import Damage
from custody.sql.keyed import KEYS_MAX, KeyedDataset, Range
from custody.swh.database import CatalogFile
from custody.swh.table_file import IndexedTable, StoredFile
from custody.swh.tables import DATE, TABLES, TableSpec
from custody.vfs import FileSystem, PosixFileSystem

if TYPE_CHECKING:
    from custody.catalog.data_files import DataFiles

__all__ = [
    "KEYS_MAX",
    "PREFIX",
    "SOFTWARE_TABLES",
    "damaged_files",
    "disk_schema",
    "files_of",
    "keyed_table",
    "open_table",
    "ranges_of",
    "referenced_table",
    "rows_of_keys",
]

PREFIX = "software_"
"""Of the names of these tables in SQL."""
SOFTWARE_TABLES = tuple(PREFIX + name for name in TABLES)
_PAGES_MAX = 1024
"""Rows of more pages are scanned: a scan holds a few at a time in memory, a lookup all."""
_ON_DISK = pa.timestamp("ms", tz="UTC")
_FORMAT = ds.ParquetFileFormat(
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True)
)


def disk_schema(spec: TableSpec) -> pa.Schema:
    """Return the columns of a table as its files have them."""
    fields = [field.with_type(_ON_DISK) if field.type == DATE else field for field in spec.schema]
    return pa.schema([field.with_nullable(True) for field in fields])


def files_of(state: CatalogState, listed: DataFiles, table: str) -> dict[Path, bytes]:
    """Return the live files of a table and their SHA-256; those of an object store are fetched whole.

    Raises:
        StorageError: the store refuses.
    """
    return {listed.path(path): file.sha256 for path, file in state.files.items() if file.table == table}


def open_table(name: str, files: Sequence[tuple[bytes, bytes]]) -> KeyedDataset:
    """Return a table, named as in SQL, of files with their SHA-256.

    Raises:
        FileNotFoundError: a file is not there any more.
        CorruptionError: the head of an index is damaged.
    """
    spec = TABLES[name.removeprefix(PREFIX)]
    paths = {Path(os.fsdecode(path)): sha256 for path, sha256 in files}
    return keyed_table(PosixFileSystem(), spec, paths)


def keyed_table(fs: FileSystem, spec: TableSpec, paths: Mapping[Path, bytes]) -> KeyedDataset:
    """Return a table of some files; what is raised is as for `open_table`."""
    for path in paths:
        # An error of its own: the file may have expired since it was looked up.
        path.stat()
    table = IndexedTable(fs, spec, paths)
    ranges = ranges_of(table)
    schema = disk_schema(spec)
    key = ds.field(spec.key)
    fragments = [
        _FORMAT.make_fragment(
            pa.BufferReader(pa.py_buffer(fs.view(path))),
            partition_expression=(key >= pa.scalar(first, schema.field(spec.key).type))
            & (key <= pa.scalar(last, schema.field(spec.key).type)),
        )
        for path, (first, last) in zip(sorted(paths), ranges, strict=True)
    ]

    def lookup(keys: list[int], columns: list[str]) -> pa.Table | None:
        return rows_of_keys(table, keys, columns)

    whole = ds.FileSystemDataset(fragments, schema, _FORMAT) if fragments else ds.dataset(schema.empty_table())
    return KeyedDataset(whole, spec.key, ranges, lookup)


def referenced_table(
    fs: FileSystem, settings: Settings, spec: TableSpec, references: Sequence[FileReference]
) -> IndexedTable:
    """Return a table of files by their references; those of an object store are read by ranges.

    Args:
        settings: whose work folder gets what is fetched.
    """
    paths: dict[Path, bytes | None] = {}
    stored: dict[Path, StoredFile] = {}
    for reference in references:
        files = reference.files(settings, fs)
        where = reference.where(files)
        paths[where] = reference.sha256
        if files is not None:
            stored[where] = CatalogFile(files, reference.path, reference.size)
    return IndexedTable(fs, spec, paths, stored=stored)


def ranges_of(table: IndexedTable) -> list[Range]:
    """Return the first and the last key of each file, in the order of their paths.

    Raises:
        CorruptionError: the head of an index is damaged.
        StorageError: the store refuses.
    """
    return [(file.index.first, file.index.last) for file in table.files]


def rows_of_keys(table: IndexedTable, keys: Sequence[int], columns: Sequence[str] | None = None) -> pa.Table | None:
    """Return the rows of some keys, as `IndexedTable.rows` does; None where they are so many that a scan is cheaper."""
    sought = np.array(keys, np.uint64)
    return None if table.pages_of(sought) > _PAGES_MAX else table.rows(sought, columns)


def damaged_files(fs: FileSystem, listed: DataFiles, state: CatalogState, tables: Sequence[str]) -> Iterator[Damage]:
    """Yield the files of some tables, named as in SQL, and of their indexes, that are not as the catalog says."""
    for path, file in state.files.items():
        if PREFIX + file.table not in tables:
            continue
        for one, digest in ((path, file.sha256), (file.toc_path, file.toc_sha256)):
            where = listed.path(one)
            if hashlib.sha256(fs.view(where)).digest() != digest:
                text = f"{where}: the SHA-256 does not match what the catalog says. Build the database anew."
                yield Damage(where, None, None, None, text)
