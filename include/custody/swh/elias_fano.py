"""A sorted set of numbers in little more than two bits each, plus what the gaps between them need (Elias and Fano).

Of each number the lower `low_bits` bits are stored as they are. The upper parts go up from number to number, so they
are stored as a row of bits: for each possible upper part the numbers that have it as ones, then a zero. Whether a
number is in the set is found by jumping to the zero before its upper part, without unpacking anything else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

_WORD = 64
_ONE = np.uint64(1)


@dataclass(frozen=True, slots=True)
class EliasFano:
    """A set of `count` different numbers; `lows` and `highs` are words of 64 bits, the lowest bit first."""

    count: int
    low_bits: int
    lows: np.ndarray
    highs: np.ndarray
    zeros_before: np.ndarray
    """Of each word of `highs`, how many zeros the words before it hold."""

    @classmethod
    def of(cls, numbers: np.ndarray) -> EliasFano:
        """Build the set of numbers that are sorted and all different (uint64)."""
        count = len(numbers)
        low_bits = low_bits_for(count, int(numbers[-1]) if count else 0)
        shift = np.uint64(low_bits)
        lows = _packed(numbers & ((_ONE << shift) - _ONE), low_bits)
        upper = (numbers >> shift).astype(np.int64)
        last = int(upper[-1]) if count else 0
        bits = np.zeros(-(-(count + last + 1) // _WORD) * _WORD, np.uint8)
        bits[upper + np.arange(count)] = 1
        highs = np.packbits(bits, bitorder="little").view("<u8")
        return cls.from_words(count, low_bits, lows, highs)

    @classmethod
    def from_words(cls, count: int, low_bits: int, lows: np.ndarray, highs: np.ndarray) -> EliasFano:
        """Take a set as it was stored."""
        zeros = _WORD - np.bitwise_count(highs).astype(np.int64)
        return cls(count, low_bits, lows, highs, np.cumsum(zeros) - zeros)

    @property
    def is_sound(self) -> bool:
        """Whether there are as many numbers as it says: a set of other words could name places that are not there."""
        return int(np.bitwise_count(self.highs).sum()) == self.count

    def holds(self, number: int) -> bool:
        """Whether a number is in the set: as `contains`, for one, which plain integers are faster for than arrays."""
        upper = number >> self.low_bits
        if upper >= len(self.highs) * _WORD - self.count:
            return False
        end = self._zero_at(upper) - upper
        start = self._zero_at(upper - 1) - upper + 1 if upper else 0
        wanted = number & ((1 << self.low_bits) - 1)
        bound = end
        while start < bound:
            middle = (start + bound) >> 1
            if self._low_at(middle) < wanted:
                start = middle + 1
            else:
                bound = middle
        return start < end and self._low_at(start) == wanted

    def contains(self, numbers: np.ndarray) -> np.ndarray:
        """Return for each number (uint64) whether it is in the set."""
        shift = np.uint64(self.low_bits)
        upper = (numbers >> shift).astype(np.int64)
        zeros = len(self.highs) * _WORD - self.count
        inside = upper < zeros
        upper = np.where(inside, upper, 0)
        wanted = numbers & ((_ONE << shift) - _ONE)
        end = self._zero(upper) - upper
        start = np.where(upper > 0, self._zero(np.maximum(upper - 1, 0)) - upper + 1, 0)
        # Bisection in all buckets at once: most hold one number or two.
        bound = end.copy()
        while (open_ := start < bound).any():
            middle = (start + bound) >> 1
            smaller = open_ & (self._low(np.where(open_, middle, 0)) < wanted)
            start = np.where(smaller, middle + 1, start)
            bound = np.where(open_ & ~smaller, middle, bound)
        found: np.ndarray = inside & (start < end)
        found[found] = self._low(start[found]) == wanted[found]
        return found

    def numbers(self) -> np.ndarray:
        """Return the whole set, sorted."""
        bits = np.unpackbits(self.highs.view(np.uint8), bitorder="little")
        ones = np.flatnonzero(bits)[: self.count]
        upper = (ones - np.arange(self.count)).astype(np.uint64) << np.uint64(self.low_bits)
        whole: np.ndarray = upper | self._low(np.arange(self.count))
        return whole

    def _zero(self, number: np.ndarray) -> np.ndarray:
        """The positions of zeros, each given by its number."""
        word = np.searchsorted(self.zeros_before, number, side="right") - 1
        rest = number - self.zeros_before[word]
        bits = np.unpackbits(self.highs[word].view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        inside: np.ndarray = (np.cumsum(bits == 0, axis=1) == (rest + 1)[:, None]).argmax(axis=1)
        place: np.ndarray = word * _WORD + inside
        return place

    def _zero_at(self, number: int) -> int:
        """The position of a zero, given by its number."""
        word = int(self.zeros_before.searchsorted(number, "right")) - 1
        zeros = ~int(self.highs[word])
        for _ in range(number - int(self.zeros_before[word])):
            zeros &= zeros - 1  # without its lowest one
        return word * _WORD + (zeros & -zeros).bit_length() - 1

    def _low_at(self, place: int) -> int:
        """The lower bits of the number at a place."""
        if self.low_bits == 0:
            return 0
        word, offset = divmod(place * self.low_bits, _WORD)
        both = int(self.lows[word]) | int(self.lows[word + 1]) << _WORD
        return both >> offset & ((1 << self.low_bits) - 1)

    def _low(self, place: np.ndarray) -> np.ndarray:
        """The lower bits of the numbers at some places."""
        if self.low_bits == 0 or len(place) == 0:
            return np.zeros(len(place), np.uint64)
        bit = place.astype(np.uint64) * np.uint64(self.low_bits)
        word, offset = (bit >> np.uint64(6)).astype(np.int64), bit & np.uint64(_WORD - 1)
        low = self.lows[word] >> offset
        # Shifted twice, as a shift by 64 is no zero.
        high = (self.lows[word + 1] << (np.uint64(_WORD - 1) - offset)) << _ONE
        value: np.ndarray = (low | high) & ((_ONE << np.uint64(self.low_bits)) - _ONE)
        return value


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
        np.bitwise_or.at(words, word, values << offset)
        np.bitwise_or.at(words, word + 1, (values >> (np.uint64(_WORD - 1) - offset)) >> _ONE)
    return words
