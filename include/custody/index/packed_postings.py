"""Posting lists of a packed shard: the documents that have a term, in one of three forms.

- Up to SHORT_MAX documents: the first one, then the differences, all of one width, in the stream of the field.
- More: by Elias and Fano, in blocks of BLOCK_POSTINGS. Of each document the lower bits are stored as they are; the
  upper parts rise, so they are a row of bits, a one for each document and a zero for each upper part in between.
- More than one document in DENSE: a bit for each document. It takes some bits more, and nothing has to be decoded.

For each term a field has a head of two bytes: how many documents, and how wide a difference is. The place of a list in
the stream follows from the heads of its group of GROUP_TERMS terms, whose first place is stored. The head of a longer
list says its form; the stream then has its place and its number of documents.
Docs: docs/formats/packed-shard.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from custody.errors import CorruptionError
from custody.format.number_sets import distinct
from custody.index.arrays import Bytes, Ints, put_rows, raw, starts, within
from custody.index.bit_packing import (
    WORD_BYTES,
    as_bytes,
    bit_lengths,
    masks,
    ones,
    packed,
    run,
    unpacked,
)
from custody.index.doc_sets import DocList
from custody.index.inverted_field import InvertedField
from custody.index.paged_file import CheckedFile
from custody.index.postings import NONE, BlockedPostings, DecodedPostings, Mask, PostingsCache, WholePostings

# The format: shared by the writer and the readers below.
SHORT_MAX = 255
"""Longer lists lie behind the stream; a head has eight bits for the number."""
GROUP_TERMS = 32
BLOCK_POSTINGS = 1024
DENSE = 16
ELIAS_FANO, BITS = 0, 1
"""The forms of longer lists, as their heads say them."""
HEAD = np.dtype("<u2")
_WIDTH_SHIFT, _COUNT_MASK = 8, 0xFF
# Of a longer list the stream has the place in the file of lists, and the number of documents.
_PLACE_BITS, _COUNT_BITS = 64, 32
_LONG_BITS = _PLACE_BITS + _COUNT_BITS
_BOUNDS = np.dtype([("first", "<u4"), ("last", "<u4")])
"""How a longer list begins."""
_BLOCK = np.dtype([("last", "<u4"), ("end", "<u4")])
"""Of each block of Elias and Fano its last document, and where its bytes end, counted from the end of this table."""

# What only the reader needs.
_CHUNK = 4096
_WINDOW_MAX = 1 << 16
# Up to so many terms, heads of one group are taken twice sooner than groups are told apart.
_GROUPS_TWICE = 256
_KNOWN_MAX = 256
# After so many blocks of a list the rest is decoded as well, and kept.
_BLOCKS_ALONE = 3
# A list with more than one document in so many is kept as bits. They may take eight times the memory of numbers of 32
# bits, within the bound of what is kept; to ask them takes less than half the time.
_IN_BITS = 256
# Below so many documents each, sorting a union costs less than a flag for each document of the shard.
_SPARSE = 64
_GAP_BITS_MAX = 32
# Up to so many documents a list is taken apart in Python, which costs less than calls of numpy.
_FEW = 160
# So few lists are taken apart one by one sooner than together: all calls of numpy take as long as these.
_FEW_LISTS = 12
_FEW_DOCUMENTS = 400

Documents = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class PackedLists:
    """The lists of a field: a head a term, a place a group of terms, the stream, and what lies behind it."""

    heads: npt.NDArray[np.uint16]
    places: Ints
    stream: Bytes
    longer: Bytes


def document_bits(documents: int) -> int:
    """Return how many bits the number of any document takes."""
    return max(documents - 1, 1).bit_length()


def packed_lists(field: InvertedField, documents: int, begin: int) -> PackedLists:
    """Return the lists of a field, whose stream will begin at byte `begin` of the file."""
    counts, first = field.frequencies, field.first
    numbers = field.documents.astype(np.int64)
    gaps = np.diff(numbers, prepend=0) - 1
    gaps[first] = 0  # no gap: what is before belongs to another list
    widths = bit_lengths(np.maximum.reduceat(gaps, first).astype(np.uint64))
    is_short = counts <= SHORT_MAX
    own_bits = document_bits(documents)
    bits = np.where(is_short, own_bits + (counts - 1) * widths, _LONG_BITS)
    begins = np.arange(0, len(counts), GROUP_TERMS)
    # Each group begins at a whole byte, so that its place is a small number.
    sizes = -(-np.add.reduceat(bits, begins) // 8)
    groups = starts(sizes)
    within_group = starts(bits)
    within_group -= np.repeat(within_group[begins], np.diff(begins, append=len(counts)))
    places = np.repeat(groups * 8, np.diff(begins, append=len(counts))) + within_group
    size = int(sizes.sum()) * 8
    heads = np.where(is_short, counts | widths << _WIDTH_SHIFT, 0)

    short = np.flatnonzero(is_short)
    owner = np.repeat(short, counts[short])
    step = within(counts[short])
    chosen = first[owner] + step
    is_first = step == 0
    values = np.where(is_first, numbers[chosen], gaps[chosen]).astype(np.uint64)
    at = places[owner] + np.where(is_first, 0, own_bits + (step - 1) * widths[owner])
    words = packed(values, at, size)
    padded = -(-(size // 8) // WORD_BYTES) * WORD_BYTES
    longer = np.empty(0, np.uint8)
    long = np.flatnonzero(~is_short)
    if len(long):
        longer, list_places, forms = _longer(numbers, first[long], counts[long])
        heads[long] = forms << _WIDTH_SHIFT
        values = np.stack([list_places + begin + padded, counts[long]], axis=1).astype(np.uint64).ravel()
        at = (places[long][:, None] + np.array([0, _PLACE_BITS])).ravel()
        words |= packed(values, at, size)
    stream = as_bytes(np.append(words, np.zeros(1, np.uint64)), padded)
    return PackedLists(heads.astype(HEAD), groups, stream, longer)


def _longer(numbers: Documents, first: Ints, counts: Ints) -> tuple[Bytes, Ints, Ints]:
    """Return the bytes of some longer lists, where each begins, and their forms."""
    lowest, last = numbers[first], numbers[first + counts - 1]
    forms = np.where(last - lowest < counts * DENSE, BITS, ELIAS_FANO)
    blocks = np.where(forms == ELIAS_FANO, -(-counts // BLOCK_POSTINGS), 0)
    # All blocks of all lists at once; those of a list lie behind its table.
    which = np.repeat(np.arange(len(first)), blocks)
    block = within(blocks)
    begin = first[which] + block * BLOCK_POSTINGS
    size = np.minimum(counts[which] - block * BLOCK_POSTINGS, BLOCK_POSTINGS)
    block_last = numbers[begin + size - 1]
    base = np.where(block == 0, numbers[begin], numbers[begin - 1] + 1)
    low_bits = _low_bits(block_last - base, size)
    high_bytes = -(-(size + (block_last - base >> low_bits)) // 8)
    block_bytes = high_bytes + -(-size * low_bits // 8)
    ends = np.cumsum(block_bytes)
    before = ends - block_bytes
    list_before = before[starts(blocks)[blocks > 0]]
    lead = np.zeros(len(first), np.int64)
    lead[blocks > 0] = list_before
    data = np.zeros(len(first), np.int64)
    np.add.at(data, which, block_bytes)
    data = np.where(forms == BITS, (last >> 3) - (lowest >> 3) + 1, data)
    heads = _BOUNDS.itemsize + blocks * _BLOCK.itemsize
    sizes = -(-(heads + data) // WORD_BYTES) * WORD_BYTES
    places = starts(sizes)

    block_place = (places + heads - lead)[which] + before
    of_block = np.repeat(np.arange(len(begin)), size)
    step = within(size)
    offsets = numbers[begin[of_block] + step] - base[of_block]
    lows = low_bits[of_block]
    highs = (block_place * 8)[of_block] + (offsets >> lows) + step
    total = int(sizes.sum()) * 8
    words = packed(np.ones(len(highs), np.uint64), highs, total)
    words |= packed(
        offsets.astype(np.uint64) & masks(lows), (block_place + high_bytes)[of_block] * 8 + step * lows, total
    )
    dense = np.flatnonzero(forms == BITS)
    of_list = np.repeat(dense, counts[dense])
    at = numbers[first[of_list] + within(counts[dense])]
    at += ((places + heads) * 8 - (lowest & ~7))[of_list]
    words |= packed(np.ones(len(at), np.uint64), at, total)

    out = as_bytes(words, total // 8).copy()
    bounds = np.empty(len(first), _BOUNDS)
    bounds["first"], bounds["last"] = lowest, last
    put_rows(out, places, raw(bounds))
    table = np.empty(len(begin), _BLOCK)
    table["last"], table["end"] = block_last, ends - lead[which]
    put_rows(out, places[which] + _BOUNDS.itemsize + block * _BLOCK.itemsize, raw(table))
    return out, places, forms


def _low_bits(span: Ints, count: Ints) -> Ints:
    """Return how many lower bits are stored of each of `count` documents that lie `span` apart."""
    lengths: Ints = np.maximum(bit_lengths(((span + 1) // count).astype(np.uint64)) - 1, 0)
    return lengths


class ListTable:
    """The lists of a field of an open shard; may be used by several threads.

    Args:
        file: the file of lists.
        heads: a head a term, checked.
        places: where each group begins in the stream, in bytes, checked.
        begin: where the stream begins in the file.
        documents: how many documents the shard has.
        cache: keeps longer lists that were decoded.
    """

    def __init__(
        self,
        file: CheckedFile,
        heads: npt.NDArray[np.uint16],
        places: npt.NDArray[np.uint64],
        begin: int,
        documents: int,
        cache: PostingsCache,
    ) -> None:
        if begin > file.size or (len(places) and int(places.max()) >= file.size):
            raise file.error(begin, "places of lists within the file", "others")
        self._file = file
        self._heads = heads
        self._places = places
        self._begin = begin
        self._documents = documents
        self._own_bits = document_bits(documents)
        self._cache = cache
        self._known: dict[int, BitList | EliasFanoBlocks] = {}

    def list_of(self, number: int) -> ShortList | PackedPostings:
        """Return the documents of the term with this number of the field."""
        known = self._known.get(number)
        if known is not None:
            return self._asked(known)
        place, bit, count, width = self._located_one(number)
        if not count:
            longer = self._longer(width, *self._entry(place, bit))
            # Longer lists are asked for again and again: what their beginnings say is kept, of a few.
            if len(self._known) >= _KNOWN_MAX:
                self._known = {}
            self._known[number] = longer
            return self._asked(longer)
        if count > _FEW:
            return ShortList(self._several(np.array([place * 8 + bit]), np.array([count]), np.array([width])))
        return ShortList(np.array(self._few(place, bit, count, width), np.int64))

    def _asked(self, longer: BitList | EliasFanoBlocks) -> PackedPostings:
        if isinstance(longer, BitList):
            return longer
        kept = self._cache.get(longer.place)
        return kept if isinstance(kept, DecodedBits) else EliasFanoList(longer, self._cache)

    def union(self, numbers: Ints) -> DocList | BitPostings:
        """Return the documents that have any of some terms."""
        if not len(numbers):
            return DocList(NONE)
        # Of a file that is read by ranges the pages of all lists are fetched together.
        if len(numbers) <= _FEW_LISTS and not self._file.is_ranged:
            few = self._union_of_few(numbers.tolist())
            if few is not None:
                return DocList(few)
        counts, widths, places = self._located(numbers)
        is_short = counts > 0
        all_short = bool(is_short.all())
        if all_short:
            documents = self._several(places, counts, widths)
            if len(documents) * _SPARSE <= self._documents:
                return DocList(distinct(documents))
        # One flag a document: a union of many lists needs no sorting, and its cost does not grow with overlaps.
        has = np.zeros(self._documents, np.bool_)
        if all_short:
            has[documents] = True
        elif is_short.any():
            has[self._several(places[is_short], counts[is_short], widths[is_short])] = True
        for place, form in zip(places[~is_short].tolist(), widths[~is_short].tolist(), strict=True):
            self._asked(self._longer(form, *self._entry(place >> 3, place & 7))).mark(has)
        return DecodedBits(has, 0)

    def _union_of_few(self, numbers: list[int]) -> Ints | None:
        """Return the documents that have any of a few terms, going up; None where a list is too long for that."""
        documents: set[int] = set()
        left = _FEW_DOCUMENTS
        for number in numbers:
            place, bit, count, width = self._located_one(number)
            left -= count
            if not 0 < count <= _FEW or left < 0:
                return None
            documents.update(self._few(place, bit, count, width))
        return np.array(sorted(documents), np.int64)

    def _located_one(self, number: int) -> tuple[int, int, int, int]:
        """Return of a list: place in bytes, bit within it, number of documents (0: a longer one), width or form."""
        group = number // GROUP_TERMS
        bit = 0
        *before, head = self._heads[group * GROUP_TERMS : number + 1].tolist()
        # Half a group on average: summed here sooner than by the calls that numpy would take.
        for other in before:
            count = other & _COUNT_MASK
            bit += self._own_bits + (count - 1) * (other >> _WIDTH_SHIFT) if count else _LONG_BITS
        place = self._begin + int(self._places[group]) + (bit >> 3)
        return place, bit & 7, head & _COUNT_MASK, head >> _WIDTH_SHIFT

    def by_term(self, first: int, end: int) -> Iterator[tuple[Ints, Ints | int]]:
        """Yield documents and the numbers of the terms that have them, one for all or one for each, of all terms from
        `first` to before `end`.
        """
        numbers = np.arange(first, end)
        counts, widths, places = self._located(numbers)
        is_short = counts > 0
        if is_short.any():
            documents = self._several(places[is_short], counts[is_short], widths[is_short])
            yield documents, np.repeat(numbers[is_short], counts[is_short])
        longer = (array[~is_short].tolist() for array in (numbers, places, widths))
        for number, place, form in zip(*longer, strict=True):
            for documents in self._asked(self._longer(form, *self._entry(place >> 3, place & 7))).blocks():
                yield documents, number

    def counts(self, first: int, end: int) -> Ints:
        """Return how many documents each term from `first` to before `end` has."""
        counts, _, places = self._located(np.arange(first, end))
        longer = np.flatnonzero(counts == 0)
        counts[longer] = [self._entry(place >> 3, place & 7)[1] for place in places[longer].tolist()]
        return counts

    def _located(self, numbers: Ints) -> tuple[Ints, Ints, Ints]:
        """Return number of documents (0 for longer lists), width or form, and place in bits, of some terms."""
        groups = numbers // GROUP_TERMS
        # The heads of whole groups; of the last one, those that are not there count nothing.
        rows, row_of = (groups, np.arange(len(groups))) if len(groups) <= _GROUPS_TWICE else _distinct(groups)
        at = rows[:, None] * GROUP_TERMS + np.arange(GROUP_TERMS)
        heads = self._heads.take(at, mode="clip").astype(np.int64)
        counts, widths = heads & _COUNT_MASK, heads >> _WIDTH_SHIFT
        bits = np.where(counts > 0, self._own_bits + (counts - 1) * widths, _LONG_BITS)
        before = np.cumsum(bits, axis=1) - bits
        columns = numbers - groups * GROUP_TERMS
        places = (self._begin + self._places[groups].astype(np.int64)) * 8 + before[row_of, columns]
        return counts[row_of, columns], widths[row_of, columns], places

    def _few(self, place: int, bit: int, count: int, width: int) -> list[int]:
        """Return the documents of a short list."""
        size = bit + self._own_bits + (count - 1) * width
        number = int.from_bytes(self._file.span(place, place + (size + 7 >> 3)), "little") >> bit
        document = number & ((1 << self._own_bits) - 1)
        number >>= self._own_bits
        documents, mask = [document], (1 << width) - 1
        for _ in range(count - 1):
            document += (number & mask) + 1
            documents.append(document)
            number >>= width
        if document >= self._documents:
            raise self._beyond(place, document)
        return documents

    def _several(self, places: Ints, counts: Ints, widths: Ints) -> Ints:
        """Return the documents of some short lists, one list behind the other."""
        # Wider ones could leave the bounds that are checked below.
        if int(widths.max()) > _GAP_BITS_MAX:
            raise self._file.error(int(places[0]) >> 3, "differences of up to 32 bits", f"{int(widths.max())}")
        begin = starts(counts)
        all_widths = np.repeat(widths, counts)
        all_widths[begin] = self._own_bits
        # Each number begins where the one before ends, and the first of a list where the list does.
        at = np.cumsum(all_widths)
        at -= all_widths
        at += np.repeat(places - at[begin], counts)
        # A list is shorter than a page: its first and its last number lie in all pages that it has.
        self._file.require(np.concatenate((places, at[begin + counts - 1])) >> 3, WORD_BYTES)
        # Each number is the distance from the one before, less one; the first of a list is the document itself.
        values = unpacked(self._file.data, at, all_widths)
        values += 1
        documents = np.cumsum(values)
        documents -= np.repeat(documents[begin] - values[begin] + 1, counts)
        if int(documents.max()) >= self._documents:
            raise self._beyond(int(places[0]) >> 3, int(documents.max()))
        return documents

    def _entry(self, place: int, bit: int) -> tuple[int, int]:
        """Return place and number of documents of a longer list, as the stream has them."""
        number = int.from_bytes(self._file.span(place, place + (bit + _LONG_BITS + 7 >> 3)), "little") >> bit
        at, count = number & ((1 << _PLACE_BITS) - 1), (number >> _PLACE_BITS) & ((1 << _COUNT_BITS) - 1)
        if not 0 < count <= self._documents:
            raise self._file.error(place, f"up to {self._documents} documents", f"{count}")
        return at, count

    def _longer(self, form: int, place: int, count: int) -> BitList | EliasFanoBlocks:
        if form not in (ELIAS_FANO, BITS):
            raise self._file.error(place, "a form of lists", f"{form}")
        bounds = np.frombuffer(self._file.span(place, place + _BOUNDS.itemsize), _BOUNDS)[0]
        first, last = int(bounds["first"]), int(bounds["last"])
        if not first <= last < self._documents or count > last - first + 1:
            raise self._file.error(place, f"{count} of {self._documents} documents", f"those from {first} to {last}")
        if form == BITS:
            return BitList(self._file, place, count, first, last)
        return EliasFanoBlocks(self._file, place, count, first, last)

    def _beyond(self, place: int, document: int) -> CorruptionError:
        return self._file.error(place, f"documents below {self._documents}", f"{document}")


class ShortList(DocList):
    """A short list, in memory."""

    def __init__(self, documents: Ints) -> None:
        super().__init__(documents)
        self.frequency = self.size
        self.first, self.last = self.low, self.high - 1

    def blocks(self) -> Iterator[Ints]:
        """Yield all documents."""
        yield self._documents


def _distinct(groups: Ints) -> tuple[Ints, Ints]:
    """Return the groups, each once, and the number of each one's."""
    rows, row_of = np.unique(groups, return_inverse=True)
    return rows, row_of


