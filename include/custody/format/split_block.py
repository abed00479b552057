"""Split-block bloom filters, as Parquet defines them: of a value that was not put in they nearly always say so.

A filter is blocks of 256 bits, eight words of 32. A value is a hash of 64 bits: the upper half chooses the block, the
lower half one bit of each word. Without a false answer for what was put in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

SALTS = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
WORDS = len(SALTS)
BLOCK_BYTES = 4 * WORDS
_BLOCK_BITS = 8 * BLOCK_BYTES
_SALTS = np.array(SALTS, np.uint32)
_WORD_STARTS = 32 * np.arange(WORDS, dtype=np.int64)
# The upper five bits of a product choose one of 32.
_SHIFT = np.uint32(27)

Hashes = npt.NDArray[np.uint64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class Probes:
    """Values as filters are asked for them: the half that chooses a block, shape (values,), the bits, (values, 8)."""

    upper: Hashes
    bits: Words

    @classmethod
    def of(cls, hashes: Hashes) -> Probes:
        """Return the probes of some hashes."""
        return cls(hashes >> np.uint64(32), np.uint32(1) << _bit_numbers(hashes).astype(np.uint32))

    def blocks_of(self, blocks: int) -> Hashes:
        """Return the number of the block of each value in a filter of so many, shape (values,)."""
        numbers: Hashes = (self.upper * np.uint64(blocks)) >> np.uint64(32)
        return numbers


def may_have(blocks: Words, probes: Probes) -> npt.NDArray[np.bool_]:
    """Return which values a filter may have, shape (values,); `blocks` has the shape (blocks, 8)."""
    numbers = probes.blocks_of(len(blocks))
    has_all: npt.NDArray[np.bool_] = np.logical_and.reduce((blocks[numbers] & probes.bits) == probes.bits, axis=1)
    return has_all


def split_block_filter(hashes: Hashes, bits_per_value: int) -> Words:
    """Return a filter of some values, shape (blocks, 8); one block at least."""
    blocks = max(-(-len(hashes) * bits_per_value // _BLOCK_BITS), 1)
    numbers = ((hashes >> np.uint64(32)) * np.uint64(blocks)) >> np.uint64(32)
    is_set = np.zeros(blocks * _BLOCK_BITS, np.bool_)
    places = numbers.astype(np.int64)[:, None] * _BLOCK_BITS + _WORD_STARTS + _bit_numbers(hashes)
    is_set[places] = True
    return np.packbits(is_set, bitorder="little").view("<u4").reshape(blocks, WORDS)


def _bit_numbers(hashes: Hashes) -> Words:
    """Return the bit of each word, shape (values, 8)."""
    lower: Words = (hashes & np.uint64(0xFFFFFFFF)).astype(np.uint32)
    return (lower[:, None] * _SALTS) >> _SHIFT
