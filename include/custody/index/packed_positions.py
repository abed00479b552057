"""The places of words in texts, as a packed shard has them: for each posting of a text field its number of places, and
for each place its distance from the one before in the text.

Terms come in groups: one ends with the term that reaches GROUP_PLACES. A group is the numbers of all its postings, then
the distances, each of the smallest width that holds them all, compressed together by Snappy: where a word has one
place in every text, as most have in details, it takes nearly nothing. Phrases alone read it.
Docs: docs/formats/packed-shard.md.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from custody.errors import CorruptionError
from custody.index.arrays import Bytes, Ints, starts
from custody.index.compression import compressed, decompressed
from custody.index.inverted_field import InvertedField
from custody.index.packed_postings import ListTable
from custody.index.paged_file import CheckedFile
from custody.index.positions import Positions

GROUP_PLACES = 1 << 14
"""Part of what the writer produces, not of the format: the table says where each group begins."""
_COUNT = np.dtype("<u8")
_GROUP = np.dtype(
    [("first", "<u8"), ("place", "<u8"), ("stored", "<u8"), ("postings", "<u8"), ("places", "<u8"), ("widths", "<u8")]
)
"""Of each group: its first term, where it lies from the end of the table on, its bytes, its postings and places, and
the bytes of a number and of a distance, in the lowest two bytes."""
_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}


def encoded_positions(field: InvertedField, positions: Positions) -> Bytes:
    """Return the places of the words of a text field."""
    counts, first = positions.counts, field.first
    distances = positions.positions.astype(np.int64)
    distances[1:] -= positions.positions[:-1]
    begin = starts(counts)
    distances[begin] = positions.positions[begin]  # the first one counts from the beginning of the text
    bounds = np.append(begin, len(distances))
    places_before = bounds[first]
    groups = np.flatnonzero(np.diff(places_before // GROUP_PLACES, prepend=-1))
    table = np.zeros(len(groups), _GROUP)
    posting_bounds = np.append(first[groups], len(counts))
    stored = []
    for number in range(len(groups)):
        low, high = int(posting_bounds[number]), int(posting_bounds[number + 1])
        own_counts, own_distances = counts[low:high], distances[bounds[low] : bounds[high]]
        widths = _width(own_counts), _width(own_distances)
        data = own_counts.astype(_TYPES[widths[0]]).tobytes() + own_distances.astype(_TYPES[widths[1]]).tobytes()
        stored.append(compressed(data))
        table["postings"][number], table["places"][number] = high - low, len(own_distances)
        table["widths"][number] = widths[0] | widths[1] << 8
    sizes = np.fromiter(map(len, stored), np.int64, len(stored))
    table["first"], table["place"], table["stored"] = groups, starts(sizes), sizes
    head = np.array([len(groups)], _COUNT)
    return np.frombuffer(b"".join([head.tobytes(), table.tobytes(), *stored]), np.uint8)


def _width(numbers: Ints) -> int:
    greatest = int(numbers.max(initial=0))
    return next(width for width, kind in _TYPES.items() if greatest <= np.iinfo(kind).max)


class WordPlaces:
    """The places of the words of a text field of an open shard; may be used by several threads."""

    def __init__(self, file: CheckedFile, place: int) -> None:
        self._file = file
        count = int(np.frombuffer(file.span(place, place + _COUNT.itemsize), _COUNT)[0])
        table = place + _COUNT.itemsize
        self._data = table + count * _GROUP.itemsize
        self._table = np.frombuffer(file.span(table, self._data), _GROUP)

    def of(self, number: int, lists: ListTable) -> tuple[Ints, Ints]:
        """Return all places of the word with a number, and how many each of its documents has.

        Raises:
            CorruptionError: they do not fit the lists.
        """
        group = int(self._table["first"].searchsorted(np.uint64(number), side="right")) - 1
        if group < 0:
            raise self._damaged(number)
        entry = {name: int(self._table[name][group]) for name in _GROUP.names or ()}
        counts, distances = self._group(entry)
        # The lists before it in the group have their numbers of places before its own.
        frequencies = lists.counts(entry["first"], number + 1)
        high = int(frequencies.sum())
        low = high - int(frequencies[-1])
        if high > len(counts):
            raise self._damaged(number)
        begin, own = int(counts[:low].sum()), counts[low:high]
        places = distances[begin : begin + int(own.sum())]
        if len(places) != int(own.sum()) or (own < 1).any():
            raise self._damaged(number)
        # One running sum over all texts; what came before each text is taken off again.
        sums = np.cumsum(places)
        first = starts(own)
        return sums - np.repeat(sums[first] - places[first], own), own

    def _group(self, entry: dict[str, int]) -> tuple[Ints, Ints]:
        begin = self._data + entry["place"]
        of_count, of_distance = (_TYPES.get(entry["widths"] >> shift & 0xFF) for shift in (0, 8))
        if of_count is None or of_distance is None:
            raise self._file.error(begin, "numbers of 1, 2 or 4 bytes", f"{entry['widths']:#x}")
        split = entry["postings"] * of_count.itemsize
        size = split + entry["places"] * of_distance.itemsize
        data = decompressed(self._file, begin, begin + entry["stored"], size)
        counts = np.frombuffer(data, of_count, entry["postings"])
        distances = np.frombuffer(data, of_distance, entry["places"], split)
        return counts.astype(np.int64), distances.astype(np.int64)

    def _damaged(self, number: int) -> CorruptionError:
        return self._file.error(self._data, f"the places of the word {number}", "others")
