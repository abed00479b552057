"""Writing an event log: Parquet whose row groups are the compression blocks, and its table of contents.

Page checksums are written for readers that know no table of contents; custody's own reader checks whole blocks. The
key-value metadata holds what is needed to list the file again if the catalog were lost.

Each column has the encoding that was smallest on sample events and is no slower (docs/design/011). Columns of few
values get a dictionary in each block. Ids and ascending times are differences. URIs share the beginning of their
predecessor. All others are plain and left to the codec, which finds repeated texts in them better than a dictionary of
mostly different ones.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.errors import ConflictError
from custody.eventlog.blocks import Sizes, blocks_of, encoded_bytes
from custody.eventlog.hashing_file import HashingSink
from custody.eventlog.row_copies import COPIES_KEY, CopiesWriter
from custody.eventlog.toc import GuardedSink
from custody.format.names import toc_path
from custody.made_types import made_at_import
from custody.model import EVENT_SCHEMA, READER_VERSION, SCHEMA_VERSION
from custody.vfs import FileSystem, temporary

DICTIONARY = (
    "event_type",
    "component_id",
    "component_type",
    "component_name",
    "process_group_id",
    "process_group_name",
    "transit_uri",
    "details",
    "previous_attributes.key_value.key",
    "updated_attributes.key_value.key",
    "entity_type",
    "platform",
    "application",
    "source_format",
    "source_node",
    "source_host",
    "delivered_by",
)
ENCODINGS: Mapping[str, str] = {
    "event_id": "DELTA_BINARY_PACKED",
    "event_time": "DELTA_BINARY_PACKED",
    "source_ordinal": "DELTA_BINARY_PACKED",
    "flowfile_uuid": "DELTA_LENGTH_BYTE_ARRAY",
    "source_event_id": "DELTA_LENGTH_BYTE_ARRAY",
    "parent_uuids.list.element": "DELTA_LENGTH_BYTE_ARRAY",
    "child_uuids.list.element": "DELTA_LENGTH_BYTE_ARRAY",
    "content_uri": "DELTA_BYTE_ARRAY",
    "previous_content_uri": "DELTA_BYTE_ARRAY",
}
# What is left of a text before compression, to tell how many events fill a block: a dictionary stands once in a block,
# and addresses share more than half of their length with the one before.
SHARES: Mapping[str, float] = {
    **dict.fromkeys(DICTIONARY, 0.0),
    **{name: 0.5 for name, kind in ENCODINGS.items() if kind == "DELTA_BYTE_ARRAY"},
}
# Bounds are kept where a block can be passed over by them. Those of a uuid or a type span nearly everything in every
# block; a bound of a long text would stand in the footer at its full length, twice a block.
STATISTICS = ("event_id", "event_time", "file_size", "lineage_start_date", "source_node", "source_ordinal")
# Whoever looks for one FlowFile with SQL passes over nearly all blocks but its own. The number of distinct values is
# the most that a block may have: Arrow folds a filter to the size that its values need.
BLOOM_FILTERS: Mapping[str, Mapping[str, float]] = {"flowfile_uuid": {"ndv": 5000, "fpp": 0.01}}


@dataclass(frozen=True, slots=True)
class LogOptions:
    """Options of writing a log.

    Sizes in bytes, `level` None for the codec's default; `row_copies` says whether the log has them.
    """

    block_bytes_max: int = 1 << 20
    compression: str = "zstd"
    level: int | None = None
    row_copies: bool = False

    def parquet(self) -> dict[str, object]:
        """Return the options of a ParquetWriter."""
        return {
            "compression": self.compression,
            "compression_level": self.level,
            "use_dictionary": list(DICTIONARY),
            "column_encoding": dict(ENCODINGS),
            "write_statistics": list(STATISTICS),
            "bloom_filter_options": {name: dict(options) for name, options in BLOOM_FILTERS.items()},
            "write_page_checksum": True,
            "store_schema": True,
        }


# The key, and the fields of LogMetadata, are part of the format: add, never change.
METADATA_KEY = b"custody"
_OVERHEAD_BYTES = 32 << 10  # of a block: dictionaries and heads of pages
_READ_BYTES = 16 << 20
_BUFFER_BYTES = 256 << 10
_TRANSACTION_NAMESPACE = uuid.UUID("0f0c7b0e-4c0b-4f3e-9a55-5b8c0a4c7d21")  # part of the format: names attempts


class LogMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """The description of a log in its own footer."""

    writer: str
    database: str
    table: str
    partition: str
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    rows: int
    groups: tuple[int, ...]
    transaction: uuid.UUID
    schema_version: int = SCHEMA_VERSION
    reader_version: int = READER_VERSION
    """Writers of schema version 2 and later always say it."""
    revision: int | msgspec.UnsetType = msgspec.UNSET
    """The revision at which the log was to become live when it was begun; a later one if others committed meanwhile.
    Absent in logs of older releases."""


made_at_import(LogMetadata)


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A published log: sizes in bytes, digests of the whole files."""

    path: Path
    size_bytes: int
    sha256: bytes
    toc: Path
    toc_sha256: bytes
    blocks: int


def transaction_of_groups(writer: str, database: str, groups: Sequence[int]) -> uuid.UUID:
    """Return the attempt id of the transaction that makes journal groups live; known before there is one.

    A group becomes live once, so it is never given to another attempt; the same groups merged again get it again, so
    that their logs are the same bytes.
    """
    return uuid.uuid5(_TRANSACTION_NAMESPACE, f"{writer}/{database}:{','.join(map(str, groups))}")


