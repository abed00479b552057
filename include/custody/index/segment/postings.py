"""Posting lists as bytes: the blocks of a `.pst` file, and the short lists that lie in the dictionary itself.

A list is the mark `W3Bl` and then blocks: i32 length of what follows (negative for the last block), a description of
fixed size, and the data. Both are pickles, as Whoosh reads them: made here as fixed patterns of bytes with numbers in
between, in such a way that custody's own reader finds each number at a place that it can compute.
"""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from custody.index.segment.arrays import Bytes, Ints, Pieces, copy_pieces, put, put_same, raw, starts
from custody.index.segment.lists import FieldTerms
from custody.index.segment.occurrences import Occurrences

LIST_MARK = b"W3Bl"
BLOCK_POSTINGS = 2048
INLINE_MAX = 16
"""Lists of up to so many documents lie in the dictionary."""

# (postings, last document, greatest weight, compression, shortest length, greatest length)
_ABOUT = b"\x80\x02(J%sJ%sG%sK\0K\0K\0t."
ABOUT = np.frombuffer(_ABOUT % (bytes(4), bytes(4), struct.pack(">d", 1.0)), np.uint8)
ABOUT_POSTINGS, ABOUT_LAST, ABOUT_WEIGHT = 4, 9, 14
HEAD_BYTES = 4 + len(ABOUT)
DATA_OPEN = b"\x80\x03("  # then the documents: the first as J, the others as differences of one width
DATA_CLOSE = b"tNN\x87."
INLINE_EMPTY = (b"tN(C\0", b"2", b"t\x87.")  # Whoosh wants a value a posting here, an empty one
FIRST_BYTES = 5
WIDTHS = ((2, b"K"), (3, b"M"), (5, b"J"))
"""Bytes of a difference and the code before it: unsigned 8 and 16 bits, signed 32 bits."""


