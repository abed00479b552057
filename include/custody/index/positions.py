"""Positions: the places of words in a text, as each posting of a text field carries them.

Layout, as Whoosh's format Positions has it: behind the documents of a block come the weights (N when all are 1), then
one value a posting: u32 number of positions, big-endian, then a pickled list of the differences between them. The
weight of a posting is the number of its positions.

`PositionEncoder` writes the values of a field at once; `positions_of` reads those of one block.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from custody.index.arrays import Ints, Pieces, copy_pieces, put_rows, put_same, raw, starts
from custody.index.safe_pickle import plain_data

COUNT_BYTES = 4
LIST_OPEN, LIST_CLOSE = b"](", b"e."
# Pickle has a code for byte strings below 256 bytes (C) and another one for longer ones (B).
_LONG_VALUE = 256
_FIXED = COUNT_BYTES + len(LIST_OPEN) + len(LIST_CLOSE)
# A value of one position below 256: code and length of the bytes, u32 1, `](K`, the position, `e.`
_SIMPLE = np.frombuffer(b"C\x0a\0\0\0\x01](K\0e.", np.uint8)
_SIMPLE_POSITION = 9


@dataclass(frozen=True, slots=True)
class Positions:
    """The places of terms in a text: positions[first : first + count] for each posting, in rising order."""

    positions: npt.NDArray[np.int32]
    counts: Ints


class PositionEncoder:
    """The encoded values of all postings of a field, one behind the other."""

    def __init__(self, positions: Positions) -> None:
        self._counts = positions.counts
        self._values = _values(positions)
        self._bounds = np.append(self._values.places, len(self._values.data))

    def greatest(self, first: Ints, end: Ints) -> npt.NDArray[np.float64]:
        """Return the greatest weight of some runs of postings, first to end each."""
        bounds = np.stack([first, end], axis=1).ravel()
        return np.maximum.reduceat(np.append(self._counts, 0), bounds)[::2].astype(np.float64)

    def tails(self, first: Ints, end: Ints) -> Pieces:
        """Return the end of the data of some runs of postings: `t`, weights, values, end of the pickle."""
        has_weights = self.greatest(first, end) > 1
        weight_lengths = np.where(has_weights, 2 + 9 * (end - first), 1)
        value_lengths = self._bounds[end] - self._bounds[first]
        lengths = 1 + weight_lengths + 1 + value_lengths + 3
        places = starts(lengths)
        out = np.empty(int(lengths.sum()), np.uint8)
        put_same(out, places, b"t")
        put_same(out, places[~has_weights] + 1, b"N")
        for place, low, high in zip(*(a[has_weights].tolist() for a in (places + 1, first, end)), strict=True):
            encoded = np.full((high - low, 9), ord("G"), np.uint8)
            encoded[:, 1:] = raw(self._counts[low:high].astype(">f8"))
            out[place] = ord("(")
            out[place + 1 : place + 1 + encoded.size] = encoded.ravel()
            out[place + 1 + encoded.size] = ord("t")
        values = places + 1 + weight_lengths
        put_same(out, values, b"(")
        copy_pieces(self._values.data, self._bounds[first], out, values + 1, value_lengths)
        put_same(out, values + 1 + value_lengths, b"t\x87.")
        return Pieces(out, places, lengths)


def positions_of(data: memoryview, postings: int) -> tuple[Ints, Ints]:
    """Return all positions in the data of a block, and how many each posting has.

    Raises:
        ValueError, TypeError: the data hold no positions.
    """
    # Nearly all blocks have this form, which numpy reads at once; the rest is unpickled value by value.
    simple = _simple_positions(data, postings)
    if simple is not None:
        return simple, np.ones(postings, np.int64)
    match plain_data(data):
        case (_, _, tuple(values)):
            lists = [_decoded(value) for value in values]
            counts = np.array([len(positions) for positions in lists], np.int64)
            return np.array([position for positions in lists for position in positions], np.int64), counts
    raise ValueError("a block without places")


def _values(positions: Positions) -> Pieces:
    """Return each posting's value as a pickled byte string."""
    first = starts(positions.counts)
    deltas = positions.positions.astype(np.int64)
    deltas[1:] -= positions.positions[:-1]
    # The first position of a posting counts from 0, not from the last one of the posting before it.
    deltas[first] = positions.positions[first]
    # Pickle's codes for numbers: K has one byte, M two, J four, each behind the code itself.
    widths = np.where(deltas < 1 << 8, 2, np.where(deltas < 1 << 16, 3, 5))
    bodies = np.add.reduceat(widths, first) if len(first) else np.empty(0, np.int64)
    sizes = bodies + _FIXED
    heads = np.where(sizes < _LONG_VALUE, 2, 5)
    lengths = heads + sizes
    places = starts(lengths)
    out = np.empty(int(lengths.sum()), np.uint8)
    short = sizes < _LONG_VALUE
    put_rows(out, places[short], np.stack([np.full(int(short.sum()), ord("C")), sizes[short]], axis=1).astype(np.uint8))
    put_same(out, places[~short], b"B")
    put_rows(out, places[~short] + 1, raw(sizes[~short].astype("<u4")))
    put_rows(out, places + heads, raw(positions.counts.astype(">u4")))
    put_same(out, places + heads + 4, LIST_OPEN)
    within = np.cumsum(widths) - widths
    target = (
        np.repeat(places + heads + 4 + len(LIST_OPEN) - within[first], positions.counts) + within
        if len(first)
        else within
    )
    for width, code, kind in ((2, "K", "<u1"), (3, "M", "<u2"), (5, "J", "<i4")):
        chosen = widths == width
        encoded = np.full((int(chosen.sum()), width), ord(code), np.uint8)
        encoded[:, 1:] = raw(deltas[chosen].astype(kind))
        put_rows(out, target[chosen], encoded)
    put_same(out, places + lengths - len(LIST_CLOSE), LIST_CLOSE)
    return Pieces(out, places, lengths)


def _simple_positions(data: memoryview, postings: int) -> Ints | None:
    """Return the positions when each posting has one that fits into a byte, as nearly all have; else None."""
    size = postings * len(_SIMPLE)
    end = len(data) - 3
    if end < size or bytes(data[end - size - 2 : end - size]) != b"N(":
        return None
    rows: npt.NDArray[np.uint8] = np.frombuffer(data[end - size : end], np.uint8).reshape(postings, -1)
    fixed = np.delete(rows, _SIMPLE_POSITION, axis=1)
    # Compared byte by byte: a block may have the same length by chance and still be another form.
    if not (fixed == np.delete(_SIMPLE, _SIMPLE_POSITION)).all():
        return None
    return rows[:, _SIMPLE_POSITION].astype(np.int64)


def _decoded(value: object) -> list[int]:
    if not isinstance(value, bytes):
        raise TypeError("positions that are no bytes")
    differences = plain_data(value[COUNT_BYTES:] if value.endswith(b".") else value[COUNT_BYTES:] + b".")
    if not isinstance(differences, list) or not all(type(item) is int for item in differences):
        raise ValueError("positions that are no list of numbers")
    return np.cumsum(differences).tolist()  # type: ignore[no-any-return]
