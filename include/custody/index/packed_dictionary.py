"""The terms of all fields of a packed shard and the documents that have them.

Field after field: the heads of all lists and the places of their groups, the terms (`custody.index.packed_terms`), the
stream and the longer lists (`custody.index.packed_postings`), and of a text the places of its words
(`custody.index.packed_positions`). The manifest says where each begins. Docs: docs/formats/packed-shard.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

import numpy as np
import pyarrow as pa

from custody.index.arrays import Bytes, Ints, starts
from custody.index.bit_packing import WORD_BYTES, padded
from custody.index.dictionary import FIELD_BYTES, above_all_with, crc32_of
from custody.index.doc_sets import DocList, DocSet, EmptySet
from custody.index.inverted_field import InvertedField
from custody.index.manifest import PackedField
from custody.index.packed_positions import WordPlaces, encoded_positions
from custody.index.packed_postings import GROUP_TERMS, HEAD, ListTable, PackedPostings, ShortList, packed_lists
from custody.index.packed_terms import BlockCache, FieldTerms, TextTerms, UuidTerms, encoded_terms
from custody.index.paged_file import CheckedFile
from custody.index.postings import NONE, PostingsCache
from custody.index.term_filter import TermFilter
from custody.index.terms import Codes, Hashes, TermSet

_GROUP_PLACE = np.dtype("<u8")
# Per open shard: together with the cached lists and blocks it bounds what a process keeps of each.
_TEXT_BYTES_KEPT = 1 << 20


class PackedDictionaryWriter:
    """Gives the bytes of each field in turn; keeps four bytes a term in memory."""

    def __init__(self, documents: int) -> None:
        self.fields: dict[str, PackedField] = {}
        self._documents = documents
        self._hashes: list[Hashes] = []

    def add(self, name: str, field: InvertedField, place: int) -> list[Bytes]:
        """Return the bytes of a field, which will begin at a place of the file, in pieces."""
        number, terms = len(self.fields), len(field.lengths)
        kind, texts = encoded_terms(field.text, field.lengths)
        texts = padded(texts)
        begin = place + heads_bytes(terms) + len(texts)
        lists = packed_lists(field, self._documents, begin)
        pieces = [padded(lists.heads.view(np.uint8)), lists.places.astype(_GROUP_PLACE).view(np.uint8), texts]
        pieces += [lists.stream, lists.longer]
        places = None
        if field.positions is not None:
            places = place + sum(map(len, pieces))
            pieces.append(padded(encoded_positions(field, field.positions)))
        self.fields[name] = PackedField(number=number, kind=kind, terms=terms, place=place, lists=begin, places=places)
        prefix = struct.pack(">H", number)
        self._hashes.append(crc32_of(field.text, starts(field.lengths), field.lengths, before=prefix))
        return pieces

    def hashes(self) -> Hashes:
        """Return the CRC-32 of all keys, which are the number of the field, big-endian, and the term."""
        return np.concatenate([np.empty(0, np.uint32), *self._hashes])


def heads_bytes(terms: int) -> int:
    """Return how long heads and places of groups of so many terms are."""
    groups = -(-terms // GROUP_TERMS) * _GROUP_PLACE.itemsize
    return -(-terms * HEAD.itemsize // WORD_BYTES) * WORD_BYTES + groups


_NUMBERS_KEPT = 64
"""Of each field of an open shard; a term from outside may be long, so they are few."""


class _Field:
    """One field of an open shard."""

    def __init__(
        self,
        about: PackedField,
        first: int,
        file: CheckedFile,
        documents: int,
        lists_kept: PostingsCache,
        blocks_kept: BlockCache,
    ) -> None:
        self.first = first
        """The number of its first term among those of all fields."""
        self.count = about.terms
        texts = about.place + heads_bytes(about.terms)
        # Heads and places of groups are looked at for each term; checked as a whole, they need no check for each.
        tables = file.span(about.place, texts)
        heads = np.frombuffer(tables, HEAD, about.terms)
        groups = -(-about.terms // GROUP_TERMS)
        group_places = np.frombuffer(tables, _GROUP_PLACE, groups, len(tables) - groups * _GROUP_PLACE.itemsize)
        self.lists = ListTable(file, heads, group_places, about.lists, documents, lists_kept)
        self.terms: FieldTerms
        if about.kind == "uuids":
            self.terms = UuidTerms(file, texts, about.terms)
        else:
            self.terms = TextTerms(file, texts, about.terms, blocks_kept)
        self.places = None if about.places is None else WordPlaces(file, about.places)
        self._numbers: dict[bytes, int | None] = {}

    def number_of(self, term: bytes) -> int | None:
        """Return the number of a term, None when it is not there; those of a few are kept."""
        try:
            return self._numbers[term]
        except KeyError:
            # Pages of one search, and searches for one type or component, ask each shard for the same terms again.
            if len(self._numbers) >= _NUMBERS_KEPT:
                self._numbers = {}
            number = self._numbers[term] = self.terms.find(term)
            return number


class PlacedList:
    """The documents of a word with its places in their texts."""

    def __init__(self, postings: ShortList | PackedPostings, places: Callable[[], tuple[Ints, Ints]]) -> None:
        self._postings = postings
        self._places = places
        self.frequency, self.first, self.last = postings.frequency, postings.first, postings.last
        self.chunks, self.among = postings.chunks, postings.among

    def placed(self) -> Iterator[tuple[Ints, Callable[[], tuple[Ints, Ints]]]]:
        """Yield the documents, and what gives the places of the word and how many each document has."""
        yield np.concatenate(list(self._postings.blocks())), self._places


class PackedDictionary:
    """The terms of all fields of an open shard; may be used by several threads. As `Dictionary`."""

    def __init__(
        self, file: CheckedFile, fields: dict[str, PackedField], documents: int, term_filter: TermFilter | None
    ) -> None:
        self._file = file
        self._filter = term_filter
        self._documents = documents
        self._about = fields
        bases = [0, *accumulate(field.terms for field in self._about.values())]
        self._firsts = dict(zip(self._about, bases[:-1], strict=True))
        self._fields: dict[str, _Field] = {}
        self.kept = PostingsCache()
        self._blocks_kept = BlockCache()
        self._texts: tuple[tuple[int, int], pa.StringArray] = (-1, -1), pa.nulls(0, pa.string())

    def find(self, field: str, term: bytes) -> ShortList | PackedPostings | None:
        """Return a term's documents, None when no document has it."""
        # The tables of a field are many pages, the answer of the filter is in one: a search for what few shards have
        # opens the fields of these.
        if field not in self._fields and not self._may_have(field, term):
            return None
        own = self._field(field)
        number = None if own is None else own.number_of(term)
        return None if own is None or number is None else own.lists.list_of(number)

    def placed(self, field: str, word: bytes) -> PlacedList | None:
        """Return a word's documents with its places in them, None when no document has it."""
        own = self._field(field)
        number = None if own is None else own.terms.find(word)
        if own is None or number is None or own.places is None:
            return None
        places = own.places
        return PlacedList(own.lists.list_of(number), partial(places.of, number, own.lists))

    def candidates(self, field: str, term_set: TermSet) -> Ints | None:
        """Return the numbers of those of some terms that the shard may have; None for all of them."""
        about = self._about.get(field)
        if about is None:
            return NONE
        if self._filter is None:
            return None
        return self._filter.candidates(term_set, about.number.to_bytes(FIELD_BYTES, "big"))

    def union_of(self, field: str, term_set: TermSet, chosen: Ints | None = None) -> DocSet:
        """Return the documents that have any of some terms, or of those with some numbers; many are found at once."""
        own = self._field(field)
        if own is None:
            return EmptySet()
        terms: Sequence[bytes] = term_set.terms
        uuids: Sequence[bytes | None] = term_set.uuids
        if chosen is not None and len(chosen) < len(terms):
            numbers = chosen.tolist()
            terms, uuids = [terms[number] for number in numbers], [uuids[number] for number in numbers]
        return own.lists.union(own.terms.find_all(terms, uuids))

    def range_of(self, field: str) -> tuple[int, int]:
        """Return the numbers of a field's terms in the order of all terms: the first, and the one behind the last."""
        about = self._about.get(field)
        return (0, 0) if about is None else (self._firsts[field], self._firsts[field] + about.terms)

    def between(
        self, field: str, low: bytes | None, high: bytes | None, *, after_low: bool = False, with_high: bool = False
    ) -> tuple[int, int]:
        """Return the numbers of the terms from `low` to before `high`; without an end, to the field's."""
        own = self._field(field)
        if own is None:
            return 0, 0
        # A zero byte behind a term gives the smallest one above it: so bounds can leave out the term itself.
        first = 0 if low is None else own.terms.lower(low + b"\0" * after_low)
        end = own.count if high is None else own.terms.lower(high + b"\0" * with_high)
        return own.first + first, own.first + max(first, end)

    def with_prefix(self, field: str, prefix: bytes) -> tuple[int, int]:
        """Return the numbers of the terms that begin with some bytes."""
        if not prefix:
            return self.range_of(field)
        return self.between(field, prefix, above_all_with(prefix))

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms with these numbers, in order; the last answer is kept when it is small."""
        bounds, last_terms = self._texts
        # Without a lock: one tuple is read and replaced as a whole, so another thread sees the old pair or the new one.
        if bounds == (first, end):
            return last_terms
        if first >= end:
            return pa.nulls(0, pa.string())
        own = self._field_of(first)
        terms = own.terms.texts(first - own.first, end - own.first)
        if terms.nbytes <= _TEXT_BYTES_KEPT:
            self._texts = (first, end), terms
        return terms

    def list_of(self, number: int) -> ShortList | PackedPostings:
        """Return the documents of the term with this number."""
        own = self._field_of(number)
        return own.lists.list_of(number - own.first)

    def frequencies(self, first: int, end: int) -> Ints:
        """Return how many documents each of the terms with these numbers has, which are of one field."""
        if first >= end:
            return NONE
        own = self._field_of(first)
        return own.lists.counts(first - own.first, end - own.first)

    def union(self, terms: Ints) -> DocSet:
        """Return the documents that have any of the terms with these numbers, which are of one field."""
        if not len(terms):
            return DocList(NONE)
        own = self._field_of(int(terms[0]))
        return own.lists.union(terms - own.first)

    def codes(self, field: str) -> Codes:
        """Return the number of each document's term within a field, shape (documents,), -1 for none.

        Of a document with several terms, one counts.
        """
        codes = np.full(self._documents, -1, np.int32)
        own = self._field(field)
        if own is not None:
            for documents, numbers in own.lists.by_term(0, own.count):
                codes[documents] = numbers
        return codes

    def _may_have(self, field: str, term: bytes) -> bool:
        about = self._about.get(field)
        if about is None or self._filter is None:
            return about is not None
        return self._filter.has(about.number.to_bytes(FIELD_BYTES, "big") + term)

    def _field(self, name: str) -> _Field | None:
        own = self._fields.get(name)
        if own is None and (about := self._about.get(name)) is not None:
            own = _Field(about, self._firsts[name], self._file, self._documents, self.kept, self._blocks_kept)
            # Without a lock: two threads make the same.
            self._fields[name] = own
        return own

    def _field_of(self, number: int) -> _Field:
        """Return the field of the term with a number among those of all fields."""
        name = next(name for name, first in reversed(self._firsts.items()) if first <= number)
        own = self._field(name)
        if own is None:
            raise IndexError(f"no field has the term {number}")
        return own