def blocks(field: FieldTerms, lists: Ints, occurrences: Occurrences | None) -> Pieces:
    """Return the blocks of some of a field's lists, which are named by the numbers of their terms."""
    frequencies, list_first = field.frequencies[lists], field.first[lists]
    block_counts = -(-frequencies // BLOCK_POSTINGS)
    list_of = np.repeat(np.arange(len(lists)), block_counts)
    within = np.arange(len(list_of)) - np.repeat(starts(block_counts), block_counts)
    first = list_first[list_of] + within * BLOCK_POSTINGS
    end = np.minimum(first + BLOCK_POSTINGS, (list_first + frequencies)[list_of])
    is_first, is_last = within == 0, within == block_counts[list_of] - 1
    postings = end - first

    deltas, widths = _differences(field.documents, first, postings)
    tails = _tails(len(first)) if occurrences is None else occurrences.tails(first, end)
    data_lengths = len(DATA_OPEN) + FIRST_BYTES + (postings - 1) * widths + tails.lengths
    lengths = HEAD_BYTES + data_lengths + is_first * len(LIST_MARK)
    places = starts(lengths)
    out = np.empty(int(lengths.sum()), np.uint8)
    put_same(out, places[is_first], LIST_MARK)
    head_places = places + is_first * len(LIST_MARK)
    put(out, head_places, _heads(field, first, end, data_lengths, is_last, occurrences))
    data_places = head_places + HEAD_BYTES
    put_same(out, data_places, DATA_OPEN)
    put(out, data_places + len(DATA_OPEN), _number(b"J", field.documents[first].astype("<u4")))
    _put_differences(out, data_places + len(DATA_OPEN) + FIRST_BYTES, deltas, first + 1, postings - 1, widths)
    copy_pieces(tails.data, tails.places, out, places + lengths - tails.lengths, tails.lengths)

    list_places = places[is_first]
    list_lengths = np.diff(list_places, append=len(out))
    return Pieces(out, list_places, list_lengths)


def inline(field: FieldTerms, lists: Ints, occurrences: Occurrences | None) -> Pieces:
    """Return short lists as they lie in the dictionary: all documents as J, not as differences."""
    frequencies, first = field.frequencies[lists], field.first[lists]
    tails = _empty_tails(frequencies) if occurrences is None else occurrences.tails(first, first + frequencies)
    lengths = len(DATA_OPEN) + FIRST_BYTES * frequencies + tails.lengths
    places = starts(lengths)
    out = np.empty(int(lengths.sum()), np.uint8)
    put_same(out, places, DATA_OPEN)
    which = np.repeat(first, frequencies) + _within(frequencies)
    target = np.repeat(places + len(DATA_OPEN), frequencies) + _within(frequencies) * FIRST_BYTES
    put(out, target, _number(b"J", field.documents[which].astype("<u4")))
    copy_pieces(tails.data, tails.places, out, places + lengths - tails.lengths, tails.lengths)
    return Pieces(out, places, lengths)


def _within(counts: Ints) -> Ints:
    """Return 0, 1, … count - 1 for each count, one behind the other."""
    return np.arange(int(counts.sum())) - np.repeat(starts(counts), counts)


def _number(code: bytes, values: npt.NDArray[np.generic]) -> Bytes:
    """Return numbers with the code of their kind before each, shape (n, bytes)."""
    digits = raw(values)
    rows = np.empty((len(digits), 1 + digits.shape[1]), np.uint8)
    rows[:, 0] = code[0]
    rows[:, 1:] = digits
    return rows


def _differences(documents: npt.NDArray[np.uint32], first: Ints, postings: Ints) -> tuple[npt.NDArray[np.uint32], Ints]:
    """Return each document's distance from the one before, and the bytes that a block needs for each of them."""
    deltas = np.zeros(len(documents), np.uint32)
    np.subtract(documents[1:], documents[:-1], out=deltas[1:])
    deltas[first] = 0  # not a distance: the block before may be another list's
    if not len(first):
        return deltas, np.empty(0, np.int64)
    # Pieces may leave out lists between them: each block is its own piece, and what lies between is ignored.
    bounds = np.stack([first, first + postings], axis=1).ravel()
    greatest = np.maximum.reduceat(np.append(deltas, np.uint32(0)), bounds)[::2]
    return deltas, np.where(greatest < 1 << 8, 2, np.where(greatest < 1 << 16, 3, 5)).astype(np.int64)


def _put_differences(
    out: Bytes, places: Ints, deltas: npt.NDArray[np.uint32], first: Ints, counts: Ints, widths: Ints
) -> None:
    for width, code in WIDTHS:
        chosen = np.flatnonzero((widths == width) & (counts > 0))
        if len(chosen):
            which = np.repeat(first[chosen], counts[chosen]) + _within(counts[chosen])
            encoded = _number(code, deltas[which].astype(f"<u{width - 1}")).ravel()
            lengths = counts[chosen] * width
            copy_pieces(encoded, starts(lengths), out, places[chosen], lengths)


def _heads(
    field: FieldTerms,
    first: Ints,
    end: Ints,
    data_lengths: Ints,
    is_last: npt.NDArray[np.bool_],
    occurrences: Occurrences | None,
) -> Bytes:
    heads = np.empty((len(first), HEAD_BYTES), np.uint8)
    lengths = len(ABOUT) + data_lengths
    heads[:, :4] = raw(np.where(is_last, -lengths, lengths).astype(">i4"))
    about = heads[:, 4:]
    about[:] = ABOUT
    about[:, ABOUT_POSTINGS : ABOUT_POSTINGS + 4] = raw((end - first).astype("<i4"))
    about[:, ABOUT_LAST : ABOUT_LAST + 4] = raw(field.documents[end - 1].astype("<u4"))
    if occurrences is not None:
        about[:, ABOUT_WEIGHT : ABOUT_WEIGHT + 8] = raw(occurrences.greatest(first, end).astype(">f8"))
    return heads


def _tails(count: int) -> Pieces:
    """Return the end of a block's data without weights and values, for some blocks."""
    lengths = np.full(count, len(DATA_CLOSE), np.int64)
    return Pieces(np.frombuffer(DATA_CLOSE, np.uint8), np.zeros(count, np.int64), lengths)


def _empty_tails(frequencies: Ints) -> Pieces:
    """Return the end of inline lists whose values are empty."""
    begin, again, end = INLINE_EMPTY
    data = b"".join(begin + again * (count - 1) + end for count in range(1, INLINE_MAX + 1))
    lengths = np.arange(INLINE_MAX) + len(begin) + len(end)
    places = starts(lengths)
    return Pieces(np.frombuffer(data, np.uint8), places[frequencies - 1], lengths[frequencies - 1])
