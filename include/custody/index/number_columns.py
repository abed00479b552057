"""Number columns: one number for each document, found by its place.

Layout: 8 bytes a document, big-endian. A NUMERIC field of Whoosh has the sign bit turned over, so that bytes sort as
numbers do; other columns hold plain numbers. Whoosh's own writer leaves out the numbers at the end that equal the
default. The zones, which the manifest holds, tell a search which stretches of documents it can skip.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from custody.index.arrays import Ints
from custody.index.fields import ABSENT
from custody.index.manifest import ZONE_DOCUMENTS, Zones
from custody.index.paged_file import CheckedFile

_WIDTH = 8
_SIGN = np.uint64(1 << 63)
_OFFSETS_FROM = 1 << 15  # Whoosh writes where each value begins only for more documents than these


def sortable_column(numbers: npt.NDArray[np.int64]) -> bytes:
    """Return a column of a NUMERIC field: the sign bit turned over, so that bytes sort as numbers do."""
    return (numbers.view(np.uint64) ^ _SIGN).astype(">u8").tobytes()


def plain_column(numbers: npt.NDArray[np.int64]) -> bytes:
    """Return a column of signed or unsigned numbers as they are."""
    return numbers.astype(">i8").tobytes()


def zones(numbers: npt.NDArray[np.int64]) -> Zones:
    """Return the smallest and greatest number of each stretch of documents, shape (2, zones)."""
    if not len(numbers):
        return np.empty((2, 0), np.int64)
    begin = np.arange(0, len(numbers), ZONE_DOCUMENTS)
    smallest = np.minimum.reduceat(numbers, begin)  # ABSENT is the greatest number, so it is never the smallest
    # The least number cannot be the greatest unless nothing else is there: so a zone of nothing has its bounds reversed
    # and matches no range.
    present = np.where(numbers == ABSENT, np.iinfo(np.int64).min, numbers)
    return np.stack([smallest, np.maximum.reduceat(present, begin)])


def empty_stored(documents: int) -> bytes:
    """Return the column of stored fields, which Whoosh wants to be there: for each document nothing.

    It is an array of lengths, an array of offsets when there are many documents, and their types.
    """
    return bytes(documents) + (bytes(documents) + b"BBX" if documents > _OFFSETS_FROM else b"B")


class NumberColumn:
    """One number a document; documents that have none have ABSENT. May be used by several threads."""

    def __init__(
        self,
        file: CheckedFile,
        documents: int,
        *,
        is_sortable: bool,
        zones: Zones | None = None,
        left_out: int = ABSENT,
    ) -> None:
        self._file = file
        self._documents = documents
        # Only columns whose field has terms are NUMERIC for Whoosh and have the sign bit turned over.
        self._sign = _SIGN if is_sortable else np.uint64(0)
        # Whoosh leaves out the numbers at the end that equal the default, so the file may be shorter.
        self._stored = file.size // _WIDTH
        self._left_out = left_out
        self.zones = np.empty((2, 0), np.int64) if zones is None else zones
        self.least, self.greatest = -ABSENT, ABSENT
        """No number is smaller or greater; of a column without zones nothing is known."""
        if self.zones.shape[1]:
            self.least, self.greatest = int(self.zones[0].min()), int(self.zones[1].max())

    def span(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the documents from `low` to before `high`."""
        # Only the stored part is read and checked; the rest is the default, which has no bytes.
        stored = min(high, self._stored)
        data = self._file.array(low * _WIDTH, max(low, stored) * _WIDTH) if stored > low else self._file.data[:0]
        numbers = self._numbers(data.view(">u8"))
        return numbers if stored >= high else np.append(numbers, np.full(high - max(low, stored), self._left_out))

    def of(self, documents: Ints) -> npt.NDArray[np.int64]:
        """Return the numbers of some documents, going up."""
        if not len(documents):
            return np.empty(0, np.int64)
        first, last = int(documents[0]), int(documents[-1])
        if last < self._stored:
            # Dense documents are read as one slice; for scattered ones only their own pages are checked.
            if last - first < 4 * len(documents):
                return self.span(first, last + 1)[documents - first]
            self._file.require(documents * _WIDTH, _WIDTH)
            return self._numbers(np.frombuffer(self._file.data, ">u8", self._stored)[documents])
        return self.span(first, last + 1)[documents - first]

    def below(self, number: int) -> int:
        """Return the first document whose number is below this one, in a column whose numbers go down."""
        low, high = 0, self._documents
        while low < high:
            middle = (low + high) // 2
            if int(self.span(middle, middle + 1)[0]) < number:
                high = middle
            else:
                low = middle + 1
        return low

    def candidates(self, low: int, high: int) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Return which zones can hold a number from `low` to `high`, and which hold no others, shape (zones,)."""
        smallest, greatest = self.zones
        return (greatest >= low) & (smallest <= high), (smallest >= low) & (greatest <= high)

    def _numbers(self, stored: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
        # A copy in the machine's byte order, which may then be changed in place: the mapping itself is read-only.
        native: npt.NDArray[np.uint64] = stored.astype(np.uint64)
        if self._sign:
            native ^= self._sign
        return native.view(np.int64)
