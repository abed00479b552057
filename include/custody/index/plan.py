"""The planner: makes a query a tree of document sets of a shard, which are decoded only as far as they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa
from whoosh import query

from custody.index.arrays import Ints
from custody.index.doc_sets import (
    AllDocs,
    BitIntersection,
    Complement,
    DocList,
    DocSet,
    EmptySet,
    Intersection,
    NumberDocs,
    PlacedPostings,
    Postings,
    RangeDocs,
    TermDocs,
    Union,
    by_size,
    phrase,
)
from custody.index.packed_postings import BitPostings, DecodedBits, ShortList
from custody.index.postings import PostingsCache
from custody.index.query_evaluator import QueryEvaluator
from custody.index.terms import Codes, TermSet, encoded, literal_prefix, match_wildcard

# The greatest signed number is ABSENT, so an open range ends one below it.
_SMALLEST, _GREATEST = -(1 << 63), (1 << 63) - 2
# Few terms stay lists that are decoded as they are read; many are cheaper looked up and united at once.
_MANY_TERMS = 16
# Bounds the memory of a pattern over a large field.
_TEXTS_AT_ONCE = 1 << 16
# What a longer pattern finds is not kept: it comes from outside.
_KEY_MAX = 200


class TermIndex(Protocol):
    """The terms of a shard and the documents that have them, whatever its layout."""

    kept: PostingsCache
    """What is in memory of them."""

    def find(self, field: str, term: bytes) -> Postings | None:
        """Return a term's documents, None when no document has it."""
        ...

    def placed(self, field: str, word: bytes) -> PlacedPostings | None:
        """Return a word's documents with its places in them, None when no document has it."""
        ...

    def candidates(self, field: str, term_set: TermSet) -> Ints | None:
        """Return the numbers of those of some terms that the shard may have; None for all of them."""
        ...

    def union_of(self, field: str, term_set: TermSet, chosen: Ints | None = None) -> DocSet:
        """Return the documents that have any of some terms, or of those with some numbers; many are found at once."""
        ...

    def range_of(self, field: str) -> tuple[int, int]:
        """Return the numbers of a field's terms in the order of all terms: the first, and the one behind the last."""
        ...

    def between(
        self, field: str, low: bytes | None, high: bytes | None, *, after_low: bool = False, with_high: bool = False
    ) -> tuple[int, int]:
        """Return the numbers of the terms from `low` to before `high`; without an end, to the field's."""
        ...

    def with_prefix(self, field: str, prefix: bytes) -> tuple[int, int]:
        """Return the numbers of the terms that begin with some bytes."""
        ...

    def texts(self, first: int, end: int) -> pa.StringArray:
        """Return the terms with these numbers, in order."""
        ...

    def list_of(self, number: int) -> Postings:
        """Return the documents of the term with this number."""
        ...

    def frequencies(self, first: int, end: int) -> Ints:
        """Return how many documents each of the terms with these numbers has, which are of one field."""
        ...

    def union(self, terms: Ints) -> DocSet:
        """Return the documents that have any of the terms with these numbers, which are of one field."""
        ...

    def codes(self, field: str) -> Codes:
        """Return the number of each document's term within a field, -1 for none; of several terms, one counts."""
        ...


class PlannedShard(Protocol):
    """The part of a shard that the planner needs."""

    documents: int
    terms: TermIndex

    def numbers(self, name: str) -> NumberDocs:
        """Return a number column."""
        ...

    def absent(self, name: str) -> int:
        """Return how many documents have no such number."""
        ...


Finder = Callable[[PlannedShard], DocSet]


class Plan:
    """A query made ready to be asked of shards, one after the other: what does not depend on a shard is done once.

    Raises:
        InvalidInputError: a kind of query that custody does not know.
    """

    def __init__(self, question: query.Query) -> None:
        self.of: Finder = _Planner().evaluate(question)
        """Returns the documents of a shard that match."""


def plan(shard: PlannedShard, question: query.Query | Plan) -> DocSet:
    """Return the documents of a shard that match a query.

    Raises:
        InvalidInputError: a kind of query that custody does not know.
    """
    return (question if isinstance(question, Plan) else Plan(question)).of(shard)