def log_metadata(table: pa.Table, writer: str, database: str, groups: Sequence[int] = ()) -> LogMetadata:
    """Return what the log of these events (sorted by id, at least one) says of itself."""
    times = pc.min_max(table.column("event_time").cast(pa.int64())).as_py()
    first_time = table.column("event_time").cast(pa.int64())[0].as_py()
    first = table.column("event_id")[0].as_py()
    groups = tuple(groups) or (first,)
    # The day is that of the first event, also for a log that goes on after midnight.
    return LogMetadata(
        writer=writer,
        database=database,
        table="events",
        partition=str(np.datetime64(first_time, "ms").astype("datetime64[D]")),
        first_event_id=first,
        last_event_id=table.column("event_id")[-1].as_py(),
        first_event_time_ms=times["min"],
        last_event_time_ms=times["max"],
        rows=table.num_rows,
        groups=groups,
        transaction=transaction_of_groups(writer, database, groups),
    )


def write_log(
    fs: FileSystem,
    path: Path,
    events: pa.Table | Callable[[], Iterable[pa.Table]],
    metadata: LogMetadata,
    options: LogOptions,
) -> WrittenLog:
    """Write and publish the log of `events`, which are sorted by event id, and the table of contents beside it.

    Of a stream of tables, one and the next block are in memory. How large a block is before compression is known when
    it is encoded. If one is larger than allowed, which takes unusual events, all is written again with fewer events a
    block: then `events` is called once more. Files of these names that are there are kept if they are the same bytes;
    nothing is ever replaced, as somebody may have listed it.

    Durability: on return both survive power loss.

    Raises:
        ConflictError: other bytes have one of the names.
    """
    fs.make_directory(path.parent)
    tables = (lambda: [events]) if isinstance(events, pa.Table) else events
    schema = EVENT_SCHEMA.with_metadata({METADATA_KEY: msgspec.json.encode(metadata)})
    most = options.block_bytes_max
    aim = most - min(_OVERHEAD_BYTES, most // 4)
    while True:
        partial = temporary(path)
        with fs.create(partial) as file:
            sink = HashingSink(file)
            guarded = GuardedSink(sink)
            largest, copies = _write_blocks(guarded, schema, blocks_of(tables(), aim, _encoded), options)
            if largest <= most:
                contents = guarded.finish(fs, partial, copies)
                file.sync()
                size = file.tell()
                break
        # Not truncated and written again: a `WritableFile` only grows.
        fs.remove(partial)
        # In proportion to the excess, but a sixteenth less at least, so that the loop ends.
        aim = min(aim * most // largest, aim - aim // 16)
    # The table comes first: a log that has its name is whole, with all that belongs to it.
    toc = contents.encode()
    toc_file = path.with_name(toc_path(path.name))
    if not fs.publish_if_absent(toc_file, toc) and fs.read(toc_file) != toc:
        raise _taken(toc_file)
    # A link, not a rename: it takes nobody's place, so a live log is never replaced.
    published = fs.link(partial, path)
    # An earlier try of the same work may have published it: the bytes of a log depend on its events alone.
    is_same = published or _sha256(fs, path) == sink.sha256.digest()
    fs.remove(partial)
    if not is_same:
        raise _taken(path)
    # Also for a log that was found: whoever published it may have died before its own sync.
    fs.sync_directory(path.parent)
    return WrittenLog(path, size, sink.sha256.digest(), toc_file, hashlib.sha256(toc).digest(), len(contents.blocks))


def _encoded(table: pa.Table) -> Sizes:
    return encoded_bytes(table, SHARES)


def _write_blocks(
    sink: GuardedSink, schema: pa.Schema, blocks: Iterable[pa.Table], options: LogOptions
) -> tuple[int, list[bytes]]:
    """Write the blocks, keep the footer back.

    Return the size of the largest block of several events, as encoded, and the copies of rows, which come behind.
    """
    written: list[pq.FileMetaData] = []
    collected = CopiesWriter() if options.row_copies else None
    copies: list[bytes] = []
    # Arrow writes in some hundred pieces a block, and each would be a call of Python.
    buffered = pa.BufferedOutputStream(pa.PythonFile(sink, "w"), _BUFFER_BYTES)
    with pq.ParquetWriter(buffered, schema, metadata_collector=written, **options.parquet()) as writer:
        for block in blocks:
            writer.write_table(block, row_group_size=block.num_rows)
            if collected is not None:
                collected.add(block)
        if collected is not None:
            copies, description = collected.finish()
            writer.add_key_value_metadata({COPIES_KEY: description})
        # The writer writes the footer when it is closed: kept back, until the table of contents precedes it.
        buffered.flush()
        sink.hold()
    buffered.flush()
    groups = [written[0].row_group(number) for number in range(written[0].num_row_groups)]
    # A single event that is larger than a block cannot be cut any further, so it does not count.
    return max((group.total_byte_size for group in groups if group.num_rows > 1), default=0), copies


def _sha256(fs: FileSystem, path: Path) -> bytes:
    digest = hashlib.sha256()
    data = fs.view(path)
    for start in range(0, len(data), _READ_BYTES):
        digest.update(data[start : start + _READ_BYTES])
    return digest.digest()


def _taken(path: Path) -> ConflictError:
    return ConflictError(
        f"{path}: expected a free name, or the same bytes under it, got other bytes: an attempt with other settings "
        "published them. Run the step again: it removes what no transaction lists."
    )
