"""A sorted set of numbers in little more than two bits each, plus what the gaps between them need (Elias and Fano).

Of each number the lower `low_bits` bits are stored as they are. The upper parts rise from number to number, so they are
stored as a row of bits: for each possible upper part a one for every number that has it, then a zero. A number is
looked up by jumping to the zero before its upper part, without unpacking anything else. The count of ones before each
block of the row is stored too, so that only the block with that zero is read.

The words lie in a mapped file. Each block of them is compared with its checksum before it is used for the first time,
so a query reads and checks the few blocks that its answer rests on, and not the whole file. Of a file in an object
store these blocks are all that is fetched.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from zlib_ng import zlib_ng

from custody.errors import CorruptionError
from custody.format.number_sets import distinct

if TYPE_CHECKING:
    from custody.store.ranged_file import RangedFile, Span

BLOCK_WORDS = 512
"""Words of 8 bytes that one checksum is of; part of the format."""
BLOCK_SHIFT = 9
WORD_BYTES = 8
_WORD = 64
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class EliasFano:
    """A set of `count` different numbers; `words` begins with `high_words` upper words, then lower words."""

    count: int
    low_bits: int
    high_words: int
    words: CheckedWords
    ones_before: np.ndarray
    """Of each block of upper words, how many ones the blocks before it hold (u64)."""
    _zeros_before_block: np.ndarray
    _zeros_before: np.ndarray
    """Of each upper word, how many zeros the words before it hold: filled a block at a time."""
    _is_counted: bytearray

    @classmethod
    def of(cls, numbers: np.ndarray) -> EliasFano:
        """Build the set of numbers that are sorted and all different (uint64)."""
        count = len(numbers)
        low_bits = low_bits_for(count, int(numbers[-1]) if count else 0)
        shift = np.uint64(low_bits)
        lows = _packed(numbers & ((_ONE << shift) - _ONE), low_bits)
        upper = (numbers >> shift).astype(np.int64)
        last = int(upper[-1]) if count else 0
        # A one for each number and a zero for each possible upper part.
        bits = np.zeros(-(-(count + last + 1) // _WORD) * _WORD, np.uint8)
        bits[upper + np.arange(count)] = 1
        highs = np.packbits(bits, bitorder="little").view("<u8")
        ones = np.cumsum(np.bitwise_count(highs), dtype=np.uint64)
        before = np.concatenate([np.zeros(1, np.uint64), ones[BLOCK_WORDS - 1 :: BLOCK_WORDS]])[: blocks_of(len(highs))]
        return cls.from_words(count, low_bits, len(highs), CheckedWords(np.concatenate([highs, lows])), before)

    @classmethod
    def from_words(
        cls, count: int, low_bits: int, high_words: int, words: CheckedWords, ones_before: np.ndarray
    ) -> EliasFano:
        """Take a set as it was stored."""
        blocks = np.arange(len(ones_before) + 1, dtype=np.int64) * (BLOCK_WORDS * _WORD)
        # The last block may not be full.
        blocks[-1] = high_words * _WORD
        zeros = blocks - np.append(ones_before.astype(np.int64), count)
        counted = bytearray(len(ones_before))
        return cls(count, low_bits, high_words, words, ones_before, zeros, np.empty(high_words, np.int64), counted)

    @property
    def is_sound(self) -> bool:
        """Whether the numbers of ones can be those of its blocks: others could name places that are not there."""
        zeros = self._zeros_before_block
        sizes = np.diff(zeros)
        return bool(zeros[0] == 0 and (sizes >= 0).all() and (sizes <= BLOCK_WORDS * _WORD).all())

    def holds(self, number: int) -> bool:
        """Whether a number is in the set: as `contains`, for one, which plain integers are faster for than arrays."""
        upper = number >> self.low_bits
        # There are fewer zeros than that: no number of the set has such an upper part.
        if upper >= self.high_words * _WORD - self.count:
            return False
        end = self._zero_at(upper) - upper
        start = self._zero_at(upper - 1) - upper + 1 if upper else 0
        low_part = number & ((1 << self.low_bits) - 1)
        bound = end
        while start < bound:
            middle = (start + bound) >> 1
            if self._low_at(middle) < low_part:
                start = middle + 1
            else:
                bound = middle
        return start < end and self._low_at(start) == low_part

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Return for each number (uint64) whether it is in the set."""
        shift = np.uint64(self.low_bits)
        upper = (numbers >> shift).astype(np.int64)
        inside = upper < self.high_words * _WORD - self.count
        contained = np.zeros(len(numbers), bool)
        upper = upper[inside]
        if len(upper) == 0:
            return contained
        low_parts = numbers[inside] & ((_ONE << shift) - _ONE)
        end = self._zero(upper) - upper
        start = np.where(upper > 0, self._zero(np.maximum(upper - 1, 0)) - upper + 1, 0)
        # Bisection in all buckets at once: most hold one number or two.
        bound = end.copy()
        while (open_ := start < bound).any():
            middle = (start + bound) >> 1
            smaller = open_.copy()
            smaller[open_] = self._low(middle[open_]) < low_parts[open_]
            start = np.where(smaller, middle + 1, start)
            bound = np.where(open_ & ~smaller, middle, bound)
        hit = start < end
        hit[hit] = self._low(start[hit]) == low_parts[hit]
        contained[inside] = hit
        return contained

    def numbers(self) -> np.ndarray:
        """Return the whole set, sorted."""
        bits = np.unpackbits(self.words.part(0, self.high_words).view(np.uint8), bitorder="little")
        ones = np.flatnonzero(bits)[: self.count]
        upper = (ones - np.arange(self.count)).astype(np.uint64) << np.uint64(self.low_bits)
        whole: np.ndarray = upper | self._low(np.arange(self.count))
        return whole

    def check(self) -> None:
        """Compare the numbers of ones with the words.

        Raises:
            CorruptionError: a block of words is damaged, or has another number of ones.
        """
        for block in range(len(self.ones_before)):
            self._count(block)

    def _count(self, block: int) -> None:
        """Count the zeros before each word of a block."""
        start = block * BLOCK_WORDS
        end = min(start + BLOCK_WORDS, self.high_words)
        zeros = _WORD - np.bitwise_count(self.words.part(start, end)).astype(np.int64)
        before = np.cumsum(zeros) - zeros + self._zeros_before_block[block]
        # The counts in the head chose this block: with wrong ones the search would look in the wrong place.
        if before[-1] + zeros[-1] != self._zeros_before_block[block + 1]:
            raise CorruptionError(f"{self.words.path}: expected another number of keys in block {block} of the index.")
        # Filled before the block is marked as counted: a thread that sees the mark sees the numbers too.
        self._zeros_before[start:end] = before
        # Threads that count a block at the same time write the same.
        self._is_counted[block] = 1

    def _zero(self, number: np.ndarray) -> np.ndarray:
        """The positions of zeros, each given by its number."""
        block = np.searchsorted(self._zeros_before_block, number, side="right") - 1
        for one in distinct(block).tolist():
            if not self._is_counted[one]:
                self._count(one)
        # Bisection in all blocks at once, for the last word that no more zeros are before.
        word = block << BLOCK_SHIFT
        for step in (1 << bit for bit in reversed(range(BLOCK_SHIFT))):
            last = np.minimum(word + step, self.high_words - 1)
            word = np.where((last == word + step) & (self._zeros_before[last] <= number), last, word)
        rest = number - self._zeros_before[word]
        bits = np.unpackbits(self.words.take(word).view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        inside: np.ndarray = (np.cumsum(bits == 0, axis=1) == (rest + 1)[:, None]).argmax(axis=1)
        place: np.ndarray = word * _WORD + inside
        return place

    def _zero_at(self, number: int) -> int:
        """The position of a zero, given by its number."""
        block = int(self._zeros_before_block.searchsorted(number, "right")) - 1
        if not self._is_counted[block]:
            self._count(block)
        start = block << BLOCK_SHIFT
        before = self._zeros_before[start : start + BLOCK_WORDS]
        inside = int(before.searchsorted(number, "right")) - 1
        zeros = ~self.words.at(start + inside)
        for _ in range(number - int(before[inside])):
            zeros &= zeros - 1  # without its lowest one
        return (start + inside) * _WORD + (zeros & -zeros).bit_length() - 1

    def _low_at(self, place: int) -> int:
        """The lower bits of the number at a place."""
        if self.low_bits == 0:
            return 0
        word, offset = divmod(place * self.low_bits, _WORD)
        word += self.high_words
        both = self.words.at(word) | self.words.at(word + 1) << _WORD
        return both >> offset & ((1 << self.low_bits) - 1)

    def _low(self, place: np.ndarray) -> np.ndarray:
        """The lower bits of the numbers at some places."""
        if self.low_bits == 0 or len(place) == 0:
            return np.zeros(len(place), np.uint64)
        bit = place.astype(np.uint64) * np.uint64(self.low_bits)
        word, offset = (bit >> np.uint64(6)).astype(np.int64) + self.high_words, bit & np.uint64(_WORD - 1)
        low = self.words.take(word) >> offset
        # Shifted twice, as a shift by 64 is no zero.
        high = (self.words.take(word + 1) << (np.uint64(_WORD - 1) - offset)) << _ONE
        value: np.ndarray = (low | high) & ((_ONE << np.uint64(self.low_bits)) - _ONE)
        return value


class CheckedWords:
    """Words (u64) and the CRC-32 of each block of them; for any number of threads.

    Args:
        sums: None when the words were just made, and need no check.
        path: the file that they are in, with `offset` of the first one; for errors.
        ranged: the file, where it lies in an object store and blocks are fetched as they are needed.
    """

    def __init__(
        self,
        words: np.ndarray,
        sums: np.ndarray | None = None,
        path: Path | None = None,
        offset: int = 0,
        ranged: RangedFile | None = None,
    ) -> None:
        self._words = words
        self._sums = sums
        self.path = path
        self._offset = offset
        self._ranged = ranged
        blocks = blocks_of(len(words))
        # A byte a block: threads set them without a lock, as they only ever set the same value.
        self._is_checked = bytearray(blocks) if sums is not None else bytearray(b"\x01") * blocks

    def at(self, place: int) -> int:
        """Return one word."""
        if not self._is_checked[place >> BLOCK_SHIFT]:
            self._check([place >> BLOCK_SHIFT])
        return int(self._words[place])

    def take(self, places: np.ndarray) -> np.ndarray:
        """Return the words at some places."""
        self._check([block for block in distinct(places >> BLOCK_SHIFT).tolist() if not self._is_checked[block]])
        words: np.ndarray = self._words[places]
        return words

    def part(self, start: int, end: int) -> np.ndarray:
        """Return the words from one place to before another."""
        blocks = range(start >> BLOCK_SHIFT, blocks_of(end))
        self._check([block for block in blocks if not self._is_checked[block]])
        return self._words[start:end]

    def _check(self, blocks: Sequence[int]) -> None:
        damaged = [block for block in blocks if not self._is_whole(block)]
        if damaged and self._ranged is not None:
            spans = {self._span(block): block for block in damaged}
            self._ranged.fetch(spans, lambda span: self._is_whole(spans[span]))
            damaged = [block for block in damaged if not self._is_whole(block)]
        if damaged:
            raise CorruptionError(
                f"{self.path} @{self._span(damaged[0])[0]}: the checksum of a block of the index does not match. "
                "Build the database anew."
            )
        for block in blocks:
            # Threads that check a block at the same time find the same.
            self._is_checked[block] = 1

    def _is_whole(self, block: int) -> bool:
        start = block * BLOCK_WORDS
        return self._sums is None or zlib_ng.crc32(self._words[start : start + BLOCK_WORDS].data) == self._sums[block]

    def _span(self, block: int) -> Span:
        """Where a block is in the file."""
        start = self._offset + block * BLOCK_WORDS * WORD_BYTES
        return start, min(start + BLOCK_WORDS * WORD_BYTES, self._offset + len(self._words) * WORD_BYTES)

    def __len__(self) -> int:
        """Return the number of words."""
        return len(self._words)


def blocks_of(words: int) -> int:
    """Return how many blocks so many words are, the last one not full."""
    return -(-words // BLOCK_WORDS)


def sums_of(words: np.ndarray) -> np.ndarray:
    """Return the checksums of the blocks of words (u32)."""
    data = np.ascontiguousarray(words, "<u8").data.cast("B")
    step = BLOCK_WORDS * WORD_BYTES
    return np.array([zlib_ng.crc32(data[start : start + step]) for start in range(0, len(data), step)], "<u4")


def low_bits_for(count: int, last: int) -> int:
    """Return how many lower bits are best for `count` numbers up to `last`."""
    return max((last // count).bit_length() - 1, 0) if count else 0


def low_words(count: int, low_bits: int) -> int:
    """Return how many words the lower bits take: one more than they fill, so that each is read from two."""
    return count * low_bits // _WORD + 2 if low_bits else 0


def _packed(values: np.ndarray, width: int) -> np.ndarray:
    words = np.zeros(low_words(len(values), width), "<u8")
    if width:
        bit = np.arange(len(values), dtype=np.uint64) * np.uint64(width)
        word, offset = (bit >> np.uint64(6)).astype(np.int64), bit & np.uint64(_WORD - 1)
        # With `.at`, as several numbers share a word: a plain assignment would keep only the last of them.
        np.bitwise_or.at(words, word, values << offset)
        np.bitwise_or.at(words, word + 1, (values >> (np.uint64(_WORD - 1) - offset)) >> _ONE)
    return words
