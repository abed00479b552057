"""Words of a mapped file, of which each block is compared with its checksum before it is used for the first time.

So a question reads and checks the few blocks that its answer rests on, and not the whole file.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from custody.errors import CorruptionError

BLOCK_WORDS = 512
"""Words of 8 bytes that one checksum is of; part of the format."""
BLOCK_SHIFT = 9
WORD_BYTES = 8


class CheckedWords:
    """Words (u64) and the CRC-32 of each block of them; for any number of threads.

    Args:
        sums: None when the words were just made, and need no check.
        path: the file that they are in, with `offset` of the first one; for errors.
    """

    def __init__(
        self, words: np.ndarray, sums: np.ndarray | None = None, path: Path | None = None, offset: int = 0
    ) -> None:
        self._words = words
        self._sums = sums
        self.path = path
        self._offset = offset
        blocks = blocks_of(len(words))
        self._is_checked = bytearray(blocks) if sums is not None else bytearray(b"\x01") * blocks

    def at(self, place: int) -> int:
        """Return one word."""
        if not self._is_checked[place >> BLOCK_SHIFT]:
            self._check(place >> BLOCK_SHIFT)
        return int(self._words[place])

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the words at some places."""
        for block in np.unique(places >> BLOCK_SHIFT).tolist():
            if not self._is_checked[block]:
                self._check(block)
        found: np.ndarray = self._words[places]
        return found

    def part(self, start: int, end: int) -> np.ndarray:
        """Return the words from one place to before another."""
        for block in range(start >> BLOCK_SHIFT, blocks_of(end)):
            if not self._is_checked[block]:
                self._check(block)
        return self._words[start:end]

    def _check(self, block: int) -> None:
        start = block * BLOCK_WORDS
        if self._sums is not None and zlib.crc32(self._words[start : start + BLOCK_WORDS].data) != self._sums[block]:
            raise CorruptionError(
                f"{self.path} @{self._offset + start * WORD_BYTES}: the checksum of a block of the index does not "
                "match. Build the database anew."
            )
        # Threads that check a block at the same time find the same.
        self._is_checked[block] = 1

    def __len__(self) -> int:
        """How many words there are."""
        return len(self._words)


def blocks_of(words: int) -> int:
    """Return how many blocks so many words are, the last one not full."""
    return -(-words // BLOCK_WORDS)


def sums_of(words: np.ndarray) -> np.ndarray:
    """Return the checksums of the blocks of words (u32)."""
    data = np.ascontiguousarray(words, "<u8").data.cast("B")
    step = BLOCK_WORDS * WORD_BYTES
    return np.array([zlib.crc32(data[start : start + step]) for start in range(0, len(data), step)], "<u4")
