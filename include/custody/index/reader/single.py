"""Many posting lists of one block each, decoded at once: what a pattern or a facet needs of a field with many terms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from custody.index.reader.pages import CheckedFile, numbers
from custody.index.segment.arrays import Ints, starts
from custody.index.segment.postings import (
    ABOUT_LAST,
    ABOUT_POSTINGS,
    DATA_OPEN,
    FIRST_BYTES,
    HEAD_BYTES,
    LIST_MARK,
    WIDTHS,
)

_MARK = int.from_bytes(LIST_MARK, "big")
_LENGTH = len(LIST_MARK)
_ABOUT = _LENGTH + 4
_FIRST = _LENGTH + HEAD_BYTES + len(DATA_OPEN)


class SingleBlocks(NamedTuple):
    """The documents of those of some lists that have one block, one list behind the other.

    `is_single` says which lists those are, `counts` how many documents each of them has.
    """

    is_single: npt.NDArray[np.bool_]
    documents: Ints
    counts: Ints


def single_blocks(file: CheckedFile, places: Ints, documents: int) -> SingleBlocks:
    """Decode the lists of one block among those that lie at some places of a file of the bulk layout.

    Raises:
        CorruptionError: what lies there is no list of documents below `documents`.
    """
    if not len(places):
        return SingleBlocks(np.zeros(0, np.bool_), places, places)
    file.require(places, _FIRST + FIRST_BYTES)
    if (numbers(file.data, places, ">u4") != _MARK).any():
        raise file.error(int(places[0]), "posting lists", "other bytes")
    lengths = -numbers(file.data, places + _LENGTH, ">i4")  # the last block's is negative
    is_single = lengths > 0
    places, lengths = places[is_single], lengths[is_single]
    counts = numbers(file.data, places + _ABOUT + ABOUT_POSTINGS, "<i4")
    lasts = numbers(file.data, places + _ABOUT + ABOUT_LAST, "<u4")
    # So many as lie in the file, so that nobody makes us allocate more.
    if (counts < 1).any() or (counts > lengths).any() or int(lengths.sum()) > file.size:
        raise file.error(int(places[0]), "numbers of postings", "such as do not fit into their blocks")
    begin = starts(counts)
    found = np.empty(int(counts.sum()), np.int64)
    found[begin] = numbers(file.data, places + _FIRST + 1, "<u4")
    _put_differences(file, places + _FIRST + FIRST_BYTES, counts, begin, found)
    sums = np.cumsum(found)
    found = sums - np.repeat(sums[begin] - found[begin], counts)
    if len(found) and ((found[begin + counts - 1] != lasts).any() or not 0 <= found.min() <= found.max() < documents):
        raise file.error(int(places[0]), f"documents below {documents}, the last as described", "others")
    return SingleBlocks(is_single, found, counts)


def _put_differences(file: CheckedFile, places: Ints, counts: Ints, begin: Ints, out: Ints) -> None:
    """Write the differences behind the first document of each list; they lie from some places on, of one width each."""
    several = np.flatnonzero(counts > 1)
    file.require(places[several], 1)
    codes = file.data[places[several]]
    left = len(several)
    for width, code in WIDTHS:
        chosen = several[codes == code[0]]
        left -= len(chosen)
        lengths = counts[chosen] - 1
        within = np.arange(int(lengths.sum())) - np.repeat(starts(lengths), lengths)
        at = np.repeat(places[chosen], lengths) + within * width + 1
        file.require(at, width - 1)
        out[np.repeat(begin[chosen] + 1, lengths) + within] = numbers(file.data, at, f"<u{width - 1}")
    if left:
        raise file.error(int(places[several[0]]), "differences", "an unknown code")
