"""Document sets: what matches a query, or a part of one, in a shard; given out in rising order, a chunk at a time.

Document numbers rise from the newest event to the oldest. A caller that wants the newest events stops after a few
chunks, and nothing is decoded for the rest. A set lists its documents within a range (`chunks`) and tells which of
some documents it holds (`among`). It belongs to one query of one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Protocol

import numpy as np
import numpy.typing as npt

from custody.format.number_sets import distinct
from custody.index.arrays import Ints
from custody.index.bit_packing import ones
from custody.index.fields import ABSENT
from custody.index.manifest import ZONE_DOCUMENTS

Mask = npt.NDArray[np.bool_]
# Large enough that numpy's calls cost little, small enough that a page of newest events decodes few documents.
_CHUNK = 4096
# Bounds the flags of one window of a union.
_WINDOW_MAX = 1 << 16
# The same of an intersection of bits, whose flags are made of what is left.
_BITS_MAX = 1 << 18
# So many matches are wanted of a first window of bits: of a page of newest events that is enough, and a shard of few
# matches is done in one window.
_FIRST_MATCHES = 1024
# Document above position in one signed 64-bit number: documents have up to 32 bits, positions up to 31.
_POSITION_BITS = 31


class DocSet(Protocol):
    """The interface of a set of documents of one shard."""

    size: int
    """An upper bound of the number of documents; an intersection starts with the smallest set."""
    low: int
    high: int
    """All documents lie from `low` to before `high`."""

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`, in arrays that are not empty."""
        ...

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up, are in the set."""
        ...

    def count(self) -> int:
        """Return how many documents there are."""
        ...


class Postings(Protocol):
    """The interface of the documents of one term, whatever layout of a shard they were read from."""

    frequency: int
    first: int
    last: int

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`, in arrays that are not empty."""
        ...

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up, are in the list."""
        ...


class PlacedPostings(Postings, Protocol):
    """The interface of the documents of one word, with its places in their texts."""

    def placed(self) -> Iterator[tuple[Ints, Callable[[], tuple[Ints, Ints]]]]:
        """Yield documents, and what gives all places of the word in them and how many each of them has."""
        ...


class NumberDocs(Protocol):
    """The interface of a number column, whatever layout of a shard it was read from."""

    least: int
    greatest: int

    def span(self, low: int, high: int) -> npt.NDArray[np.int64]:
        """Return the numbers of the documents from `low` to before `high`."""
        ...

    def of(self, documents: Ints) -> npt.NDArray[np.int64]:
        """Return the numbers of some documents, going up."""
        ...

    def candidates(self, low: int, high: int) -> tuple[Mask, Mask]:
        """Return which zones can hold a number from `low` to `high`, and which hold no others, shape (zones,)."""
        ...


class _Counted(ABC):
    """A base for sets that count by reading all chunks, one of which is in memory at a time."""

    size: int
    low: int
    high: int

    def count(self) -> int:
        return sum(map(len, self.chunks(self.low, self.high)))

    @abstractmethod
    def chunks(self, low: int, high: int) -> Iterator[Ints]: ...


class EmptySet:
    """No document."""

    size = low = high = 0

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield nothing."""
        return iter(())

    def among(self, documents: Ints) -> Mask:
        """Return that none is."""
        return np.zeros(len(documents), np.bool_)

    def count(self) -> int:
        """Return 0."""
        return 0


class BitDocs(Protocol):
    """The interface of a set that has a bit for each document."""

    size: int
    low: int
    high: int

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up, are in the set."""
        ...

    def bits(self, low: int, high: int) -> npt.NDArray[np.uint8]:
        """Return a bit for each document from the multiple of 8 at or below `low` to `high`, within the set's own."""
        ...


