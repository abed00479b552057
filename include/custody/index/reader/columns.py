"""Number columns of a shard, and which stretches of them can hold what is asked for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from custody.index.fields import ABSENT
from custody.index.manifest import ZONE_DOCUMENTS, Zones
from custody.index.reader.pages import CheckedFile
from custody.index.segment.arrays import Ints

_WIDTH = 8
_SIGN = np.uint64(1 << 63)


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
        self._sign = _SIGN if is_sortable else np.uint64(0)
        # Whoosh leaves out the numbers at the end that are the column's default.
        self._stored = file.size // _WIDTH
        self._left_out = left_out
        self.zones = np.empty((2, 0), np.int64) if zones is None else zones
        self.least, self.greatest = -ABSENT, ABSENT
        """No number is smaller or greater; of a column without zones nothing is known."""
        if self.zones.shape[1]:
            self.least, self.greatest = int(self.zones[0].min()), int(self.zones[1].max())

    def span(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the documents from `low` to before `high`."""
        stored = min(high, self._stored)
        data = self._file.array(low * _WIDTH, max(low, stored) * _WIDTH) if stored > low else self._file.data[:0]
        found = self._numbers(data.view(">u8"))
        return found if stored >= high else np.append(found, np.full(high - max(low, stored), self._left_out))

    def of(self, documents: Ints) -> npt.NDArray[np.int64]:
        """Return the numbers of some documents, going up."""
        if not len(documents):
            return np.empty(0, np.int64)
        first, last = int(documents[0]), int(documents[-1])
        if last < self._stored:
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
        native: npt.NDArray[np.uint64] = stored.astype(np.uint64)
        if self._sign:
            native ^= self._sign
        return native.view(np.int64)


def zone_of(document: int) -> int:
    """Return the number of a document's zone."""
    return document // ZONE_DOCUMENTS
