"""The filter of a shard, its `.flt` file: a few bits tell that the shard does not have a term, without its dictionary.

Layout: a split-block bloom filter (`custody.format.split_block`) of the keys of all terms, blocks of eight u32,
little-endian. A key's hash is its CRC-32, which the dictionary has too, and in the lower half a number made of that.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from zlib_ng import zlib_ng

from custody.format.split_block import BLOCK_BYTES, WORDS, Probes, Words, may_have, split_block_filter
from custody.index.arrays import Ints
from custody.index.paged_file import CheckedFile
from custody.index.terms import Hashes, TermSet

SUFFIX = "flt"
BITS_PER_TERM = 16
"""One term in about seven hundred that a shard does not have is looked up all the same; those of a large set are asked
of each shard, so that a rarer mistake is worth more than the bytes. Shards of earlier releases have 10 bits."""
# Odd, with bits all over: the halves of a hash must not be alike.
_MULTIPLIER = np.uint32(0x9E3779B1)
_KEYS_KEPT = 256
# Of a file that is read by ranges: another request costs more than so many bytes, and the next question wants them all.
_FETCHED_WHOLE_BYTES = 1 << 18


def filter_bytes(hashes: Hashes) -> bytes:
    """Return the filter of the keys with some CRC-32."""
    return split_block_filter(_widened(hashes), BITS_PER_TERM).tobytes()


def probes_of(hashes: Hashes) -> Probes:
    """Return how a filter is asked for keys with some CRC-32."""
    return Probes.of(_widened(hashes))


@lru_cache(_KEYS_KEPT)
def probes_of_key(key: bytes) -> Probes:
    """Return how a filter is asked for one key; one search asks those of all shards for the same ones."""
    return probes_of(np.array([zlib_ng.crc32(key)], np.uint32))


def _widened(hashes: Hashes) -> np.ndarray[tuple[int, ...], np.dtype[np.uint64]]:
    mixed = hashes * _MULTIPLIER
    mixed ^= mixed >> np.uint32(16)
    return (hashes.astype(np.uint64) << np.uint64(32)) | mixed


class TermFilter:
    """The filter of an open shard, from a byte of a file on; may be used by several threads.

    Raises:
        CorruptionError: what lies there is none.
    """

    def __init__(self, file: CheckedFile, place: int, size: int, mark: bytes) -> None:
        if not size or size % BLOCK_BYTES or not 0 <= place <= file.size - size:
            raise file.error(place, f"blocks of {BLOCK_BYTES} bytes", f"{size} bytes")
        self._file = file
        self._bounds = place, place + size
        self._blocks = file.data[place : place + size].view("<u4").reshape(-1, WORDS)
        self._is_checked = False
        self.mark = mark
        """Of this filter and its copies alone, for who keeps what was asked of it."""

    @property
    def blocks(self) -> Words:
        """All blocks, shape (blocks, 8).

        Raises:
            CorruptionError: other bytes than were written.
        """
        # A filter is small and its places are random: whoever asks for some terms soon needs all pages.
        if not self._is_checked:
            self._file.span(*self._bounds)
            self._is_checked = True
        return self._blocks

    def has(self, key: bytes) -> bool:
        """Whether the shard may have a key; of the filter, only the page is looked at that says so.

        Raises:
            CorruptionError: other bytes than were written.
        """
        probes = probes_of_key(key)
        number = int(probes.blocks_of(len(self._blocks))[0])
        place = self._bounds[0] + number * BLOCK_BYTES
        is_whole = self._file.is_ranged and self._bounds[1] - self._bounds[0] <= _FETCHED_WHOLE_BYTES
        self._file.span(*(self._bounds if is_whole else (place, place + BLOCK_BYTES)))
        bits = probes.bits[0]
        return bool(((self._blocks[number] & bits) == bits).all())

    def candidates(self, term_set: TermSet, prefix: bytes) -> Ints:
        """Return the numbers of the terms of a set that the shard may have; `prefix` is that of the field."""
        known = term_set.candidates.get(self.mark)
        if known is not None:
            return known
        blocks = self.blocks
        probes = term_set.derived(prefix, probes_of)
        return np.flatnonzero(may_have(blocks, probes))
