"""Sets of documents that have a bit for each: what is common to them, in windows and counted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.index import doc_sets
from custody.index.doc_sets import BitIntersection


class Bits:
    """Documents from `low` to before `high`; bits of the same bytes that belong to others are set."""

    def __init__(self, low: int, flags: Sequence[bool]) -> None:
        self.low, self.high = low, low + len(flags)
        self.documents = {low + place for place, flag in enumerate(flags) if flag}
        self.size = len(self.documents)
        own = np.ones(-(-self.high // 8) * 8, np.bool_)
        own[low : self.high] = flags
        self._bytes = np.packbits(own, bitorder="little")

    def among(self, documents: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        return np.array([document in self.documents for document in documents.tolist()], np.bool_)

    def bits(self, low: int, high: int) -> npt.NDArray[np.uint8]:
        return self._bytes[low >> 3 : (high + 7) >> 3]


BITS = st.builds(Bits, st.integers(0, 40), st.lists(st.booleans(), min_size=1, max_size=120))


@given(st.lists(BITS, min_size=2, max_size=4), st.sampled_from([8, 16, 64]), st.sampled_from([1, 3, 1000]))
def test_what_is_common_is_given_out_and_counted_whatever_the_windows(
    parts: list[Bits], window: int, matches: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doc_sets, "_CHUNK", 8)
        patch.setattr(doc_sets, "_BITS_MAX", window)
        patch.setattr(doc_sets, "_FIRST_MATCHES", matches)
        common = BitIntersection(parts)
        expected = sorted(set.intersection(*(part.documents for part in parts)))
        assert [one for chunk in common.chunks(0, 1000) for one in chunk.tolist()] == expected
        assert common.count() == len(expected)
        low, high = common.low + 3, common.high - 2
        within = [one for chunk in common.chunks(low, high) for one in chunk.tolist()]
        assert within == [one for one in expected if low <= one < high]
