"""The index beside a table's file: which keys it holds, and where its row groups begin (docs/formats/swh-index.md).

It is exact: of a key that it does not hold the file has no row. So of many files only those are opened that answer.
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
_HEAD = struct.Struct("<8sQQQIIQ")
_DIGEST_BYTES = 32
_WORD_BYTES = 8


@dataclass(frozen=True, slots=True)
class KeyIndex:
    """The keys of one file and the first key of each of its row groups."""

    first: int
    """The smallest key; the set holds the distances from it."""
    last: int
    keys: EliasFano
    group_firsts: np.ndarray

    @classmethod
    def of(cls, keys: np.ndarray, group_firsts: np.ndarray) -> KeyIndex:
        """Build the index of a file that has a row, from its different keys, sorted (uint64)."""
        return cls(int(keys[0]), int(keys[-1]), EliasFano.of(keys - keys[0]), group_firsts)

    def held(self, keys: np.ndarray) -> np.ndarray:
        """Return those of some keys (uint64) that the file has rows of."""
        inside = keys[(keys >= np.uint64(self.first)) & (keys <= np.uint64(self.last))]
        if len(inside) == 0:
            return inside
        found: np.ndarray = inside[self.keys.contains(inside - np.uint64(self.first))]
        return found

    def groups(self, keys: np.ndarray) -> list[int]:
        """Return the row groups that hold the rows of some keys of this file, in order."""
        # The rows of a key may begin in the group before the one that it is the first of.
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
            *(self.keys.low_bits, len(self.group_firsts), len(self.keys.highs)),
        )
        arrays = (self.group_firsts, self.keys.lows, self.keys.highs)
        body = head + b"".join(array.astype("<u8", copy=False).tobytes() for array in arrays)
        return body + hashlib.sha256(body).digest()


def read_index(fs: FileSystem, path: Path) -> KeyIndex:
    """Map an index and check it.

    Raises:
        FormatVersionError: it was written by a newer custody.
        CorruptionError: it is damaged.
        StorageError: it cannot be read.
    """
    data = fs.view(path)
    if data[:7] == PREAMBLE[:7] and len(data) > 7 and data[7] != PREAMBLE[7]:
        raise FormatVersionError(f"{path} @7: expected an index of keys of version 1, got {data[7]}.")
    if len(data) < _HEAD.size + _DIGEST_BYTES or data[:8] != PREAMBLE:
        raise CorruptionError(f"{path} @0: expected an index of keys, got {len(data)} bytes of something else.")
    body = data[:-_DIGEST_BYTES]
    if hashlib.sha256(body).digest() != bytes(data[-_DIGEST_BYTES:]):
        raise CorruptionError(f"{path} @0: the SHA-256 of the index does not match. Build the database anew.")
    _, first, last, count, low_bits, groups, highs = _HEAD.unpack_from(data)
    lows = low_words(count, low_bits)
    if len(body) != _HEAD.size + _WORD_BYTES * (groups + lows + highs):
        raise CorruptionError(f"{path} @{_HEAD.size}: expected {groups + lows + highs} words behind the head.")
    words = np.frombuffer(body, "<u8", offset=_HEAD.size)
    keys = EliasFano.from_words(count, low_bits, words[groups : groups + lows], words[groups + lows :])
    return KeyIndex(first, last, keys, words[:groups])