class BitIntersection(_Counted):
    """The documents that are in each of two or more sets of bits: whole bytes of them are compared."""

    def __init__(self, parts: Sequence[BitDocs]) -> None:
        self._parts = parts
        size, low, high, share = parts[0].size, 0, parts[0].high, 1.0
        # One loop: each shard of a question makes such a set.
        for part in parts:
            size = part.size if part.size < size else size
            low = part.low if part.low > low else low
            high = part.high if part.high < high else high
            # As if the sets had nothing to do with each other.
            share *= part.size / (part.high - part.low or 1)
        self.size, self.low, self.high = size, low, max(low, high)
        window = _CHUNK
        while window < _BITS_MAX and window * share < _FIRST_MATCHES:
            window *= 2
        self._window = window

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the common documents of windows that grow."""
        low, high = max(low, self.low), min(high, self.high)
        window = self._window
        while low < high:
            stop = min((low & ~7) + window, high)
            bits = self._common(low, stop)
            # Of the first and the last byte the bits of other documents do not count.
            bits[0] &= 0xFF << (low & 7) & 0xFF
            bits[-1] &= 0xFF >> (-stop & 7)
            documents = ones(bits)
            if len(documents):
                documents += low & ~7
                yield documents
            low, window = stop, min(2 * window, _BITS_MAX)

    def count(self) -> int:
        """Return how many documents there are."""
        total, low = 0, self.low
        while low < self.high:
            stop = min((low & ~7) + _BITS_MAX, self.high)
            bits = self._common(low, stop)
            # Of the first and the last byte the bits of other documents do not count.
            bits[0] &= 0xFF << (low & 7) & 0xFF
            bits[-1] &= 0xFF >> (-stop & 7)
            total += int(np.bitwise_count(bits).sum())
            low = stop
        return total

    def _common(self, low: int, high: int) -> npt.NDArray[np.uint8]:
        first, second, *others = [part.bits(low, high) for part in self._parts]
        bits: npt.NDArray[np.uint8] = first & second
        for other in others:
            bits &= other
        return bits

    def among(self, documents: Ints) -> Mask:
        """Return which are in all sets."""
        mask: Mask = np.logical_and.reduce([part.among(documents) for part in self._parts])
        return mask


class AllDocs:
    """All documents of a shard."""

    def __init__(self, documents: int) -> None:
        self.size = self.high = documents
        self.low = 0

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the numbers themselves."""
        high = min(high, self.high)
        for start in range(low, high, _CHUNK):
            yield np.arange(start, min(start + _CHUNK, high))

    def among(self, documents: Ints) -> Mask:
        """Return that all are."""
        return np.ones(len(documents), np.bool_)

    def count(self) -> int:
        """Return how many there are."""
        return self.size


class TermDocs:
    """The documents of one term."""

    def __init__(self, postings: Postings) -> None:
        self.postings = postings
        self.size, self.low, self.high = postings.frequency, postings.first, postings.last + 1
        self.chunks = postings.chunks
        self.among = postings.among

    def count(self) -> int:
        """Return how many there are, which the dictionary knows."""
        return self.size


