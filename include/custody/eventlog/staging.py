"""Staging files: one merged group in event-id order, as an Arrow file, waiting to be compressed.

A staging file is published by rename, so a name without the temporary suffix is always a whole file.
"""

from __future__ import annotations

import uuid
from pathlib import Path

import pyarrow as pa

from custody.errors import CorruptionError
from custody.vfs import FileSystem

TEMPORARY_SUFFIX = ".partial"


def temporary(path: Path) -> Path:
    """Return a name beside `path` that no other attempt uses."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")


def write_staging(fs: FileSystem, path: Path, table: pa.Table) -> int:
    """Write and publish a staging file; return its size in bytes.

    Durability: on return the file survives power loss. A second call replaces it with the same content.
    """
    fs.make_directory(path.parent)
    partial = temporary(path)
    with fs.create(partial) as file:
        with pa.ipc.new_file(file, table.schema) as sink:
            sink.write_table(table)
        file.sync()
        size = file.tell()
    fs.rename(partial, path)
    fs.sync_directory(path.parent)
    return size


def read_staging(fs: FileSystem, path: Path) -> pa.Table:
    """Return all events of a staging file.

    Raises:
        CorruptionError: it is not an Arrow file; roll the group over again.
    """
    try:
        return pa.ipc.open_file(pa.py_buffer(fs.read(path))).read_all()
    except pa.ArrowInvalid as error:
        raise CorruptionError(
            f"{path}: expected an Arrow file, got {error}. Remove it; the next rollover writes it again."
        ) from error