class EliasFanoBlocks:
    """Where the blocks of a longer list lie; may be used by several threads."""

    def __init__(self, file: CheckedFile, place: int, count: int, first: int, last: int) -> None:
        self.file = file
        self.place = place
        self.frequency, self.first, self.last = count, first, last
        self.count = -(-count // BLOCK_POSTINGS)
        table = place + _BOUNDS.itemsize
        self.data = table + self.count * _BLOCK.itemsize
        entries = np.frombuffer(file.span(table, self.data), _BLOCK)
        self.lasts, self.ends = entries["last"], entries["end"]


class EliasFanoList(BlockedPostings):
    """A longer list in blocks, each of which is decoded by itself."""

    def __init__(self, blocks: EliasFanoBlocks, cache: PostingsCache | None) -> None:
        # They are half as long as Whoosh's. A list of few is decoded at once: otherwise it would never be kept.
        alone = _BLOCKS_ALONE if blocks.count > _BLOCKS_ALONE else 0
        super().__init__(blocks.place, blocks.frequency, blocks.first, blocks.last, cache, alone)
        self._file = blocks.file
        self._count = blocks.count
        self._data = blocks.data
        self._lasts, self._ends = blocks.lasts, blocks.ends

    def mark(self, has: Mask) -> None:
        """Set the flags of all documents."""
        for documents in self.blocks():
            has[documents] = True

    def _in_memory(self) -> WholePostings:
        documents = np.concatenate(list(self.blocks()))
        if len(documents) * _IN_BITS < self.last - self.first:
            return DecodedPostings(documents.astype(np.int32))
        base = self.first & ~7
        documents -= base
        has = np.zeros(self.last - base + 1, np.bool_)
        has[documents] = True
        return DecodedBits(has, base)

    def _block_from(self, document: int) -> int | None:
        # Of the same type: otherwise the table is copied into another one first.
        number = int(self._lasts.searchsorted(np.uint32(document)))
        return number if number < self._count else None

    def _block(self, number: int) -> int | None:
        return number if number < self._count else None

    def _last(self, number: int) -> int:
        return int(self._lasts[number])

    def _decode(self, number: int) -> Ints:
        last = int(self._lasts[number])
        base = int(self._lasts[number - 1]) + 1 if number else self.first
        count = min(self.frequency - number * BLOCK_POSTINGS, BLOCK_POSTINGS)
        begin = self._data + (int(self._ends[number - 1]) if number else 0)
        # Before memory is taken: each bound follows from checked ones, and a forged table fails here.
        if not base <= last <= self.last or count > last - base + 1:
            raise self._file.error(begin, f"{count} documents from {base} on", f"a last one of {last}")
        low_bits = max(((last - base + 1) // count).bit_length() - 1, 0)
        low_place = begin + (count + ((last - base) >> low_bits) + 7 >> 3)
        bits = np.unpackbits(self._file.array(begin, low_place), bitorder="little")
        documents = bits.view(np.bool_).nonzero()[0]
        if len(documents) != count:
            raise self._file.error(begin, f"{count} documents", f"{len(documents)}")
        documents -= _counting(count)
        if low_bits:
            documents <<= low_bits
            documents |= run(self._file, low_place, low_bits, count, BLOCK_POSTINGS)
        documents += base
        if documents[-1] != last or (count > 1 and int(documents.max()) > last):
            raise self._file.error(begin, f"documents up to {last}", f"{int(documents.max())}")
        return documents


def _counting(count: int) -> Ints:
    return _COUNTED[:count]


_COUNTED = np.arange(BLOCK_POSTINGS)


class BitPostings:
    """A list with a bit for each document from the first one to the last.

    Args:
        count: how many documents it has.
        first, last: the first and the last one.
        span: returns some bytes of the bits, to be read only; the first byte has the bit of the first document.
    """

    def __init__(self, count: int, first: int, last: int, span: Callable[[int, int], Bytes]) -> None:
        self.frequency = self.size = count
        self.first, self.last = first, last
        self.low, self.high = first, last + 1
        self._base = first & ~7
        self._span = span
        self._is_dense = last - first < count * DENSE
        # So large that there are about as many documents in it as in a block.
        self._window = max(_CHUNK, min(BLOCK_POSTINGS * (last - first) // count & ~7, _WINDOW_MAX))

    def chunks(self, low: int, high: int) -> Iterator[Ints]:
        """Yield the documents from `low` to before `high`."""
        low, high = max(low, self.low), min(high, self.high)
        window = self._window
        while low < high:
            stop = min((low & ~7) + window, high)
            documents = self._within(low, stop)
            if len(documents):
                yield documents
            low, window = stop, min(2 * window, _WINDOW_MAX)

    def among(self, documents: Ints) -> Mask:
        """Return which of some documents, going up, are in the list."""
        if not len(documents):
            return np.zeros(0, np.bool_)
        if documents[0] >= self.low and documents[-1] < self.high:
            return self._are_in(documents)
        mask = np.zeros(len(documents), np.bool_)
        begin, end = documents.searchsorted((self.low, self.high)).tolist()
        if begin < end:
            mask[begin:end] = self._are_in(documents[begin:end])
        return mask

    def _are_in(self, documents: Ints) -> Mask:
        """Return which of some documents between the first and the last of the list are in it."""
        asked = documents - self._base
        first, last = int(asked[0]) >> 3, int(asked[-1]) >> 3
        bits = self._span(first, last + 1)[(asked >> 3) - first]
        bits >>= (asked & 7).astype(np.uint8)
        bits &= 1
        mask: Mask = bits.view(np.bool_)
        return mask

    def count(self) -> int:
        """Return how many there are."""
        return self.size

    def blocks(self) -> Iterator[Ints]:
        """Yield all documents."""
        for low in range(self._base, self.high, _WINDOW_MAX):
            yield self._within(max(low, self.low), min(low + _WINDOW_MAX, self.high))

    def mark(self, has: Mask) -> None:
        """Set the flags of all documents."""
        flags = np.unpackbits(self.bits(self.low, self.high), bitorder="little").view(np.bool_)
        own = has[self._base : self._base + len(flags)]
        own |= flags[: len(own)]

    def bits(self, low: int, high: int) -> Bytes:
        """Return a bit for each document from the multiple of 8 at or below `low` to `high`, within the list's own."""
        base = self._base >> 3
        return self._span((low >> 3) - base, (high + 7 >> 3) - base)

    def _within(self, low: int, high: int) -> Ints:
        bits = self.bits(low, high)
        documents = np.unpackbits(bits, bitorder="little").view(np.bool_).nonzero()[0] if self._is_dense else ones(bits)
        documents += low & ~7
        if (low | high) & 7:
            begin, end = documents.searchsorted((low, high)).tolist()
            documents = documents[begin:end]
        return documents


class BitList(BitPostings):
    """A dense list, read where it lies."""

    def __init__(self, file: CheckedFile, place: int, count: int, first: int, last: int) -> None:
        place += _BOUNDS.itemsize
        size = (last >> 3) - (first >> 3) + 1
        file.span(place + size, place + size)
        super().__init__(count, first, last, _StoredBits(file, place, size))


class _StoredBits:
    """The bytes of a list of bits where they lie. Not a method of the list: a cycle would keep the file mapped."""

    def __init__(self, file: CheckedFile, place: int, size: int) -> None:
        self._file, self._place, self._size = file, place, size
        self._whole: Bytes | None = None

    def __call__(self, begin: int, end: int) -> Bytes:
        """Return some of the bytes, checked."""
        if self._whole is None:
            if 2 * (end - begin) < self._size:
                return self._file.array(self._place + begin, self._place + end)
            # Of one that is read for the most part all pages are checked, and from then on none of them again.
            self._whole = self._file.array(self._place, self._place + self._size)
        return self._whole[begin:end]


class DecodedBits(BitPostings):
    """Documents in memory, at least one; what sets have in common is found sooner of bits than of numbers.

    Args:
        has: whether each document is there, shape (documents,).
        base: the first of these documents, a multiple of 8.
    """

    def __init__(self, has: Mask, base: int) -> None:
        # The ends by the bytes of the bits: flags from the end on would be copied first.
        until_last = np.packbits(has, bitorder="little").tobytes().rstrip(b"\0")
        data = until_last.lstrip(b"\0")
        begin, end = base + 8 * (len(until_last) - len(data)), base + 8 * len(until_last)
        first, last = begin + (data[0] & -data[0]).bit_length() - 1, end - 9 + data[-1].bit_length()
        bits = np.frombuffer(data, np.uint8)
        super().__init__(int(np.bitwise_count(bits).sum()), first, last, _slices(bits))
        self.nbytes = bits.nbytes
        """How much memory it takes."""


def _slices(bits: Bytes) -> Callable[[int, int], Bytes]:
    return lambda begin, end: bits[begin:end]


PackedPostings = EliasFanoList | BitPostings
