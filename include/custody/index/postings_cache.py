"""A cache of posting lists that were decoded as a whole, for the next queries of the same shard."""

from __future__ import annotations

import threading
from functools import cached_property

import numpy as np
import numpy.typing as npt

from custody.index.arrays import Ints

Mask = npt.NDArray[np.bool_]
Documents = npt.NDArray[np.int32]
_BITS = 32
_SPARSE = 64


class DecodedPostings:
    """The documents of a term, going up, at least one; as bits, too, where that takes less room than the numbers."""

    def __init__(self, documents: Documents) -> None:
        self.documents = documents
        self._end = int(documents[-1]) + 1
        self._is_dense = len(documents) * _BITS > self._end

    @property
    def nbytes(self) -> int:
        """How much memory it takes, with the bits that may be made."""
        return self.documents.nbytes + self._is_dense * (self._end // 8 + 1)

    def bounds(self, low: int, high: int) -> tuple[int, int]:
        """Return where the documents from `low` to before `high` lie."""
        # Of the same type: otherwise all of the list is copied into the type of what is looked for.
        begin, end = self.documents.searchsorted(np.array((low, high), np.int32)).tolist()
        return begin, end

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up and at least one, are in the list."""
        if self._is_dense:
            return self._among_bits(documents)
        low, high = int(documents[0]), int(documents[-1]) + 1
        begin, end = self.bounds(low, high)
        if high - low <= _SPARSE * len(documents):
            has = np.zeros(high - low, np.bool_)
            has[self.documents[begin:end] - low] = True
            present: Mask = has[documents - low]
            return present
        held = self.documents[begin:end]
        if not len(held):
            return np.zeros(len(documents), np.bool_)
        place = held.searchsorted(documents.astype(np.int32))
        place[place == len(held)] = 0
        mask: Mask = held[place] == documents
        return mask

    def _among_bits(self, documents: Ints) -> Mask:
        covered = documents if documents[-1] < self._end else documents[: documents.searchsorted(self._end)]
        bits = (self._bits[covered >> 3] >> (covered & 7).astype(np.uint8)) & 1
        mask: Mask = bits.view(np.bool_)
        if len(covered) == len(documents):
            return mask
        return np.concatenate([mask, np.zeros(len(documents) - len(covered), np.bool_)])

    @cached_property
    def _bits(self) -> npt.NDArray[np.uint8]:
        has = np.zeros(self._end, np.bool_)
        has[self.documents] = True
        return np.packbits(has, bitorder="little")


class PostingsCache:
    """Whole lists of one shard, within a bound of bytes; may be used by several threads."""

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self._bytes_max = bytes_max
        self._lists: dict[int, DecodedPostings] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, place: int) -> DecodedPostings | None:
        """Return the list that lies at a place, None when it is not kept."""
        return self._lists.get(place)

    def put(self, place: int, postings: DecodedPostings) -> None:
        """Keep a list; those that were kept first go."""
        with self._lock:
            if place in self._lists or postings.nbytes > self._bytes_max:
                return
            self._lists[place] = postings
            self._bytes += postings.nbytes
            while self._bytes > self._bytes_max:
                self._bytes -= self._lists.pop(next(iter(self._lists))).nbytes
