"""The table of contents of an event log: its blocks, their events, and what is needed to decode one block alone.

It lies beside the log as `.toc`, and once more inside it, before Parquet's footer. Parquet's own footer has no
checksum, and neither have the headers of its pages: the table holds one of the footer and one of each block, so that
damaged bytes never reach the Parquet library. It also holds the footer itself, cut into what all blocks share and a
description of each block: one block is decoded without reading the footer of all, and without the footer being whole.

Layout (docs/formats/toc.md), little-endian: preamble of 8 bytes, a head, 56 bytes a block, the shared parts of the
footer, the descriptions of the blocks, then the SHA-256 of all before it.

In the log, the last block is followed by the table of contents, then 40 bytes with a mark and the SHA-256 of the
footer, then the footer. Other readers of Parquet pass over them, because a footer tells where its blocks lie. Each of
the three is enough to read the log, so that damage to one of them costs nothing, even when the `.toc` is lost.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from zlib_ng import zlib_ng

from custody.errors import CorruptionError, FormatVersionError
from custody.eventlog.hashing_file import HashingSink
from custody.eventlog.parquet_footer import MAGIC, TAIL_BYTES, cut_footer, footer_of
from custody.vfs import FileSystem, rfind

PREAMBLE = b"CUSTTOC\x01"
_HEAD = struct.Struct("<8sIIIQQ32s")
_DIGEST_BYTES = 32
# Part of the format: 56 bytes, little-endian on every machine. Add, never change.
BLOCK = np.dtype(
    [
        ("offset", "<u8"),
        ("length", "<u8"),
        ("first_event_id", "<u8"),
        ("rows", "<u8"),
        ("first_event_time", "<i8"),
        ("last_event_time", "<i8"),
        ("crc32", "<u4"),
        ("description_bytes", "<u4"),
    ]
)
# Bounds the memory that a description may take when it is inflated.
_DESCRIPTION_BYTES_MAX = 1 << 24


@dataclass(frozen=True)
class TableOfContents:
    """The blocks of one event log, in event-id order; `blocks` has dtype BLOCK, shape (number of blocks,)."""

    blocks: npt.NDArray[np.void]
    before: bytes
    """The footer up to the number of rows."""
    after: bytes
    """The footer behind its row groups."""
    packed: bytes
    """The descriptions of all blocks, deflated one by one; the first is the dictionary of the others."""
    footer_offset: int
    footer_bytes: int
    footer_sha256: bytes

    def block_of(self, event_id: int) -> int | None:
        """Return the number of the block that would hold an event, None when the log begins after it."""
        position = int(np.searchsorted(self.blocks["first_event_id"], event_id, side="right")) - 1
        return position if position >= 0 else None

    def blocks_between(self, start_ms: int, end_ms: int) -> list[int]:
        """Return the numbers of the blocks that may hold events of a time from `start_ms` up to, not with, `end_ms`."""
        inside = (self.blocks["first_event_time"] < end_ms) & (self.blocks["last_event_time"] >= start_ms)
        found: list[int] = np.flatnonzero(inside).tolist()
        return found

    @property
    def copy_offset(self) -> int:
        """Where the copy of the table begins inside the log; what lies before it ends there."""
        body = _HEAD.size + self.blocks.nbytes + len(self.before) + len(self.after) + len(self.packed)
        return self.footer_offset - GUARD_BYTES - body - _DIGEST_BYTES

    def footer(self, numbers: Iterable[int]) -> bytes:
        """Return a Parquet footer, as a file without data, that describes some blocks of the log."""
        numbers = list(numbers)
        rows = int(self.blocks["rows"][numbers].sum()) if numbers else 0
        return footer_of(self.before, self.after, [self._description(number) for number in numbers], rows)

    def encode(self) -> bytes:
        """Return the file's bytes."""
        head = _HEAD.pack(
            PREAMBLE,
            len(self.blocks),
            len(self.before),
            len(self.after),
            self.footer_offset,
            self.footer_bytes,
            self.footer_sha256,
        )
        body = b"".join((head, self.blocks.tobytes(), self.before, self.after, self.packed))
        return body + hashlib.sha256(body).digest()

    @classmethod
    def decode(cls, data: bytes | memoryview, path: Path, start: int = 0) -> TableOfContents:
        """Return the table whose bytes begin at `start`; with `start` 0 they are a whole file.

        Raises:
            FormatVersionError: the table is of another version.
            CorruptionError: its checksum or its length is wrong.
        """
        view = memoryview(data)[start:]
        if view[:7] == PREAMBLE[:7] and len(view) > 7 and view[7] != PREAMBLE[7]:
            raise FormatVersionError(f"{path} @{start + 7}: expected table of contents version 1, got {view[7]}.")
        if len(view) < _HEAD.size or view[:8] != PREAMBLE:
            raise _damaged(path, start)
        _, count, before, after, footer_offset, footer_bytes, footer_sha256 = _HEAD.unpack_from(view)
        shared = _HEAD.size + count * BLOCK.itemsize
        descriptions = shared + before + after
        if descriptions > len(view):
            raise _damaged(path, start)
        blocks = np.frombuffer(bytes(view[_HEAD.size : shared]), BLOCK)
        end = descriptions + int(blocks["description_bytes"].sum(dtype=np.uint64))
        # A file of its own ends with the digest; inside a log the guard and the footer follow.
        whole = len(view) == end + _DIGEST_BYTES or (start and len(view) > end + _DIGEST_BYTES)
        if not whole or hashlib.sha256(view[:end]).digest() != view[end : end + _DIGEST_BYTES]:
            raise _damaged(path, start)
        return cls(
            blocks,
            bytes(view[shared : shared + before]),
            bytes(view[shared + before : descriptions]),
            bytes(view[descriptions:end]),
            footer_offset,
            footer_bytes,
            footer_sha256,
        )

    @cached_property
    def _ends(self) -> npt.NDArray[np.int64]:
        ends: npt.NDArray[np.int64] = np.cumsum(self.blocks["description_bytes"], dtype=np.int64)
        return ends

    @cached_property
    def _first_description(self) -> bytes:
        return _inflate(self.packed[: self._ends[0]], b"")

    def _description(self, number: int) -> bytes:
        if number == 0:
            return self._first_description
        return _inflate(self.packed[self._ends[number - 1] : self._ends[number]], self._first_description)


