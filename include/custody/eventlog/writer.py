"""Writing an event log: Parquet whose row groups are the compression blocks, and its table of contents.

Page checksums are written (and verified by our reader): without both, most flipped bits would pass unseen. The
key-value metadata holds what is needed to list the file again if the catalog were lost.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.eventlog.blocks import cut, row_bytes
from custody.eventlog.guard import GuardedSink
from custody.eventlog.sink import HashingSink
from custody.format.names import toc_path
from custody.model import SCHEMA_VERSION
from custody.vfs import FileSystem, temporary

METADATA_KEY = b"custody"
# Bounds are kept of what prunes; a bound of a long text would stand in the footer at its full length, twice a block.
_STATISTICS = [
    "event_id",
    "event_type",
    "event_time",
    "component_id",
    "component_type",
    "flowfile_uuid",
    "file_size",
    "lineage_start_date",
    "source_node",
    "source_ordinal",
]


@dataclass(frozen=True, slots=True)
class LogOptions:
    """How a log is written; sizes in bytes, `level` None for the codec's default."""

    block_bytes_max: int = 1 << 20
    compression: str = "zstd"
    level: int | None = None


class LogMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """What a log says of itself in its footer."""

    writer: str
    database: str
    table: str
    partition: str
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A published log: sizes in bytes, digests of the whole files."""

    path: Path
    size_bytes: int
    sha256: bytes
    toc: Path
    toc_sha256: bytes
    blocks: int


def log_metadata(table: pa.Table, writer: str, database: str) -> LogMetadata:
    """Return what the log of these events (sorted by id, at least one) says of itself."""
    times = pc.min_max(table.column("event_time").cast(pa.int64())).as_py()
    first_time = table.column("event_time").cast(pa.int64())[0].as_py()
    return LogMetadata(
        writer=writer,
        database=database,
        table="events",
        partition=str(np.datetime64(first_time, "ms").astype("datetime64[D]")),
        first_event_id=table.column("event_id")[0].as_py(),
        last_event_id=table.column("event_id")[-1].as_py(),
        first_event_time_ms=times["min"],
        last_event_time_ms=times["max"],
    )


def write_log(fs: FileSystem, path: Path, table: pa.Table, metadata: LogMetadata, options: LogOptions) -> WrittenLog:
    """Write and publish the log of `table`, which is sorted by event id, and the table of contents beside it.

    Durability: on return both survive power loss; a second call replaces both with the same content.
    """
    fs.make_directory(path.parent)
    table = table.combine_chunks()
    blocks = cut(row_bytes(table), options.block_bytes_max)
    schema = table.schema.with_metadata({METADATA_KEY: msgspec.json.encode(metadata)})
    partial = temporary(path)
    with fs.create(partial) as file:
        sink = HashingSink(file)
        guarded = GuardedSink(sink)
        with pq.ParquetWriter(
            guarded,
            schema,
            compression=options.compression,
            compression_level=options.level,
            write_page_checksum=True,
            write_statistics=_STATISTICS,
            store_schema=True,
        ) as writer:
            for start, rows in blocks:
                writer.write_table(table.slice(start, rows).cast(schema), row_group_size=rows)
            guarded.hold()
        toc = guarded.finish(fs.view(partial)).encode()
        file.sync()
        size = file.tell()
    toc_file = path.with_name(toc_path(path.name))
    fs.write_durably(toc_file, toc)
    fs.rename(partial, path)
    fs.sync_directory(path.parent)
    return WrittenLog(path, size, sink.sha256.digest(), toc_file, hashlib.sha256(toc).digest(), len(blocks))
