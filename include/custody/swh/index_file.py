"""The index beside a table's file: which keys the file holds, and where its pages are (docs/formats/swh-index.md).

It is exact: the file has no row of a key that the index does not hold, so of many files only those with an answer are
read. The head is checked as a whole. It vouches for the blocks of the rest, each of which is checked when it is first
needed, and these vouch for the pages of the file. So nothing that an answer is made from goes unchecked, and little
else is read. Indexes are mapped without read-ahead.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from custody.errors import CorruptionError, FormatVersionError
from custody.swh.elias_fano import WORD_BYTES, CheckedWords, EliasFano, blocks_of, low_words, sums_of
from custody.swh.pages import COLUMN, PageIndex, page_words
from custody.vfs import FileSystem, advise_random_access

if TYPE_CHECKING:
    from custody.store.ranged_file import RangedFile

INDEX_SUFFIX = ".ef"
PREAMBLE = b"CUSTSEF\x01"
# On disk (docs/formats/swh-index.md): preamble, first and last key, number of keys, lower bits, columns, upper words,
# pages, SHA-256 of the table's file.
_HEAD = struct.Struct("<8sQQQIIQQ32s")
_DIGEST_BYTES = 32
_HEAD_BYTES = 64 << 10
"""The first request of an index in an object store: the head of a file of some million rows."""
_KEYS_MAX = 1 << 48
"""More keys, words or pages than a file has: what a hostile head says is refused before it is added up."""


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The keys of one file and its pages."""

    first: int
    """The smallest key; the set holds the distances from it."""
    last: int
    keys: EliasFano
    pages: PageIndex
    file_sha256: bytes
    """SHA-256 of the file that it belongs to."""
    words: CheckedWords

    @classmethod
    def of(
        cls, keys: np.ndarray, columns: np.ndarray, firsts: np.ndarray, places: np.ndarray, file_sha256: bytes
    ) -> KeyIndex:
        """Build the index of a file that has a row.

        Args:
            keys: its different keys, sorted (uint64).
            columns: of each column how it is stored (`COLUMN`).
            firsts: the first key of each page.
            places: of each page a row of words, as `PageIndex` has them.
        """
        # Distances from the first key: smaller numbers take fewer bits.
        held = EliasFano.of(keys - keys[0])
        words = CheckedWords(np.concatenate([held.words.part(0, len(held.words)), firsts, places.reshape(-1)]))
        start = len(held.words)
        pages = PageIndex(columns, words, start, len(firsts))
        return cls(int(keys[0]), int(keys[-1]), held, pages, file_sha256, words)

    def holds(self, key: int) -> bool:
        """Whether the file has a row of a key."""
        return self.first <= key <= self.last and self.keys.holds(key - self.first)

    def held(self, keys: np.ndarray) -> np.ndarray:
        """Return those of some keys (uint64) that the file has rows of."""
        inside = keys[(keys >= np.uint64(self.first)) & (keys <= np.uint64(self.last))]
        if len(inside) == 0:
            return inside
        keys_held: np.ndarray = inside[self.keys.contains(inside - np.uint64(self.first))]
        return keys_held

    def check(self) -> None:
        """Check all blocks.

        Raises:
            CorruptionError: one is damaged.
        """
        self.words.part(0, len(self.words))
        self.keys.check()

    def encode(self) -> bytes:
        """Return the content of the index's file."""
        body = np.ascontiguousarray(self.words.part(0, len(self.words)), "<u8")
        head = _HEAD.pack(
            *(PREAMBLE, self.first, self.last, self.keys.count, self.keys.low_bits, len(self.pages.columns)),
            *(self.keys.high_words, self.pages.count, self.file_sha256),
        )
        sums = sums_of(body).tobytes()
        before = self.keys.ones_before.astype("<u8").tobytes()
        head = b"".join((head, self.pages.columns.tobytes(), before, sums, bytes(-len(sums) % WORD_BYTES)))
        return head + hashlib.sha256(head).digest() + body.tobytes()