class _Planner(QueryEvaluator[Finder]):
    """Answers each condition with what finds the documents of a shard that fulfil it."""

    def all(self) -> Finder:
        return _all

    def none(self) -> Finder:
        return lambda _: EmptySet()

    def any_term(self, name: str) -> Finder:
        return lambda shard: _numbered(shard.terms, shard.terms.range_of(name))

    def term(self, name: str, text: str) -> Finder:
        word = encoded(text)

        def find(shard: PlannedShard) -> DocSet:
            postings = shard.terms.find(name, word)
            return EmptySet() if postings is None else _of_term(postings)

        return find

    def prefix(self, name: str, text: str) -> Finder:
        start = encoded(text)
        return lambda shard: _numbered(shard.terms, shard.terms.with_prefix(name, start))

    def wildcard(self, name: str, pattern: str) -> Finder:
        start = encoded(literal_prefix(pattern))

        def matching(terms: TermIndex) -> DocSet:
            first, end = terms.with_prefix(name, start)
            numbers = [
                np.flatnonzero(match_wildcard(terms.texts(begin, min(begin + _TEXTS_AT_ONCE, end)), pattern)) + begin
                for begin in range(first, end, _TEXTS_AT_ONCE)
            ]
            if not numbers:
                return EmptySet()
            found = np.concatenate(numbers)
            return _of_term(terms.list_of(int(found[0]))) if len(found) == 1 else terms.union(found)

        return lambda shard: _kept(shard.terms, (name, pattern), lambda: matching(shard.terms))

    def phrase(self, name: str, words: Sequence[str]) -> Finder:
        wanted = [encoded(word) for word in words]

        def find(shard: PlannedShard) -> DocSet:
            lists = [shard.terms.placed(name, word) for word in wanted]
            # One word that no document has is enough: the phrase is nowhere, and no list is read.
            present = [postings for postings in lists if postings is not None]
            return phrase(present) if lists and len(present) == len(lists) else EmptySet()

        return find

    def number_range(self, name: str, first: int | None, last: int | None) -> Finder:
        least, greatest = _SMALLEST if first is None else first, _GREATEST if last is None else last

        def find(shard: PlannedShard) -> DocSet:
            absent = shard.absent(name)
            if least > greatest or absent == shard.documents:
                return EmptySet()  # Whoosh's own writer makes no file for a column of nothing
            column = shard.numbers(name)
            # A range that holds all numbers, such as one over all times, then costs no column at all.
            if not absent and least <= column.least and column.greatest <= greatest:
                return _all(shard)
            return RangeDocs(column, shard.documents, least, greatest, has_absent=absent > 0)

        return find

    def term_range(self, question: query.TermRange) -> Finder:
        name, after_low, with_high = question.fieldname, bool(question.startexcl), not question.endexcl
        low = None if question.start is None else encoded(question.start)
        high = None if question.end is None else encoded(question.end)
        return lambda shard: _numbered(
            shard.terms, shard.terms.between(name, low, high, after_low=after_low, with_high=with_high)
        )

    def intersect(self, parts: Iterable[Finder]) -> Finder:
        finders = list(parts)
        return lambda shard: _common(shard, finders)

    def unite(self, parts: Iterable[Finder], terms: Mapping[str, TermSet]) -> Finder:
        finders = list(parts)
        return lambda shard: _any_of(shard, finders, terms)

    def complement(self, part: Finder) -> Finder:
        return lambda shard: Complement(part(shard), shard.documents)


def _all(shard: PlannedShard) -> DocSet:
    return AllDocs(shard.documents)


def _common(shard: PlannedShard, finders: Sequence[Finder]) -> DocSet:
    """Return the documents that all of some finders find."""
    bits: list[BitPostings] = []
    others: list[DocSet] = []
    for find in finders:
        part = find(shard)
        if not part.size:
            return part
        if isinstance(part, BitPostings):
            bits.append(part)
        # Everything narrows nothing; left in, it would be asked about each document.
        elif not isinstance(part, AllDocs):
            others.append(part)
    common: list[DocSet] = [*bits]
    if len(bits) > 1:
        together = BitIntersection(bits)
        # Where a smaller set leads, each list of bits is asked about what is left of it, one after the other.
        if not others or together.size <= min([part.size for part in others]):
            common = [together]
    if len(common) + len(others) < 2:
        return common[0] if common else others[0] if others else _all(shard)
    # Bits are asked first: that is quickest, and of another list less has to be decoded then.
    return Intersection([*by_size(common), *by_size(others)])


def _any_of(shard: PlannedShard, finders: Sequence[Finder], terms: Mapping[str, TermSet]) -> DocSet:
    """Return the documents that one of some finders finds, or that have one of some terms of a field."""
    own = shard.terms
    sets = [find(shard) for find in finders]
    for name, term_set in terms.items():
        chosen = own.candidates(name, term_set)
        if chosen is not None and not len(chosen):
            continue
        if len(term_set) < _MANY_TERMS:
            texts = term_set.terms if chosen is None else (term_set.terms[term] for term in chosen.tolist())
            lists = (own.find(name, text) for text in texts)
            sets += [_of_term(postings) for postings in lists if postings is not None]
        else:
            sets.append(own.union_of(name, term_set, chosen))
    sets = [part for part in sets if part.size]
    return sets[0] if len(sets) == 1 else Union(sets) if sets else EmptySet()


def _kept(terms: TermIndex, key: tuple[str, str] | tuple[int, int], find: Callable[[], DocSet]) -> DocSet:
    """Return the documents of many terms, which are asked for by each page of a search, and to count them."""
    known = terms.kept.get(key)
    # What lists have as key are places.
    if isinstance(known, (DocList, DecodedBits)):
        return known
    found = find()
    if isinstance(found, (DocList, DecodedBits)) and (isinstance(key[0], int) or len(key[1]) <= _KEY_MAX):
        terms.kept.put(key, found)
    return found


def _numbered(terms: TermIndex, bounds: tuple[int, int]) -> DocSet:
    """Return the documents that have a term with a number from the first bound to before the second."""
    first, end = bounds
    if end - first == 1:
        return _of_term(terms.list_of(first))
    return _kept(terms, bounds, lambda: terms.union(np.arange(first, end))) if end > first else EmptySet()


def _of_term(postings: Postings) -> DocSet:
    # Lists of these kinds are sets as they are.
    return postings if isinstance(postings, (BitPostings, ShortList)) else TermDocs(postings)
