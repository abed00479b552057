"""Phrases: the documents in which some words follow each other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial, reduce

import numpy as np
import numpy.typing as npt

from custody.index.reader.nodes import AllOf, Known, Listed, Node
from custody.index.reader.pickled import plain_data
from custody.index.reader.postings import Block, PostingList
from custody.index.segment.arrays import Ints

_PLACE_BITS = 31
_COUNT_BYTES = 4
# A value of one place below 256: code and length of the bytes, u32 1, `](K`, the place, `e.`
_SIMPLE = np.frombuffer(b"C\x0a\0\0\0\x01](K\0e.", np.uint8)
_SIMPLE_PLACE = 9


def phrase(words: Sequence[PostingList]) -> Node:
    """Return the documents in which these words stand one behind the other.

    Each occurrence is one number, document above place; a phrase is where the numbers of all words, each moved back by
    its distance from the first, are the same.
    """
    together = AllOf([Listed(found) for found in words])
    documents = np.concatenate([np.empty(0, np.int64), *together.chunks(together.low, together.high)])
    if len(words) == 1 or not len(documents):
        return Known(documents)
    begins = [
        np.concatenate([np.empty(0, np.int64), *_occurrences(word, documents)]) - distance
        for distance, word in enumerate(words)
    ]
    found = reduce(partial(np.intersect1d, assume_unique=True), begins)
    return Known(np.unique(found >> _PLACE_BITS))


def _occurrences(word: PostingList, documents: Ints) -> Iterator[Ints]:
    """Yield the occurrences of a word in some documents, block by block."""
    for block, own in word.blocks():
        low, high = documents.searchsorted((own[0], own[-1] + 1)).tolist()
        if low == high:
            continue
        wanted = np.isin(own, documents[low:high], assume_unique=True)
        places, counts = _places(word, block)
        keep = np.repeat(wanted, counts)
        owners = np.repeat(own, counts)[keep]
        # One place is left below the first, so that moving back stays within the document.
        yield (owners << _PLACE_BITS) + places[keep] + (1 << 20)


def _places(word: PostingList, block: Block) -> tuple[Ints, Ints]:
    """Return all places of a block's postings, and how many each posting has."""
    data = word.data_of(block)
    simple = _simple_places(data, block.postings)
    if simple is not None:
        return simple, np.ones(block.postings, np.int64)
    match plain_data(data):
        case (_, _, tuple(values)):
            lists = [_decoded(value) for value in values]
            counts = np.array([len(places) for places in lists], np.int64)
            return np.array([place for places in lists for place in places], np.int64), counts
    raise ValueError("a block without places")


def _simple_places(data: memoryview, postings: int) -> Ints | None:
    """Return the places when each posting has one that fits into a byte, as nearly all have; else None."""
    size = postings * len(_SIMPLE)
    end = len(data) - 3
    if end < size or bytes(data[end - size - 2 : end - size]) != b"N(":
        return None
    rows: npt.NDArray[np.uint8] = np.frombuffer(data[end - size : end], np.uint8).reshape(postings, -1)
    fixed = np.delete(rows, _SIMPLE_PLACE, axis=1)
    if not (fixed == np.delete(_SIMPLE, _SIMPLE_PLACE)).all():
        return None
    return rows[:, _SIMPLE_PLACE].astype(np.int64)


def _decoded(value: object) -> list[int]:
    if not isinstance(value, bytes):
        raise TypeError("places that are no bytes")
    differences = plain_data(value[_COUNT_BYTES:] if value.endswith(b".") else value[_COUNT_BYTES:] + b".")
    if not isinstance(differences, list) or not all(type(item) is int for item in differences):
        raise ValueError("places that are no list of numbers")
    return np.cumsum(differences).tolist()  # type: ignore[no-any-return]
