"""Numbers of few bits, packed one behind the other: what most parts of a packed shard are made of.

Bit i of a stream is bit i % 8 of byte i // 8, counted from the lowest, and a number lies with its lowest bit first. So
eight bytes from the byte of its first bit on, read as one number, little-endian, hold any of up to WIDTH_MAX bits.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from custody.index.arrays import Bytes, Ints
from custody.index.paged_file import CheckedFile, window

Words = npt.NDArray[np.uint64]

WORD_BYTES = 8
WIDTH_MAX = 57
"""Bits of a number that a read of eight bytes holds, wherever in its first byte it begins."""
_WORD = np.dtype("<u8")
_HALF, _HALF_MAX = np.dtype("<u4"), 25
_WHOLE = {width: np.dtype(f"<u{width >> 3}") for width in (8, 16, 32)}
"""Widths of numbers that can be read without taking bits apart."""
_WORD_SHIFT, _WORD_MASK = 6, 63
# Up to one byte of so many with a bit that is one, only these bytes are taken apart.
_SPARSE = 4
_MASKS = np.array([(1 << width) - 1 for width in range(65)], np.uint64)


def bit_lengths(numbers: Words) -> Ints:
    """Return how many bits each number has, 0 for 0."""
    smeared = numbers.astype(np.uint64)
    # Every bit below the highest becomes one, so that counting the ones gives its place; a logarithm would round.
    for shift in (1, 2, 4, 8, 16, 32):
        smeared |= smeared >> np.uint64(shift)
    return np.bitwise_count(smeared).astype(np.int64)


def packed(values: Words, places: Ints, size: int) -> Words:
    """Return a stream of `size` bits as words; values[i] begins at bit places[i], which go up without overlaps."""
    words = np.zeros(-(-size // 64) + 1, np.uint64)
    if not len(values):
        return words
    word, offset = places >> _WORD_SHIFT, (places & _WORD_MASK).astype(np.uint64)
    begin = np.flatnonzero(np.diff(word, prepend=-1))
    words[word[begin]] = np.bitwise_or.reduceat(values << offset, begin)
    # What runs over into the next word: shifted twice, as a shift by 64 is no zero. One value at most runs into a word.
    rest = (values >> (np.uint64(_WORD_MASK) - offset)) >> np.uint64(1)
    over = np.flatnonzero(rest)
    words[word[over] + 1] |= rest[over]
    return words


def as_bytes(words: Words, size: int) -> Bytes:
    """Return the first `size` bytes of a stream."""
    return words.astype(_WORD, copy=False).view(np.uint8)[:size]


def padded(data: Bytes) -> Bytes:
    """Return bytes up to a multiple of a word, so that what follows begins at one."""
    return np.concatenate([data, np.zeros(-len(data) % WORD_BYTES, np.uint8)])


def unpacked(data: Bytes, places: Ints, widths: Ints) -> Ints:
    """Return the numbers of up to WIDTH_MAX bits that begin at some bits of some bytes, eight of which were checked."""
    words = window(data, _WORD)[places >> 3]
    words >>= (places & 7).astype(np.uint64)
    words &= masks(widths)
    numbers: Ints = words.view(np.int64)
    return numbers


def ones(data: Bytes) -> Ints:
    """Return which bits of some bytes are one, going up, shape (ones,)."""
    used: Ints = (data != 0).nonzero()[0]
    if not len(used):
        return used
    # Where few bytes have any, taking all bits apart costs several times what finding these bytes does.
    if len(used) * _SPARSE > len(data):
        return np.unpackbits(data, bitorder="little").view(np.bool_).nonzero()[0]
    within = np.unpackbits(data[used], bitorder="little").view(np.bool_).nonzero()[0]
    places: Ints = used[within >> 3]
    places <<= 3
    within &= 7
    places |= within
    return places


def masks(widths: Ints) -> Words:
    """Return the greatest number of each width, up to 64 bits."""
    return _MASKS[widths]


@cache
def steps(width: int, count: int) -> tuple[Ints, npt.NDArray[np.uint8]]:
    """Return the byte and the bit within it at which each of some numbers of one width begins; to be read only."""
    bits = np.arange(count, dtype=np.int64) * width
    byte, bit = bits >> 3, (bits & 7).astype(np.uint8)
    byte.flags.writeable = bit.flags.writeable = False
    return byte, bit


def run(file: CheckedFile, place: int, width: int, count: int, most: int) -> Ints:
    """Return `count` numbers of one width from byte `place` on; `most`, the greatest count, makes one table for all.

    Raises:
        CorruptionError: a page is damaged, or they do not lie within the file.
    """
    if not width:
        return np.zeros(count, np.int64)
    own = file.array(place, place + (count * width >> 3) + WORD_BYTES)
    whole = _WHOLE.get(width)
    if whole is not None:
        return own[: count * width >> 3].view(whole).astype(np.int64)
    byte, bit = steps(width, most)
    # The table of places is the same for every run of this width. `take` copies the overlapping words of the run
    # before it takes some, which is still sooner done than indexing them; half as much where half a word does.
    if width <= _HALF_MAX:
        halves = window(own, _HALF).take(byte[:count])
        halves >>= bit[:count]
        halves &= np.uint32((1 << width) - 1)
        return halves.astype(np.int64)
    words = window(own, _WORD).take(byte[:count])
    words >>= bit[:count]
    words &= np.uint64((1 << width) - 1)
    numbers: Ints = words.view(np.int64)
    return numbers