class DocList:
    """Documents that are in memory, in rising order."""

    def __init__(self, documents: Ints) -> None:
        # What it gives out are slices, and other questions may get the same.
        documents.flags.writeable = False
        self._documents = documents
        self.nbytes = documents.nbytes
        self.size = len(documents)
        self.low, self.high = (int(documents[0]), int(documents[-1]) + 1) if len(documents) else (0, 0)

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield slices of them."""
        begin, end = self._documents.searchsorted((low, high)).tolist()
        for start in range(begin, end, _CHUNK):
            yield self._documents[start : min(start + _CHUNK, end)]

    def among(self, documents: Ints) -> Mask:
        """Return which are there."""
        if not self.size:
            return np.zeros(len(documents), np.bool_)
        place = self._documents.searchsorted(documents)
        # A document behind the last one has no place; compared with the first one it is found to be absent.
        place[place == self.size] = 0
        mask: Mask = self._documents[place] == documents
        return mask

    def count(self) -> int:
        """Return how many there are."""
        return self.size


class RangeDocs(_Counted):
    """The documents whose number lies in a range, both ends included."""

    def __init__(self, column: NumberDocs, documents: int, first: int, last: int, *, has_absent: bool) -> None:
        self._column = column
        # ABSENT is no number: a range without an upper end must not match documents that have none.
        self._first, self._last = first, min(last, ABSENT - 1)
        maybe, whole = column.candidates(self._first, self._last)
        # Zones do not say whether a number is missing in them, so with any missing no zone counts as whole.
        self._whole = np.zeros_like(whole) if has_absent else whole
        self._zones = np.flatnonzero(maybe)
        self._documents = documents
        self.size = min(documents, len(self._zones) * ZONE_DOCUMENTS)
        self.low = int(self._zones[0]) * ZONE_DOCUMENTS if self.size else 0
        self.high = min(documents, (int(self._zones[-1]) + 1) * ZONE_DOCUMENTS) if self.size else 0

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the matches of each zone that can hold any."""
        begin, end = self._zones.searchsorted((low // ZONE_DOCUMENTS, -(-high // ZONE_DOCUMENTS))).tolist()
        for zone in self._zones[begin:end].tolist():
            start = max(low, zone * ZONE_DOCUMENTS)
            stop = min(high, (zone + 1) * ZONE_DOCUMENTS, self._documents)
            documents = np.arange(start, stop)
            if not self._whole[zone]:
                documents = documents[self._fits(self._column.span(start, stop))]
            if len(documents):
                yield documents

    def among(self, documents: Ints) -> Mask:
        """Return whose number lies in the range."""
        return self._fits(self._column.of(documents))

    def count(self) -> int:
        """Return how many there are; of a zone that lies in the range as a whole nothing is read."""
        total = 0
        for zone in self._zones.tolist():
            start, stop = zone * ZONE_DOCUMENTS, min((zone + 1) * ZONE_DOCUMENTS, self._documents)
            total += stop - start if self._whole[zone] else int(self._fits(self._column.span(start, stop)).sum())
        return total

    def _fits(self, numbers: npt.NDArray[np.int64]) -> Mask:
        mask: Mask = (numbers >= self._first) & (numbers <= self._last)
        return mask


class Intersection(_Counted):
    """The documents that are in each of some sets: the smallest leads, the others filter its documents in turn."""

    def __init__(self, parts: Sequence[DocSet]) -> None:
        # The others are asked only about documents of the smallest set, so its size bounds the work of all.
        self._lead = min(parts, key=_size)
        self._others = [part for part in parts if part is not self._lead]
        self.size = self._lead.size
        self.low = max(part.low for part in parts)
        # Parts that do not meet give an empty range, not a negative one.
        self.high = max(self.low, min(part.high for part in parts))

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the leader's chunks, filtered by the others."""
        for documents in self._lead.chunks(max(low, self.low), min(high, self.high)):
            common = self._left(documents)
            if len(common):
                yield common

    def among(self, documents: Ints) -> Mask:
        """Return which are in all sets."""
        mask = self._lead.among(documents)
        for part in self._others:
            # Each part is asked only about documents that are still in: later, larger sets decode less.
            chosen = np.flatnonzero(mask)
            if not len(chosen):
                break
            mask[chosen] = part.among(documents[chosen])
        return mask

    def _left(self, documents: Ints) -> Ints:
        for part in self._others:
            if not len(documents):
                break
            documents = documents[part.among(documents)]
        return documents


class Union(_Counted):
    """The documents that are in any of some sets, window by window."""

    def __init__(self, parts: Sequence[DocSet]) -> None:
        self._parts = [part for part in parts if part.high > part.low]
        self.low = min((part.low for part in self._parts), default=0)
        self.high = max((part.high for part in self._parts), default=0)
        self.size = min(sum(part.size for part in self._parts), self.high - self.low)

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the union within windows that grow."""
        start, end = max(low, self.low), min(high, self.high)
        # Small windows first, for a caller that wants a few newest events; then larger ones, which cost less a
        # document.
        window = _CHUNK
        while start < end:
            stop = min(start + window, end)
            documents = self._within(start, stop)
            if len(documents):
                yield documents
            start, window = stop, min(2 * window, _WINDOW_MAX)

    def among(self, documents: Ints) -> Mask:
        """Return which are in any set."""
        mask = np.zeros(len(documents), np.bool_)
        for part in self._parts:
            undecided = np.flatnonzero(~mask)
            if not len(undecided):
                break
            mask[undecided] = part.among(documents[undecided])
        return mask

    def _within(self, start: int, stop: int) -> Ints:
        # Flags within the window: the sets may overlap, and each document is to come once, in order.
        has = np.zeros(stop - start, np.bool_)
        for part in self._parts:
            if part.low < stop and part.high > start:
                for documents in part.chunks(start, stop):
                    has[documents - start] = True
        return np.flatnonzero(has) + start


class Complement:
    """The documents that are not in a set."""

    def __init__(self, part: DocSet, documents: int) -> None:
        self._part = part
        self._everything = AllDocs(documents)
        self.low, self.high = 0, documents
        self.size = documents

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield all other documents."""
        for documents in self._everything.chunks(low, high):
            others = documents[~self._part.among(documents)]
            if len(others):
                yield others

    def among(self, documents: Ints) -> Mask:
        """Return which are not in the set."""
        return ~self._part.among(documents)

    def count(self) -> int:
        """Return how many there are."""
        return self.size - self._part.count()


def by_size(parts: Iterable[DocSet]) -> list[DocSet]:
    """Return sets, the smallest first."""
    return sorted(parts, key=_size)


def _size(part: DocSet) -> int:
    return part.size


def phrase(words: Sequence[PlacedPostings]) -> DocSet:
    """Return the documents in which these words follow each other.

    Each occurrence is one number, document above place; a phrase is where the numbers of all words, each moved back by
    its distance from the first, are the same.
    """
    # First the documents that have all words, which need no positions; few are left to look into.
    together = Intersection(by_size(TermDocs(starts_of_phrase) for starts_of_phrase in words))
    documents = np.concatenate([np.empty(0, np.int64), *together.chunks(together.low, together.high)])
    if len(words) == 1 or not len(documents):
        return DocList(documents)
    # A document of two words may have them anywhere: their positions decide, moved back by the distance of the words.
    begins = [
        np.concatenate([np.empty(0, np.int64), *_occurrences(word, documents)]) - distance
        for distance, word in enumerate(words)
    ]
    starts_of_phrase = reduce(partial(np.intersect1d, assume_unique=True), begins)
    return DocList(distinct(starts_of_phrase >> _POSITION_BITS))


def _occurrences(word: PlacedPostings, documents: Ints) -> Iterator[Ints]:
    """Yield the occurrences of a word in some documents, block by block."""
    for own, places in word.placed():
        low, high = documents.searchsorted((own[0], own[-1] + 1)).tolist()
        if low == high:
            continue
        is_common = np.isin(own, documents[low:high], assume_unique=True)
        positions, counts = places()
        keep = np.repeat(is_common, counts)
        owners = np.repeat(own, counts)[keep]
        # Positions are lifted by 1 << 20, so that moving one back by its distance stays within the document.
        yield (owners << _POSITION_BITS) + positions[keep] + (1 << 20)