def pack(descriptions: Iterable[bytes]) -> list[bytes]:
    """Return the descriptions of a log's blocks as the table holds them; neighbours are much alike."""
    packed: list[bytes] = []
    dictionary = b""
    for description in descriptions:
        packed.append(_deflate(description, dictionary))
        # The first one serves all others: any of them is inflated with only one more.
        dictionary = dictionary or description
    return packed


def _deflate(data: bytes, dictionary: bytes) -> bytes:
    # Raw, without zlib's own checksum: the table has one of all its bytes.
    deflater = zlib.compressobj(6, zlib.DEFLATED, -15, zdict=dictionary)
    return deflater.compress(data) + deflater.flush()


def _inflate(data: bytes, dictionary: bytes) -> bytes:
    return zlib.decompressobj(-15, zdict=dictionary).decompress(data, _DESCRIPTION_BYTES_MAX)


def _damaged(path: Path, start: int) -> CorruptionError:
    return CorruptionError(f"{path} @{start}: expected a table of contents with its checksum, got other bytes.")


MARK = b"CUSTFTR\x01"
GUARD_BYTES = len(MARK) + 32
_CANDIDATES_MAX = 16  # the preamble may also stand in somebody's text


class GuardedSink:
    """A sink in front of another one; what comes after `hold` is Parquet's footer, which `finish` puts at the end."""

    def __init__(self, sink: HashingSink) -> None:
        self._sink = sink
        self._held: list[bytes] | None = None

    @property
    def closed(self) -> bool:
        """Whether the file behind it is closed."""
        return self._sink.closed

    def write(self, data: bytes) -> int:
        """Append, or keep back."""
        if self._held is None:
            return self._sink.write(data)
        self._held.append(bytes(data))
        return len(self._held[-1])

    def flush(self) -> None:
        """Hand buffered bytes on."""
        self._sink.flush()

    def tell(self) -> int:
        """Return the number of bytes so far."""
        return self._sink.tell() + sum(map(len, self._held or ()))

    def close(self) -> None:
        """Do nothing: the file is closed by who opened it. Arrow's buffer in front of a sink closes it at its end."""

    def hold(self) -> None:
        """Keep back what comes from now on."""
        self._held = []

    def finish(self, fs: FileSystem, path: Path, copies: Iterable[bytes] = ()) -> TableOfContents:
        """Write copies of rows, the table of contents, the guard and the footer.

        `path` is the file that the sink writes to.
        """
        held = b"".join(self._held or ())
        start = len(held) - TAIL_BYTES - int.from_bytes(held[-TAIL_BYTES:-4], "little")
        self._sink.write(held[:start])  # Bloom filters, and whatever else precedes the footer
        self._sink.write(b"".join(copies))
        self._sink.flush()
        # The checksums of the blocks are taken from the file, so all of them have to be in it by now.
        toc = describe(held[start:-TAIL_BYTES], 0, fs.view(path))
        # The offset has a fixed width, so the length of the table does not depend on it.
        toc = replace(toc, footer_offset=self._sink.tell() + len(toc.encode()) + GUARD_BYTES)
        self._sink.write(b"".join((toc.encode(), MARK, toc.footer_sha256, held[start:])))
        self._sink.flush()
        return toc