def read_index(
    fs: FileSystem, path: Path, file_sha256: bytes | None = None, ranged: RangedFile | None = None
) -> KeyIndex:
    """Map an index and check its head; with `file_sha256`, also that it is that of the file the catalog lists.

    Args:
        ranged: the index, where it lies in an object store and is read by ranges; `path` is for messages then.

    Raises:
        FormatVersionError: it was written by a newer custody.
        CorruptionError: it is damaged, or another one is in its place.
        StorageError: it cannot be read.
    """
    data = mmap_random(fs, path) if ranged is None else _with_head(ranged)
    if data[:7] == PREAMBLE[:7] and len(data) > 7 and data[7] != PREAMBLE[7]:
        raise FormatVersionError(f"{path} @7: expected an index of keys of version 1, got {data[7]}.")
    if len(data) < _HEAD.size or data[:8] != PREAMBLE:
        raise CorruptionError(f"{path} @0: expected an index of keys, got {len(data)} bytes of something else.")
    _, first, last, count, low_bits, columns, highs, pages, file = _HEAD.unpack_from(data)
    if max(count, highs, pages) > _KEYS_MAX or low_bits >= WORD_BYTES * 8:
        raise CorruptionError(f"{path} @24: expected an index of keys, got a head of impossible numbers.")
    words = highs + low_words(count, low_bits) + page_words(pages, columns)
    places, sums, end = _parts_of_head(columns, highs, words)
    body = end + _DIGEST_BYTES
    # Sizes before digests: they say where the digest lies, and nothing is read beyond the end.
    if len(data) != body + WORD_BYTES * words:
        raise CorruptionError(f"{path} @{body}: expected {words} words behind the head, in {len(data)} bytes in all.")
    if hashlib.sha256(data[:end]).digest() != data[end:body]:
        raise CorruptionError(f"{path} @0: the SHA-256 of the index's head does not match. Build the database anew.")
    if file_sha256 is not None and file != file_sha256:
        raise CorruptionError(
            f"{path} @56: expected the index of the file with the SHA-256 {file_sha256.hex()}, as the catalog says, "
            f"got that of {file.hex()}. Build the database anew."
        )
    checked = CheckedWords(
        *(np.frombuffer(data, "<u8", offset=body), np.frombuffer(data, "<u4", blocks_of(words), sums), path, body),
        ranged=ranged,
    )
    ones = np.frombuffer(data, "<u8", blocks_of(highs), places)
    keys = EliasFano.from_words(count, low_bits, highs, checked, ones)
    # The digest proves that the head is as it was written, not that its numbers are possible.
    if pages == 0 or count == 0 or not keys.is_sound:
        raise CorruptionError(f"{path} @24: expected {count} keys with {low_bits} lower bits, got others.")
    described = np.frombuffer(data, COLUMN, columns, _HEAD.size)
    start = highs + low_words(count, low_bits)
    return KeyIndex(first, last, keys, PageIndex(described, checked, start, pages), file, checked)


def _parts_of_head(columns: int, highs: int, words: int) -> tuple[int, int, int]:
    """Where the counts of ones and the checksums begin, and where the head ends before its digest."""
    places = _HEAD.size + COLUMN.itemsize * columns
    sums = places + WORD_BYTES * blocks_of(highs)
    return places, sums, sums + -(-4 * blocks_of(words) // WORD_BYTES) * WORD_BYTES


def _with_head(ranged: RangedFile) -> memoryview:
    """Return the bytes of an index in an object store, of which the head was fetched; the caller judges it."""
    data = ranged.view
    if not _has_whole_head(data):
        ranged.fetch(
            [(0, min(len(data), _HEAD_BYTES))], lambda span: _head_end(data) > span[1] or _has_whole_head(data)
        )
    if _HEAD_BYTES < _head_end(data) <= len(data) and not _has_whole_head(data):
        ranged.fetch([(0, _head_end(data))], lambda span: _has_whole_head(data))
    return data


def _head_end(data: memoryview) -> int:
    """Return how far the head reaches by its own numbers, its digest included; 0 where they make no sense."""
    if len(data) < _HEAD.size or data[: len(PREAMBLE)] != PREAMBLE:
        return 0
    _, _, _, count, low_bits, columns, highs, pages, _ = _HEAD.unpack_from(data)
    if max(count, highs, pages) > _KEYS_MAX or low_bits >= WORD_BYTES * 8:
        return 0
    words = highs + low_words(count, low_bits) + page_words(pages, columns)
    return _parts_of_head(columns, highs, words)[2] + _DIGEST_BYTES


def _has_whole_head(data: memoryview) -> bool:
    end = _head_end(data)
    body = end - _DIGEST_BYTES
    return 0 < end <= len(data) and hashlib.sha256(data[:body]).digest() == data[body:end]


def mmap_random(fs: FileSystem, path: Path) -> memoryview:
    """Return the whole content of a file; nothing is read ahead, which may be megabytes for each place.

    Raises:
        StorageError: it cannot be read.
    """
    view = fs.view(path)
    advise_random_access(view)
    return view
