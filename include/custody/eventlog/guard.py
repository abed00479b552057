"""What stands in an event log between its last block and Parquet's footer, and how both are found again.

Behind the last block: the table of contents, then 40 bytes with a mark and the SHA-256 of the footer, then the footer.
Other readers of Parquet pass over them, because a footer tells where its blocks lie. Each of the three is enough to
read the log, so that damage to one of them costs nothing, even when the `.toc` beside the log is lost.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from custody.errors import CorruptionError
from custody.eventlog.footer import MAGIC, TAIL_BYTES, cut_footer
from custody.eventlog.sink import HashingSink
from custody.eventlog.toc import BLOCK, PREAMBLE, TableOfContents, pack
from custody.vfs import FileSystem, rfind

MARK = b"CUSTFTR\x01"
GUARD_BYTES = len(MARK) + 32
_CANDIDATES_MAX = 16  # the preamble may also stand in somebody's text


class GuardedSink:
    """Hands bytes on to a sink until `hold`; what comes then is Parquet's footer, which `finish` puts at the end."""

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

    def hold(self) -> None:
        """Keep back what comes from now on."""
        self._held = []

    def finish(self, fs: FileSystem, path: Path) -> TableOfContents:
        """Write the table of contents, the guard and the footer; `path` is the file that the sink writes to."""
        held = b"".join(self._held or ())
        start = len(held) - TAIL_BYTES - int.from_bytes(held[-TAIL_BYTES:-4], "little")
        self._sink.write(held[:start])  # Bloom filters, and whatever else precedes the footer
        self._sink.flush()
        toc = describe(held[start:-TAIL_BYTES], 0, fs.view(path))
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
            zlib.crc32(log[offset:end]),
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
