"""A file of a shard, checksummed page by page: written once from its beginning to its end, and mapped by readers.

The file itself is Whoosh's and holds no checksums. They are in the shard's manifest: the CRC-32 of each PAGE_BYTES
bytes, the last page being shorter. A reader checks a page when it is first looked at, so that a search pays only for
the pages that it needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import numpy.typing as npt
from zlib_ng import zlib_ng

from custody.errors import CorruptionError
from custody.index.arrays import Bytes, Ints
from custody.made_types import made_at_import
from custody.vfs import FileSystem, WritableFile, prefetch_pages

if TYPE_CHECKING:
    from custody.store.ranged_file import RangedFile

# Part of the format. Small pages cost checksums in the manifest, large ones cost a search bytes that it does not need.
PAGE_BYTES = 1 << 14
_PAGE_BITS = PAGE_BYTES.bit_length() - 1

Checksums = npt.NDArray[np.uint32]


class ShardFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of the shard; its size in bytes."""

    name: str
    size: int


made_at_import(ShardFile)


def pages_of(size: int) -> int:
    """Return how many pages a file of this size has."""
    return -(-size // PAGE_BYTES)


def checksums_of(data: bytes | memoryview) -> list[int]:
    """Return the CRC-32 of each page of a file."""
    view = memoryview(data)
    return [zlib_ng.crc32(view[start : start + PAGE_BYTES]) for start in range(0, len(view), PAGE_BYTES)]


class PagedFileWriter:
    """A file that is written once, from its beginning to its end, and checksummed by pages on the way."""

    def __init__(self, fs: FileSystem, path: Path) -> None:
        self._file: WritableFile = fs.create(path)
        self._name = path.name
        self._open_page = b""
        self._sums: list[int] = []

    @property
    def size(self) -> int:
        """How many bytes were written so far."""
        return self._file.tell()

    def write(self, data: bytes | memoryview | npt.NDArray[np.uint8]) -> None:
        """Append bytes."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]
        self._file.write(view)  # type: ignore[arg-type]
        # Only the page that is not full yet is held back; the bytes themselves go to the file at once.
        missing = PAGE_BYTES - len(self._open_page)
        if len(view) < missing:
            self._open_page += bytes(view)
            return
        # The sum of the page that was begun goes on over the new bytes, so the two are never joined in memory.
        self._sums.append(zlib_ng.crc32(view[:missing], zlib_ng.crc32(self._open_page)))
        whole = (len(view) - missing) // PAGE_BYTES * PAGE_BYTES
        self._sums += checksums_of(view[missing : missing + whole])
        self._open_page = bytes(view[missing + whole :])

    def end_page(self) -> list[int]:
        """Fill the last page with zeros; return the checksums of all pages so far."""
        self.write(bytes(-self.size % PAGE_BYTES))
        return [*self._sums]

    def finish(self) -> tuple[ShardFile, list[int]]:
        """Make the file durable; return what the manifest says of it."""
        sums = self._sums + ([zlib_ng.crc32(self._open_page)] if self._open_page else [])
        size = self._file.tell()
        # Content only: the folder is synced once, when all its files are written.
        self._file.sync()
        self._file.close()
        return ShardFile(name=self._name, size=size), sums

    def close(self) -> None:
        """Release the file without making it durable."""
        self._file.close()


_FETCHED_PAGES = 8
"""Of a ranged file, so many pages are fetched at once, from a multiple of it on: requests cost more than bytes."""


@dataclass(frozen=True, slots=True)
class RangedPart:
    """Where a file lies in a file that is read by ranges."""

    file: RangedFile
    start: int


class CheckedFile:
    """The bytes of a file, checked page by page; may be used by several threads.

    The pages of one that is `ranged` are fetched when they are first looked at, those of one call together.

    `data`, shape (size,), is the mapping itself: only bytes that were checked may be read from it. With `is_begin`, the
    file goes on behind them.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        size: int,
        checksums: Checksums,
        ranged: RangedPart | None = None,
        *,
        is_begin: bool = False,
    ) -> None:
        # Mapped, not read: a search touches few pages, and the kernel may drop them again.
        view = fs.view(path) if ranged is None else ranged.file.view[ranged.start : ranged.start + size]
        if is_begin:
            view = view[:size]
        self._ranged = ranged
        if len(view) != size:
            raise CorruptionError(f"{path} @{min(len(view), size)}: expected {size} bytes, got {len(view)}.")
        self.path = path
        self.size = size
        self.data: Bytes = np.frombuffer(view, np.uint8)
        self._view = view
        self._checksums = checksums
        # Without a lock: two threads may check the same page, and both come to the same result.
        self._is_checked = bytearray(len(checksums))
        # The same bytes twice: a bytearray is quicker for one page, an array for many.
        self._are_checked = np.frombuffer(self._is_checked, np.uint8)
        self._is_whole = False

    @property
    def is_ranged(self) -> bool:
        """Whether pages are fetched when they are first looked at, so that each look may be a request."""
        return self._ranged is not None

    def span(self, start: int, end: int) -> memoryview:
        """Return some bytes.

        Raises:
            CorruptionError: they are not what was written, or lie outside of the file.
        """
        if not 0 <= start <= end <= self.size:
            raise self.error(start, f"{end - start} bytes within {self.size}", "a place outside of the file")
        # The place of the first flag that is not set, found without a step of Python for each page.
        first, behind = start >> _PAGE_BITS, ((end - 1) >> _PAGE_BITS) + 1 if end > start else 0
        missing = self._is_checked.find(0, first, behind)
        if missing >= 0:
            self._check_all([page for page in range(missing, behind) if not self._is_checked[page]])
        return self._view[start:end]

    def array(self, start: int, end: int) -> Bytes:
        """Return some bytes as an array."""
        self.span(start, end)
        return self.data[start:end]

    def require(self, places: Ints, width: int) -> None:
        """Check the bytes from place to place + width for each place."""
        if not len(places):
            return
        # As unsigned numbers, of which a negative place is the greatest: one look finds both. Calls of numpy are what
        # a search of few terms pays for, so that each counts here.
        if int(places.view(np.uint64).max()) + width > self.size:
            raise self.error(int(places.max()), f"{width} bytes within {self.size}", "a place outside of the file")
        if self._is_whole:
            return
        # First and last page of each piece: callers pass widths below a page, so no page lies in between.
        pages = places >> _PAGE_BITS
        if width > 1:
            pages = np.concatenate((pages, (places + (width - 1)) >> _PAGE_BITS))
        is_unchecked = self._are_checked[pages] == 0
        if not is_unchecked.any():
            return
        # A flag for each page of the file: there are few, and many places to be sorted otherwise.
        is_missing = np.zeros(len(self._checksums), np.bool_)
        is_missing[pages[is_unchecked]] = True
        self._check_all(np.flatnonzero(is_missing).tolist())

    def require_all(self) -> None:
        """Check all bytes, once."""
        if not self._is_whole:
            self.span(0, self.size)
            self._is_whole = True

    def error(self, place: int, expected: str, got: str) -> CorruptionError:
        """Return an error that names this file and a place in it."""
        return CorruptionError(f"{self.path} @{place}: expected {expected}, got {got}.")

    def _check_all(self, pages: list[int]) -> None:
        """Check some pages, which go up."""
        self._bring(pages)
        for page in pages:
            self._check(page)

    def _bring(self, pages: list[int]) -> None:
        """Ask the disk for some pages; of a ranged file, fetch those that are not whole here, and those beside them."""
        if self._ranged is None:
            # The system's own read-ahead takes megabytes around each page, of which a search of many shards needs none.
            for first, end in _runs(pages):
                prefetch_pages(self._view, first << _PAGE_BITS, (end - first) << _PAGE_BITS)
            return
        file, begin = self._ranged.file, self._ranged.start
        wanted = {page // _FETCHED_PAGES for page in pages if not self._fits(page)}
        spans = {}
        for number in wanted:
            first, last = number * _FETCHED_PAGES, min((number + 1) * _FETCHED_PAGES, len(self._checksums))
            end = min(last << _PAGE_BITS, self.size)
            spans[begin + (first << _PAGE_BITS), begin + end] = range(first, last)
        if spans:
            file.fetch(spans, lambda span: all(map(self._fits, spans[span])))

    def _fits(self, page: int) -> bool:
        start = page << _PAGE_BITS
        return zlib_ng.crc32(self._view[start : start + PAGE_BYTES]) == int(self._checksums[page])

    def _check(self, page: int) -> None:
        start = page << _PAGE_BITS
        if not self._fits(page):
            raise self.error(start, "a page with its checksum", "other bytes")
        # After the comparison: a damaged page is never marked, and each later look at it fails again.
        self._is_checked[page] = 1


def numbers_at(data: Bytes, places: Ints, dtype: str) -> npt.NDArray[np.int64]:
    """Return the number at each place as 64 bits; the places were checked."""
    if not len(places):
        return np.empty(0, np.int64)
    return window(data, np.dtype(dtype))[places].astype(np.int64)


def window(data: Bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return what would be read at each place of some bytes: element i begins at byte i."""
    return np.ndarray((len(data) - dtype.itemsize + 1,), dtype, buffer=data.data, strides=(1,))


def _runs(pages: list[int]) -> Iterator[tuple[int, int]]:
    """Yield the first of some pages, which go up, and the one behind the last, for each run without a gap."""
    first = pages[0]
    for page, following in zip(pages, [*pages[1:], -1], strict=True):
        if following != page + 1:
            yield first, page + 1
            first = following
