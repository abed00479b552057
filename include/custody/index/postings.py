"""Posting lists: the documents that have a term, as blocks of a `.pst` file or, when short, inside the dictionary.

Layout of a list: the mark `W3Bl`, then its blocks. A block is i32 length of what follows (negative for the last
block), a description (ABOUT), and the data: the documents, then weights and values (`custody.index.positions`). Both
are pickles, as Whoosh reads them. In the layout "bulk" they are fixed patterns of bytes with numbers in between, so
that a reader computes the place of each number and unpickles nothing; in the layout "stock" they are what Whoosh's own
writer made, and `custody.index.safe_pickle` reads them.

A list of up to INLINE_MAX documents lies in the dictionary: the same data without mark, length and description.
"""

from __future__ import annotations

import struct
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator
from functools import cached_property, partial
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from custody.index.arrays import Bytes, Ints, Pieces, copy_pieces, put_rows, put_same, raw, starts, within
from custody.index.inverted_field import InvertedField
from custody.index.paged_file import CheckedFile, numbers_at
from custody.index.positions import PositionEncoder, positions_of
from custody.index.safe_pickle import plain_data, plain_prefix

# The layout: shared by the writer and the reader below.
LIST_MARK = b"W3Bl"
# Part of what writers produce, not of the format: readers take the size of each block from its head.
BLOCK_POSTINGS = 2048
INLINE_MAX = 16
"""Lists of up to so many documents lie in the dictionary."""
# (postings, last document, greatest weight, compression, shortest length, greatest length)
_ABOUT = b"\x80\x02(J%sJ%sG%sK\0K\0K\0t."
ABOUT = np.frombuffer(_ABOUT % (bytes(4), bytes(4), struct.pack(">d", 1.0)), np.uint8)
ABOUT_POSTINGS, ABOUT_LAST, ABOUT_WEIGHT = 4, 9, 14
_LENGTH = struct.Struct(">i")
HEAD_BYTES = _LENGTH.size + len(ABOUT)
DATA_OPEN = b"\x80\x03("  # then the documents: the first as J, the others as differences of one width
DATA_CLOSE = b"tNN\x87."
INLINE_EMPTY = (b"tN(C\0", b"2", b"t\x87.")  # Whoosh wants a value a posting here, an empty one
FIRST_BYTES = 5
WIDTHS = ((2, b"K"), (3, b"M"), (5, b"J"))
"""Bytes of a difference and the code before it: unsigned 8 and 16 bits, signed 32 bits."""

# What only the reader needs.
NONE: Ints = np.empty(0, np.int64)
_DIFFERENCE = {code[0]: np.dtype([("code", "u1"), ("value", f"<u{width - 1}")]) for width, code in WIDTHS}
_DOCUMENT = np.dtype([("code", "u1"), ("value", "<u4")])
_BULK_ABOUT = struct.Struct("<ixI")
"""Number of postings and last document, from ABOUT_POSTINGS on."""
# A description is a pickle of six numbers, well below this.
_STOCK_HEAD_MAX = 256
_CHUNK = 4096
# After so many blocks a query is taken to need the whole list, and the next one too.
_BLOCKS_ALONE = 5
_MARK = int.from_bytes(LIST_MARK, "big")
# Where ABOUT and the first document lie in a list of one block.
_SINGLE_ABOUT = len(LIST_MARK) + _LENGTH.size
_SINGLE_FIRST = len(LIST_MARK) + HEAD_BYTES + len(DATA_OPEN)
_BITS = 32  # of a number; a list with more than one document in so many is kept as bits
_SPARSE = 64  # up to so many numbers a document, flags are cheaper than a binary search
# What is kept counts as so many bytes at least: its key and its objects take some.
_KEPT_BYTES_LEAST = 256

Mask = npt.NDArray[np.bool_]


