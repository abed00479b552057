"""Writes a table batch by batch: rows are collected in columns, and become Parquet when a batch is full.

Durability: a file is whole and synced when `close` returns; its name is for the caller to make durable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from custody.vfs import FileSystem

_BATCH_ROWS = 1 << 16


class TableWriter:
    """One Parquet file of a graph that is being written; `rows` counts what was added."""

    def __init__(self, fs: FileSystem, path: Path, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns: list[list[object]] = [[] for _ in schema]
        self._file = fs.create(path)
        self._writer = pq.ParquetWriter(self._file, schema, compression="zstd", write_page_checksum=True)
        self.rows = 0

    def add(self, row: Sequence[object]) -> None:
        """Append one row, in the order of the schema."""
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self.rows += 1
        if len(self._columns[0]) == _BATCH_ROWS:
            self._write()

    def close(self) -> None:
        """Write what is left, and sync."""
        self._write()
        self._writer.close()
        self._file.sync()
        self._file.close()

    def abandon(self) -> None:
        """Close the file as it is; it is of no use."""
        # Else pyarrow would write a footer when the writer is forgotten, into a file that is closed.
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.close()

    def _write(self) -> None:
        arrays = [pa.array(column, kind) for column, kind in zip(self._columns, self._schema.types, strict=True)]
        self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
        for column in self._columns:
            column.clear()
