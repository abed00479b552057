"""The table of contents beside an event log: which block holds which events, and where the block lies.

Layout (docs/formats/toc.md), little-endian: preamble of 8 bytes, u32 number of blocks, then 48 bytes a block
(u64 offset, u64 length, u64 first event id, u64 rows, i64 first and i64 last event time in ms), then the SHA-256 of all
before it. Made by numpy in one go and read the same way.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import CorruptionError, FormatVersionError

PREAMBLE = b"CUSTTOC\x01"
_COUNT = struct.Struct("<I")
_DIGEST_BYTES = 32
BLOCK = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u8"),
        ("first_event_id", "<u8"),
        ("rows", "<u8"),
        ("first_event_time", "<i8"),
        ("last_event_time", "<i8"),
    ]
)


class TableOfContents:
    """The blocks of one event log, in event-id order; `blocks` has dtype BLOCK, shape (number of blocks,)."""

    def __init__(self, blocks: npt.NDArray[np.void]) -> None:
        self.blocks = blocks

    def block_of(self, event_id: int) -> int | None:
        """Return the number of the block that would hold an event, None when the log begins after it."""
        position = int(np.searchsorted(self.blocks["first_event_id"], event_id, side="right")) - 1
        return position if position >= 0 else None

    def encode(self) -> bytes:
        """Return the file's bytes."""
        body = PREAMBLE + _COUNT.pack(len(self.blocks)) + self.blocks.tobytes()
        return body + hashlib.sha256(body).digest()

    @classmethod
    def decode(cls, data: bytes, path: Path) -> TableOfContents:
        """Return the table of a file's bytes.

        Raises:
            FormatVersionError: the file is of another version.
            CorruptionError: its checksum or its length is wrong.
        """
        if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
            raise FormatVersionError(f"{path} @7: expected table of contents version 1, got {data[7:8]!r}.")
        body, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if not body.startswith(PREAMBLE) or hashlib.sha256(body).digest() != digest:
            raise CorruptionError(f"{path} @0: expected a table of contents with its checksum, got other bytes.")
        start = len(PREAMBLE) + _COUNT.size
        (count,) = _COUNT.unpack_from(body, len(PREAMBLE))
        if len(body) != start + count * BLOCK.itemsize:
            raise CorruptionError(f"{path} @{start}: expected {count} blocks, got {len(body) - start} bytes.")
        return cls(np.frombuffer(body, BLOCK, offset=start))


def from_footer(footer: pq.FileMetaData, table: pa.Table) -> TableOfContents:
    """Return the table of contents of a log: where its blocks lie by its footer, what is in them by its events.

    `table` holds event_id and event_time of all its events, in file order.
    """
    ids = table.column("event_id").to_numpy()
    times = table.column("event_time").cast(pa.int64()).to_numpy()
    blocks = np.zeros(footer.num_row_groups, BLOCK)
    start = 0
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        offset = min(_first_byte(chunk) for chunk in chunks)
        end = max(_first_byte(chunk) + chunk.total_compressed_size for chunk in chunks)
        of_block = times[start : start + group.num_rows]
        blocks[number] = (
            offset,
            end - offset,
            ids[start],
            group.num_rows,
            of_block.min(),
            of_block.max(),
        )
        start += group.num_rows
    return TableOfContents(blocks)


def _first_byte(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary = chunk.dictionary_page_offset
    offset: int = chunk.data_page_offset if dictionary is None else min(dictionary, chunk.data_page_offset)
    return offset
