"""Staging files: one merged group in event-id order, as an Arrow file, waiting to be compressed.

A staging file is published by rename, so a name without the temporary suffix is always a whole file. The Arrow file is
followed by its SHA-256 (32 bytes): the journals that it was made from are deleted on the strength of it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyarrow as pa

from custody.errors import CorruptionError
from custody.eventlog.sink import HashingSink
from custody.vfs import FileSystem, temporary

_DIGEST_BYTES = 32


def write_staging(fs: FileSystem, path: Path, table: pa.Table) -> int:
    """Write and publish a staging file; return its size in bytes.

    Durability: on return the file survives power loss. A second call replaces it with the same content.
    """
    fs.make_directory(path.parent)
    partial = temporary(path)
    with fs.create(partial) as file:
        sink = HashingSink(file)
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        file.write(sink.sha256.digest())
        file.sync()
        size = file.tell()
    fs.rename(partial, path)
    fs.sync_directory(path.parent)
    return size


def read_staging(fs: FileSystem, path: Path) -> pa.Table:
    """Return all events of a staging file.

    Raises:
        CorruptionError: its checksum is wrong; roll the group over again.
    """
    data = fs.read(path)
    body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(body).digest() != digest:
        raise CorruptionError(
            f"{path} @0: expected a staging file with its checksum, got other bytes. "
            "Remove it; the next rollover makes it again from the journals."
        )
    return pa.ipc.open_file(pa.py_buffer(body)).read_all()
