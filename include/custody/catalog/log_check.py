"""A log by its own checksums: what is known of one that no catalog has a digest of.

A log has a checksum of each block and of its footer, inside itself and in the table of contents beside it. Its bloom
filters have none: every FlowFile of a block has to be in the filter of the block. So each byte of a log that an answer
depends on is compared with another one.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog.pruning import BloomFilter
from custody.errors import CorruptionError
from custody.eventlog.log_writer import BLOOM_FILTERS, METADATA_KEY, LogMetadata
from custody.eventlog.parquet_footer import MAGIC, TAIL_BYTES, key_values
from custody.eventlog.toc import GUARD_BYTES, MARK, TableOfContents, toc_within
from custody.model import INT64_MAX, check_columns, schema_of

GetRange = Callable[[int, int], bytes]
"""Reads (start, length) of a file; a negative start counts from the end."""

_METADATA = msgspec.json.Decoder(LogMetadata)


@dataclass(frozen=True, slots=True)
class DamagedBlock:
    """A block of a log whose bytes are not those that were written."""

    number: int
    offset: int
    problem: str


@dataclass(frozen=True, slots=True)
class CheckedLog:
    """A log as it was found: what it says of itself, and what of it is damaged."""

    metadata: LogMetadata
    schema: pa.Schema
    toc: TableOfContents
    data: bytes
    damaged: tuple[DamagedBlock, ...]
    problem: str
    """What was changed outside of the blocks; empty if nothing was."""

    @property
    def is_whole(self) -> bool:
        """Whether every byte is as it was written, as far as the log itself can tell."""
        return not self.damaged and not self.problem

    @property
    def whole_blocks(self) -> list[int]:
        """The numbers of the blocks whose bytes are whole."""
        damaged = {block.number for block in self.damaged}
        return [number for number in range(len(self.toc.blocks)) if number not in damaged]

    def events(self, columns: list[str]) -> pa.Table:
        """Return some columns of the events of the blocks that are whole."""
        return _decoded(self.data, self.toc, self.whole_blocks, columns)


def check_log_itself(data: bytes, where: str) -> CheckedLog:
    """Compare a log with its own checksums; `where` names it in messages.

    Raises:
        CorruptionError: nothing in it vouches for its blocks.
        FormatVersionError: a newer custody wrote it, for newer readers.
    """
    toc = toc_within(memoryview(data), Path(where))
    metadata = _metadata(toc.after, where)
    schema_of(metadata.schema_version, Path(where), metadata.reader_version)
    schema = pq.read_metadata(pa.BufferReader(toc.footer([]))).schema.to_arrow_schema()
    check_columns(schema, metadata.schema_version, Path(where))
    damaged = []
    for number, block in enumerate(toc.blocks):
        start, length = int(block["offset"]), int(block["length"])
        if zlib.crc32(memoryview(data)[start : start + length]) != int(block["crc32"]):
            damaged.append(DamagedBlock(number, start, f"expected the checksum {int(block['crc32']):08x}"))
    return CheckedLog(metadata, schema, toc, data, tuple(damaged), _outside(data, toc, metadata, damaged))


def read_log_metadata(get_range: GetRange, where: str) -> LogMetadata:
    """Return what a log says of itself, by two reads at its end.

    Raises:
        CorruptionError: its footer is not the one that was written.
    """
    tail = get_range(-TAIL_BYTES, TAIL_BYTES)
    length = int.from_bytes(tail[:4], "little")
    footer = get_range(-TAIL_BYTES - length - GUARD_BYTES, length + GUARD_BYTES) if tail[4:] == MAGIC else b""
    guard, footer = footer[:GUARD_BYTES], footer[GUARD_BYTES:]
    # Checked before the Parquet library sees a byte of it.
    if len(footer) != length or guard != MARK + hashlib.sha256(footer).digest():
        raise CorruptionError(f"{where} @end: expected a footer with its checksum, got other bytes.")
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + tail))
    return _decode_metadata((metadata.metadata or {}).get(METADATA_KEY), where)


def check_bloom_filters(data: bytes | memoryview, toc: TableOfContents, blocks: list[int]) -> str:
    """Compare the bloom filters of some blocks, which are whole, with the blocks' values.

    Returns what is wrong with the first one that is damaged, empty if none is.
    """
    for number in blocks:
        footer = pq.read_metadata(pa.BufferReader(toc.footer([number])))
        for column in range(footer.num_columns):
            chunk = footer.row_group(0).column(column)
            if chunk.path_in_schema not in BLOOM_FILTERS or chunk.bloom_filter_offset is None:
                continue
            start, length = chunk.bloom_filter_offset, chunk.bloom_filter_length or 0
            values = _decoded(data, toc, [number], [chunk.path_in_schema]).column(0)
            wrong = f"the bloom filter of {chunk.path_in_schema} of block {number} @{start}"
            try:
                bloom = BloomFilter(bytes(data[start : start + length]))
            except CorruptionError:
                return f"{wrong} is damaged"
            if not bloom.may_have_all(values.drop_null().cast(pa.binary()).to_pylist()):
                return f"{wrong} lacks values of the block"
    return ""


def _outside(data: bytes, toc: TableOfContents, metadata: LogMetadata, damaged: list[DamagedBlock]) -> str:
    """Return what outside of the blocks is not as it was written."""
    end = toc.footer_offset + toc.footer_bytes
    tail = toc.footer_bytes.to_bytes(4, "little") + MAGIC
    footer = data[toc.footer_offset : end]
    if data[: len(MAGIC)] != MAGIC or data[end:] != tail or hashlib.sha256(footer).digest() != toc.footer_sha256:
        return "the footer, or what marks the file as Parquet, was changed"
    guard = data[toc.footer_offset - GUARD_BYTES : toc.footer_offset]
    if guard != MARK + toc.footer_sha256 or data[toc.copy_offset : toc.footer_offset - GUARD_BYTES] != toc.encode():
        return "the table of contents within the log was changed"
    rows, first = int(toc.blocks["rows"].sum()), int(toc.blocks["first_event_id"][0]) if len(toc.blocks) else -1
    if (rows, first) != (metadata.rows, metadata.first_event_id):
        return f"expected {metadata.rows} events from {metadata.first_event_id} on, got {rows} from {first} on"
    broken = {block.number for block in damaged}
    return check_bloom_filters(data, toc, [number for number in range(len(toc.blocks)) if number not in broken])


def _decoded(data: bytes | memoryview, toc: TableOfContents, blocks: list[int], columns: list[str]) -> pa.Table:
    file = pq.ParquetFile(
        pa.BufferReader(pa.py_buffer(data)), metadata=pq.read_metadata(pa.BufferReader(toc.footer(blocks)))
    )
    return file.read_row_groups(range(len(blocks)), columns=columns, use_threads=False)


def _metadata(after: bytes, where: str) -> LogMetadata:
    try:
        return _decode_metadata(key_values(after).get(METADATA_KEY), where)
    except ValueError as error:
        raise CorruptionError(f"{where}: {error}.") from error


def _decode_metadata(stored: bytes | None, where: str) -> LogMetadata:
    try:
        metadata = _METADATA.decode(stored or b"")
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{where}: expected custody's metadata in the footer, got {error}.") from error
    revision = metadata.revision
    if not isinstance(revision, msgspec.UnsetType) and not 0 <= revision <= INT64_MAX:
        raise CorruptionError(f"{where}: expected custody's metadata in the footer, got the revision {revision}.")
    return metadata