def blocks(field: InvertedField, lists: Ints, positions_encoder: PositionEncoder | None) -> Pieces:
    """Return the blocks of some of a field's lists, which are named by the numbers of their terms."""
    frequencies, list_first = field.frequencies[lists], field.first[lists]
    block_counts = -(-frequencies // BLOCK_POSTINGS)
    list_of = np.repeat(np.arange(len(lists)), block_counts)
    number = within(block_counts)
    first = list_first[list_of] + number * BLOCK_POSTINGS
    end = np.minimum(first + BLOCK_POSTINGS, (list_first + frequencies)[list_of])
    is_first, is_last = number == 0, number == block_counts[list_of] - 1
    postings = end - first

    deltas, widths = _differences(field.documents, first, postings)
    tails = _tails(len(first)) if positions_encoder is None else positions_encoder.tails(first, end)
    # All lengths first, then one allocation: each part is then copied to its place for all blocks at once.
    data_lengths = len(DATA_OPEN) + FIRST_BYTES + (postings - 1) * widths + tails.lengths
    lengths = HEAD_BYTES + data_lengths + is_first * len(LIST_MARK)
    places = starts(lengths)
    out = np.empty(int(lengths.sum()), np.uint8)
    put_same(out, places[is_first], LIST_MARK)
    head_places = places + is_first * len(LIST_MARK)
    put_rows(out, head_places, _heads(field, first, end, data_lengths, is_last, positions_encoder))
    data_places = head_places + HEAD_BYTES
    put_same(out, data_places, DATA_OPEN)
    put_rows(out, data_places + len(DATA_OPEN), _number(b"J", field.documents[first].astype("<u4")))
    _put_differences(out, data_places + len(DATA_OPEN) + FIRST_BYTES, deltas, first + 1, postings - 1, widths)
    copy_pieces(tails.data, tails.places, out, places + lengths - tails.lengths, tails.lengths)

    list_places = places[is_first]
    list_lengths = np.diff(list_places, append=len(out))
    return Pieces(out, list_places, list_lengths)


def inline(field: InvertedField, lists: Ints, positions_encoder: PositionEncoder | None) -> Pieces:
    """Return short lists as they lie in the dictionary: all documents as J, not as differences."""
    frequencies, first = field.frequencies[lists], field.first[lists]
    tails = (
        _empty_tails(frequencies) if positions_encoder is None else positions_encoder.tails(first, first + frequencies)
    )
    lengths = len(DATA_OPEN) + FIRST_BYTES * frequencies + tails.lengths
    places = starts(lengths)
    out = np.empty(int(lengths.sum()), np.uint8)
    put_same(out, places, DATA_OPEN)
    which = np.repeat(first, frequencies) + within(frequencies)
    target = np.repeat(places + len(DATA_OPEN), frequencies) + within(frequencies) * FIRST_BYTES
    put_rows(out, target, _number(b"J", field.documents[which].astype("<u4")))
    copy_pieces(tails.data, tails.places, out, places + lengths - tails.lengths, tails.lengths)
    return Pieces(out, places, lengths)


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
    # The chosen lists need not be neighbours: each block is a piece of its own, and what lies between is ignored.
    bounds = np.stack([first, first + postings], axis=1).ravel()
    greatest = np.maximum.reduceat(np.append(deltas, np.uint32(0)), bounds)[::2]
    return deltas, np.where(greatest < 1 << 8, 2, np.where(greatest < 1 << 16, 3, 5)).astype(np.int64)


def _put_differences(
    out: Bytes, places: Ints, deltas: npt.NDArray[np.uint32], first: Ints, counts: Ints, widths: Ints
) -> None:
    for width, code in WIDTHS:
        chosen = np.flatnonzero((widths == width) & (counts > 0))
        if len(chosen):
            which = np.repeat(first[chosen], counts[chosen]) + within(counts[chosen])
            encoded = _number(code, deltas[which].astype(f"<u{width - 1}")).ravel()
            lengths = counts[chosen] * width
            copy_pieces(encoded, starts(lengths), out, places[chosen], lengths)


def _heads(
    field: InvertedField,
    first: Ints,
    end: Ints,
    data_lengths: Ints,
    is_last: npt.NDArray[np.bool_],
    positions_encoder: PositionEncoder | None,
) -> Bytes:
    heads = np.empty((len(first), HEAD_BYTES), np.uint8)
    lengths = len(ABOUT) + data_lengths
    heads[:, :4] = raw(np.where(is_last, -lengths, lengths).astype(">i4"))
    about = heads[:, 4:]
    about[:] = ABOUT
    about[:, ABOUT_POSTINGS : ABOUT_POSTINGS + 4] = raw((end - first).astype("<i4"))
    about[:, ABOUT_LAST : ABOUT_LAST + 4] = raw(field.documents[end - 1].astype("<u4"))
    if positions_encoder is not None:
        about[:, ABOUT_WEIGHT : ABOUT_WEIGHT + 8] = raw(positions_encoder.greatest(first, end).astype(">f8"))
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


class Block(NamedTuple):
    """A block of a posting list: the place of its data, its number of postings, and its last document."""

    place: int
    end: int
    postings: int
    last: int


class BlockedPostings(ABC):
    """The documents of one term, going up, in blocks that are decoded as they are needed; for one query of one thread.

    It keeps the block that was decoded last, so that neighbouring documents are cheap.
    """

    def __init__(
        self,
        place: int,
        frequency: int,
        first: int,
        last: int,
        cache: PostingsCache | None,
        blocks_alone: int = _BLOCKS_ALONE,
    ) -> None:
        self.frequency = frequency
        self._place = place
        self._kept = cache
        # Looked up once: what another query caches later does not change how this one goes on.
        self._whole = None if cache is None else cache.get(place)
        # A list of which so many blocks were decoded is decoded whole and kept.
        self._blocks_alone = blocks_alone
        self._decodings = 0
        self.first = first
        self.last = last
        self._decoded: tuple[int, Ints] = (-1, NONE)

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`."""
        number = self._block_from(low) if self._whole is None else None
        while number is not None:
            # The list became whole on the way: go on behind the last block that was given out.
            if self._is_read_on():
                low = max(low, self._last(number - 1) + 1) if number else low
                break
            documents = self._documents(number)
            begin, end = (
                documents.searchsorted((low, high)) if documents[0] < low or documents[-1] >= high else (0, None)
            )
            part = documents[begin:end]
            if len(part):
                yield part
            # Nothing behind this block can be in the range; asking for the next one would read its page.
            if documents[-1] >= high - 1:
                return
            number = self._block(number + 1)
        if self._whole is not None:
            yield from self._whole.chunks(low, high)

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up, are in the list."""
        mask = np.zeros(len(documents), np.bool_)
        begin = 0
        while begin < len(documents):
            if self._is_read_on() and self._whole is not None:
                mask[begin:] = self._whole.among(documents[begin:])
                break
            number = self._block_from(int(documents[begin]))
            if number is None:
                break
            own = self._documents(number)
            end = len(documents) if documents[-1] <= own[-1] else int(documents.searchsorted(own[-1], side="right"))
            candidates = documents[begin:end]
            mask[begin:end] = own[own.searchsorted(candidates)] == candidates  # none is above the block's last
            begin = end
        return mask

    def blocks(self) -> Iterator[Ints]:
        """Yield the documents of all blocks."""
        for number in self._numbers():
            yield self._documents(number)

    def _numbers(self) -> Iterator[int]:
        number = self._block_from(0)
        while number is not None:
            yield number
            number = self._block(number + 1)

    def _is_read_on(self) -> bool:
        """Whether the list is in memory as a whole; after some blocks the rest is decoded at once, and kept."""
        if self._whole is None and self._decodings >= self._blocks_alone and self._kept is not None:
            # A query that needed several blocks will need more, and so will the next one: decode the rest now, and
            # keep it.
            self._whole = self._in_memory()
            self._kept.put(self._place, self._whole)
        return self._whole is not None

    def _in_memory(self) -> WholePostings:
        """Return the list, decoded as a whole."""
        return DecodedPostings(np.concatenate(list(self.blocks())).astype(np.int32))

    def _documents(self, number: int) -> Ints:
        # Neighbouring chunks of a query fall into one block: decoding it again would cost more than the answer.
        if self._decoded[0] == number:
            return self._decoded[1]
        self._decodings += 1
        documents = self._decode(number)
        self._decoded = number, documents
        return documents

    @abstractmethod
    def _block_from(self, document: int) -> int | None:
        """Return the number of the first block that ends at a document or behind it."""

    @abstractmethod
    def _block(self, number: int) -> int | None:
        """Return the number when there is such a block."""

    @abstractmethod
    def _last(self, number: int) -> int:
        """Return the last document of a block that was asked for before."""

    @abstractmethod
    def _decode(self, number: int) -> Ints:
        """Return the documents of a block, checked."""


class PostingList(BlockedPostings):
    """The documents of one term as Whoosh has them; keeps the places of the blocks that were found."""

    def __init__(
        self,
        file: CheckedFile,
        layout: Literal["bulk", "stock"],
        place: int,
        frequency: int,
        first: int,
        last: int,
        cache: PostingsCache | None = None,
    ) -> None:
        super().__init__(place, frequency, first, last, cache)
        self._file = file
        self._layout = layout
        self._next: int | None = place
        self._blocks: list[Block] = []
        self._lasts: list[int] = []

    def placed(self) -> Iterator[tuple[Ints, Callable[[], tuple[Ints, Ints]]]]:
        """Yield the documents of each block, and what gives the places of the word and how many each document has."""
        for number in self._numbers():
            yield self._documents(number), partial(self._places, self._blocks[number])

    def _places(self, block: Block) -> tuple[Ints, Ints]:
        return positions_of(self._file.span(block.place, block.end), block.postings)

    def _last(self, number: int) -> int:
        return self._blocks[number].last

    def _block_from(self, document: int) -> int | None:
        number = bisect_left(self._lasts, document)
        while number == len(self._lasts) or self._lasts[number] < document:
            next_block = self._block(len(self._lasts))
            if next_block is None:
                return None
            number = next_block
        return number

    def _block(self, number: int) -> int | None:
        """Return the number when there is such a block; finds the place of the next one."""
        if number < len(self._blocks):
            return number
        if self._next is None:
            return None
        place = self._next
        if not self._blocks:
            if bytes(self._file.span(place, place + len(LIST_MARK))) != LIST_MARK:
                raise self._file.error(place, "a posting list", "other bytes")
            place += len(LIST_MARK)
        length = _LENGTH.unpack(self._file.span(place, place + _LENGTH.size))[0]
        begin, end = place + _LENGTH.size, place + _LENGTH.size + abs(length)
        block = self._bulk_head(begin, end) if self._layout == "bulk" else self._stock_head(begin, end)
        # Checksums do not help against a forged file. What does not fit the dictionary is refused before memory is
        # taken.
        if not 0 < block.postings <= self.frequency or block.last > self.last:
            raise self._file.error(place, f"a block of up to {self.frequency} postings", f"{block.postings}")
        self._next = None if length < 0 else end
        self._blocks.append(block)
        self._lasts.append(block.last)
        return number

    def _bulk_head(self, begin: int, end: int) -> Block:
        data = begin + HEAD_BYTES - _LENGTH.size
        about = self._file.span(begin, data)
        postings, last = _BULK_ABOUT.unpack_from(about, ABOUT_POSTINGS)
        return Block(data, end, postings, last)

    def _stock_head(self, begin: int, end: int) -> Block:
        about, length = plain_prefix(self._file.span(begin, min(end, begin + _STOCK_HEAD_MAX)))
        match about:
            case (int(postings), int(last), float() | int(), 0, int(), int()):
                return Block(begin + length, end, postings, last)
        raise self._file.error(begin, "the description of a block", repr(about))

    def _decode(self, number: int) -> Ints:
        block = self._blocks[number]
        documents = self._bulk_data(block) if self._layout == "bulk" else self._stock_data(block)
        # The last document was read from the description: a difference that was changed shows here.
        if len(documents) != block.postings or documents[-1] != block.last:
            raise self._file.error(block.place, f"{block.postings} documents up to {block.last}", "others")
        return documents

    def _bulk_data(self, block: Block) -> Ints:
        data = self._file.span(block.place, block.end)
        begin = len(DATA_OPEN)
        documents = np.empty(block.postings, np.int64)
        documents[0] = np.frombuffer(data, _DOCUMENT, 1, begin)["value"][0]
        if block.postings > 1:
            begin += FIRST_BYTES
            kind = _DIFFERENCE.get(data[begin])
            if kind is None:
                raise self._file.error(block.place + begin, "a difference", f"code {data[begin]}")
            documents[1:] = np.frombuffer(data, kind, block.postings - 1, begin)["value"]
            np.cumsum(documents, out=documents)
        return documents

    def _stock_data(self, block: Block) -> Ints:
        match plain_data(self._file.span(block.place, block.end)):
            case (tuple(deltas), _, _):
                return np.cumsum(np.array(deltas, np.int64))
        raise self._file.error(block.place, "a block of postings", "other data")


class InlineList(PostingList):
    """A short list that lies in the dictionary: all documents at once."""

    def __init__(self, file: CheckedFile, place: int, end: int, frequency: int) -> None:
        begin = place + len(DATA_OPEN)
        data = file.span(begin, begin + frequency * FIRST_BYTES)
        documents = np.frombuffer(data, _DOCUMENT)["value"].astype(np.int64)
        first, last = int(documents[0]), int(documents[-1])
        super().__init__(file, "bulk", place, frequency, first, last)
        self._blocks = [Block(place, end, frequency, last)]
        self._lasts = [last]
        self._next = None
        self._decoded = 0, documents


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
    file.require(places, _SINGLE_FIRST + FIRST_BYTES)
    if (numbers_at(file.data, places, ">u4") != _MARK).any():
        raise file.error(int(places[0]), "posting lists", "other bytes")
    lengths = -numbers_at(file.data, places + len(LIST_MARK), ">i4")  # the last block's is negative
    is_single = lengths > 0
    places, lengths = places[is_single], lengths[is_single]
    counts = numbers_at(file.data, places + _SINGLE_ABOUT + ABOUT_POSTINGS, "<i4")
    lasts = numbers_at(file.data, places + _SINGLE_ABOUT + ABOUT_LAST, "<u4")
    # No more than the file holds: a forged count must not make us allocate more memory.
    if (counts < 1).any() or (counts > lengths).any() or int(lengths.sum()) > file.size:
        raise file.error(int(places[0]), "numbers of postings", "such as do not fit into their blocks")
    begin = starts(counts)
    decoded = np.empty(int(counts.sum()), np.int64)
    decoded[begin] = numbers_at(file.data, places + _SINGLE_FIRST + 1, "<u4")
    _put_single_differences(file, places + _SINGLE_FIRST + FIRST_BYTES, counts, begin, decoded)
    # One running sum over all lists; what came before each list is taken off again.
    sums = np.cumsum(decoded)
    decoded = sums - np.repeat(sums[begin] - decoded[begin], counts)
    if len(decoded) and (
        (decoded[begin + counts - 1] != lasts).any() or not 0 <= decoded.min() <= decoded.max() < documents
    ):
        raise file.error(int(places[0]), f"documents below {documents}, the last as described", "others")
    return SingleBlocks(is_single, decoded, counts)


def _put_single_differences(file: CheckedFile, places: Ints, counts: Ints, begin: Ints, out: Ints) -> None:
    """Write the differences behind the first document of each list; they lie from some places on, of one width each."""
    several = np.flatnonzero(counts > 1)
    file.require(places[several], 1)
    codes = file.data[places[several]]
    unknown = len(several)
    for width, code in WIDTHS:
        chosen = several[codes == code[0]]
        unknown -= len(chosen)
        lengths = counts[chosen] - 1
        step = within(lengths)
        at = np.repeat(places[chosen], lengths) + step * width + 1
        file.require(at, width - 1)
        out[np.repeat(begin[chosen] + 1, lengths) + step] = numbers_at(file.data, at, f"<u{width - 1}")
    if unknown:
        raise file.error(int(places[several[0]]), "differences", "an unknown code")


class WholePostings(Protocol):
    """The interface of a list that is in memory as a whole."""

    @property
    def nbytes(self) -> int:
        """How much memory it takes."""
        ...

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`, in arrays that are not empty."""
        ...

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up and at least one, are in the list."""
        ...


class DecodedPostings:
    """The documents of a term, going up, at least one; as bits, too, where that takes less room than the numbers."""

    def __init__(self, documents: npt.NDArray[np.int32]) -> None:
        self.documents = documents
        self._end = int(documents[-1]) + 1
        # As bits it takes less memory than as numbers of 32 bits, and one look-up instead of a search.
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

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`."""
        begin, end = self.bounds(low, high)
        for start in range(begin, end, _CHUNK):
            yield self.documents[start : min(start + _CHUNK, end)].astype(np.int64)

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
    """Whole lists of one shard and unions of them, within a bound of bytes; may be used by several threads.

    A list has its place in the file as key, a union what was asked for.
    """

    def __init__(self, bytes_max: int = 1 << 20) -> None:
        self._bytes_max = bytes_max
        self._lists: dict[Hashable, WholePostings] = {}
        self._bytes = 0
        self._lock = threading.Lock()

    def get(self, key: Hashable) -> WholePostings | None:
        """Return what has a key, None when it is not kept."""
        # Without the lock: a single look-up in a dict, which other threads cannot tear.
        return self._lists.get(key)

    def put(self, key: Hashable, postings: WholePostings) -> None:
        """Keep a list or a union; those that were kept first go."""
        with self._lock:
            # Two threads may decode the same list at once; counted twice, its bytes would never be given back.
            if key in self._lists or postings.nbytes > self._bytes_max:
                return
            self._lists[key] = postings
            self._bytes += _kept_bytes(postings)
            while self._bytes > self._bytes_max:
                self._bytes -= _kept_bytes(self._lists.pop(next(iter(self._lists))))


def _kept_bytes(postings: WholePostings) -> int:
    return max(postings.nbytes, _KEPT_BYTES_LEAST)