def describe(footer: bytes, footer_offset: int, log: memoryview) -> TableOfContents:
    """Return the table of contents of a log by its footer, which is known to be whole."""
    parts = cut_footer(footer)
    metadata = pq.read_metadata(pa.BufferReader(MAGIC + footer + len(footer).to_bytes(4, "little") + MAGIC))
    blocks = np.zeros(metadata.num_row_groups, BLOCK)
    packed = pack(parts.row_groups)
    names = [metadata.schema.column(i).path for i in range(metadata.num_columns)]
    ids, times = names.index("event_id"), names.index("event_time")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        offset = min(_first_byte(chunk) for chunk in chunks)
        end = max(_first_byte(chunk) + chunk.total_compressed_size for chunk in chunks)
        time = chunks[times].statistics
        blocks[number] = (
            offset,
            end - offset,
            chunks[ids].statistics.min_raw,
            group.num_rows,
            time.min_raw,
            time.max_raw,
            zlib_ng.crc32(log[offset:end]),
            len(packed[number]),
        )
    digest = hashlib.sha256(footer).digest()
    return TableOfContents(blocks, parts.before, parts.after, b"".join(packed), footer_offset, len(footer), digest)


def _first_byte(chunk: pq.ColumnChunkMetaData) -> int:
    dictionary = chunk.dictionary_page_offset
    offset: int = chunk.data_page_offset if dictionary is None else min(dictionary, chunk.data_page_offset)
    return offset


def toc_within(log: memoryview, path: Path, sha256: bytes | None = None) -> TableOfContents:
    """Return the table of contents that a log itself holds, or the one that its footer gives when that is whole.

    `sha256` is what the catalog says of the whole file, when that is known.

    Raises:
        CorruptionError: neither of them is whole.
    """
    return _copy(log, path) or _by_footer(log, path, sha256)


def _copy(log: memoryview, path: Path) -> TableOfContents | None:
    # From the end: the table is the last thing before the footer, and texts of events may hold the preamble too.
    start = rfind(log, PREAMBLE)
    for _ in range(_CANDIDATES_MAX):
        if start < len(MAGIC):
            return None
        try:
            return TableOfContents.decode(log, path, start)
        except CorruptionError:
            start = rfind(log, PREAMBLE, start)
    return None


def _by_footer(log: memoryview, path: Path, sha256: bytes | None) -> TableOfContents:
    footer, offset = footer_of_log(log, path)
    guard = log[max(offset - GUARD_BYTES, 0) : offset]
    # A footer whose own digest is lost counts only if the whole file is what the catalog says.
    if guard != MARK + hashlib.sha256(footer).digest() and hashlib.sha256(log).digest() != sha256:
        raise CorruptionError(
            f"{path} @{offset}: expected a footer with its checksum, or a table of contents, got neither of them whole."
        )
    try:
        return describe(footer, offset, log)
    except (OSError, pa.ArrowException, ValueError, AttributeError) as error:
        raise CorruptionError(f"{path} @{offset}: expected the footer of an event log, got {error}.") from error


def footer_of_log(log: memoryview, path: Path) -> tuple[bytes, int]:
    """Return the Thrift bytes of a log's footer, unchecked, and where they begin.

    Raises:
        CorruptionError: the file does not end as a Parquet file does.
    """
    length = int.from_bytes(log[-TAIL_BYTES:-4], "little")
    offset = len(log) - TAIL_BYTES - length
    if log[-4:] != MAGIC or offset < len(MAGIC):
        raise CorruptionError(f"{path} @{max(len(log) - TAIL_BYTES, 0)}: expected a Parquet footer, got other bytes.")
    return bytes(log[offset : offset + length]), offset
