"""The index beside a table's file: which keys it holds, and where its row groups begin (docs/formats/swh-index.md).

It is exact: of a key that it does not hold the file has no row. So of many files only those are opened that answer. It
also vouches for the footer of the file, which Parquet keeps no checksum of: with the checksums of the pages nothing
that an answer is made from goes unchecked.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from custody.errors import CorruptionError, FormatVersionError
from custody.swh.elias_fano import EliasFano, low_words
from custody.vfs import FileSystem

INDEX_SUFFIX = ".ef"
PREAMBLE = b"CUSTSEF\x01"
_HEAD = struct.Struct("<8sQQQIIQ32s")
_DIGEST_BYTES = 32
_WORD_BYTES = 8
_FOOTER_TAIL = 8
"""The length of the footer and the bytes that end a Parquet file."""


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The keys of one file and the first key of each of its row groups."""

    first: int
    """The smallest key; the set holds the distances from it."""
    last: int
    keys: EliasFano
    group_firsts: np.ndarray
    footer_sha256: bytes
    """SHA-256 of the footer of the file that it belongs to."""
    sha256: bytes = b""
    """SHA-256 of the index's own file, when it was read from one."""

    @classmethod
    def of(cls, keys: np.ndarray, group_firsts: np.ndarray, footer_sha256: bytes) -> KeyIndex:
        """Build the index of a file that has a row, from its different keys, sorted (uint64)."""
        return cls(int(keys[0]), int(keys[-1]), EliasFano.of(keys - keys[0]), group_firsts, footer_sha256)

    def holds(self, key: int) -> bool:
        """Whether the file has a row of a key."""
        return self.first <= key <= self.last and self.keys.holds(key - self.first)

    def held(self, keys: np.ndarray) -> np.ndarray:
        """Return those of some keys (uint64) that the file has rows of."""
        inside = keys[(keys >= np.uint64(self.first)) & (keys <= np.uint64(self.last))]
        if len(inside) == 0:
            return inside
        found: np.ndarray = inside[self.keys.contains(inside - np.uint64(self.first))]
        return found

    def groups_of(self, key: int) -> range:
        """Return the row groups that hold the rows of a key of this file."""
        wanted = np.uint64(key)
        # The rows of a key may begin in the group before the one that it is the first of.
        begin = max(int(self.group_firsts.searchsorted(wanted, "left")) - 1, 0)
        return range(begin, int(self.group_firsts.searchsorted(wanted, "right")))

    def groups(self, keys: np.ndarray) -> list[int]:
        """Return the row groups that hold the rows of some keys of this file, in order."""
        begin = np.maximum(np.searchsorted(self.group_firsts, keys, side="left") - 1, 0)
        end = np.searchsorted(self.group_firsts, keys, side="right")
        marks = np.zeros(len(self.group_firsts) + 1, np.int64)
        np.add.at(marks, begin, 1)
        np.add.at(marks, end, -1)
        return [int(group) for group in np.flatnonzero(np.cumsum(marks)[:-1])]

    def encode(self) -> bytes:
        """Return the content of the index's file."""
        head = _HEAD.pack(
            *(PREAMBLE, self.first, self.last, self.keys.count),
            *(self.keys.low_bits, len(self.group_firsts), len(self.keys.highs), self.footer_sha256),
        )
        arrays = (self.group_firsts, self.keys.lows, self.keys.highs)
        body = head + b"".join(array.astype("<u8", copy=False).tobytes() for array in arrays)
        return body + hashlib.sha256(body).digest()


def footer_digest(file: memoryview, path: Path) -> bytes:
    """Return the SHA-256 of the footer of a Parquet file, with its length and the bytes that end the file.

    Raises:
        CorruptionError: the file has no footer.
    """
    length = int.from_bytes(file[-_FOOTER_TAIL:-4], "little")
    start = len(file) - _FOOTER_TAIL - length
    if bytes(file[-4:]) != b"PAR1" or start < len(b"PAR1"):
        raise CorruptionError(f"{path} @{max(len(file) - _FOOTER_TAIL, 0)}: expected the end of a Parquet file.")
    return hashlib.sha256(file[start:]).digest()


def read_index(fs: FileSystem, path: Path, sha256: bytes | None = None) -> KeyIndex:
    """Map an index and check it; with `sha256`, also that it is the one that the catalog lists.

    Raises:
        FormatVersionError: it was written by a newer custody.
        CorruptionError: it is damaged, or another one is in its place.
        StorageError: it cannot be read.
    """
    data = fs.view(path)
    if data[:7] == PREAMBLE[:7] and len(data) > 7 and data[7] != PREAMBLE[7]:
        raise FormatVersionError(f"{path} @7: expected an index of keys of version 1, got {data[7]}.")
    if len(data) < _HEAD.size + _DIGEST_BYTES or data[:8] != PREAMBLE:
        raise CorruptionError(f"{path} @0: expected an index of keys, got {len(data)} bytes of something else.")
    body = data[:-_DIGEST_BYTES]
    digest, stored = hashlib.sha256(body), bytes(data[-_DIGEST_BYTES:])
    if digest.digest() != stored:
        raise CorruptionError(f"{path} @0: the SHA-256 of the index does not match. Build the database anew.")
    digest.update(stored)
    if sha256 is not None and digest.digest() != sha256:
        raise CorruptionError(
            f"{path} @0: expected the index with the SHA-256 {sha256.hex()}, as the catalog says, got "
            f"{digest.hexdigest()}. Build the database anew."
        )
    _, first, last, count, low_bits, groups, highs, footer = _HEAD.unpack_from(data)
    lows = low_words(count, low_bits)
    if len(body) != _HEAD.size + _WORD_BYTES * (groups + lows + highs):
        raise CorruptionError(f"{path} @{_HEAD.size}: expected {groups + lows + highs} words behind the head.")
    words = np.frombuffer(body, "<u8", offset=_HEAD.size)
    keys = EliasFano.from_words(count, low_bits, words[groups : groups + lows], words[groups + lows :])
    if low_bits >= _WORD_BYTES * 8 or groups == 0 or not keys.is_sound:
        raise CorruptionError(f"{path} @32: expected {count} keys with {low_bits} lower bits, got others.")
    return KeyIndex(first, last, keys, words[:groups], footer, digest.digest())
