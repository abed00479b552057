"""The planner of one shard: makes a query a tree of document sets, which are decoded only as far as they are read."""

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


def plan(shard: PlannedShard, question: query.Query) -> DocSet:
    """Return the documents of a shard that match a query.

    Raises:
        InvalidInputError: a kind of query that custody does not know.
    """
    return _Planner(shard).evaluate(question)


class _Planner(QueryEvaluator[DocSet]):
    """Answers each condition with the documents that fulfil it."""

    def __init__(self, shard: PlannedShard) -> None:
        self._shard = shard
        self._terms = shard.terms

    def all(self) -> DocSet:
        return AllDocs(self._shard.documents)

    def none(self) -> DocSet:
        return EmptySet()

    def any_term(self, name: str) -> DocSet:
        return self._numbered(self._terms.range_of(name))

    def term(self, name: str, text: str) -> DocSet:
        postings = self._terms.find(name, encoded(text))
        return EmptySet() if postings is None else _of_term(postings)

    def prefix(self, name: str, text: str) -> DocSet:
        return self._numbered(self._terms.with_prefix(name, encoded(text)))

    def wildcard(self, name: str, pattern: str) -> DocSet:
        return self._kept((name, pattern), lambda: self._matching(name, pattern))

    def _matching(self, name: str, pattern: str) -> DocSet:
        first, end = self._terms.with_prefix(name, encoded(literal_prefix(pattern)))
        numbers = [
            np.flatnonzero(match_wildcard(self._terms.texts(start, min(start + _TEXTS_AT_ONCE, end)), pattern)) + start
            for start in range(first, end, _TEXTS_AT_ONCE)
        ]
        if not numbers:
            return EmptySet()
        matching = np.concatenate(numbers)
        return _of_term(self._terms.list_of(int(matching[0]))) if len(matching) == 1 else self._terms.union(matching)

    def _kept(self, key: tuple[str, str] | tuple[int, int], find: Callable[[], DocSet]) -> DocSet:
        """Return the documents of many terms, which are asked for by each page of a search, and to count them."""
        known = self._terms.kept.get(key)
        # What lists have as key are places.
        if isinstance(known, (DocList, DecodedBits)):
            return known
        found = find()
        if isinstance(found, (DocList, DecodedBits)) and (isinstance(key[0], int) or len(key[1]) <= _KEY_MAX):
            self._terms.kept.put(key, found)
        return found

    def phrase(self, name: str, words: Sequence[str]) -> DocSet:
        lists = [self._terms.placed(name, encoded(word)) for word in words]
        # One word that no document has is enough: the phrase is nowhere, and no list is read.
        present = [postings for postings in lists if postings is not None]
        return phrase(present) if lists and len(present) == len(lists) else EmptySet()

    def number_range(self, name: str, first: int | None, last: int | None) -> DocSet:
        first, last = _SMALLEST if first is None else first, _GREATEST if last is None else last
        absent = self._shard.absent(name)
        if first > last or absent == self._shard.documents:
            return EmptySet()  # Whoosh's own writer makes no file for a column of nothing
        column = self._shard.numbers(name)
        # A range that holds all numbers, such as one over all times, then costs no column at all.
        if not absent and first <= column.least and column.greatest <= last:
            return self.all()
        return RangeDocs(column, self._shard.documents, first, last, has_absent=absent > 0)

    def term_range(self, question: query.TermRange) -> DocSet:
        low = None if question.start is None else encoded(question.start)
        high = None if question.end is None else encoded(question.end)
        bounds = self._terms.between(
            question.fieldname, low, high, after_low=bool(question.startexcl), with_high=not question.endexcl
        )
        return self._numbered(bounds)

    def intersect(self, parts: Iterable[DocSet]) -> DocSet:
        bits: list[BitPostings] = []
        others: list[DocSet] = []
        for part in parts:
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
            return common[0] if common else others[0] if others else self.all()
        # Bits are asked first: that is quickest, and of another list less has to be decoded then.
        return Intersection([*by_size(common), *by_size(others)])

    def unite(self, parts: Iterable[DocSet], terms: Mapping[str, TermSet]) -> DocSet:
        sets = list(parts)
        for name, term_set in terms.items():
            chosen = self._terms.candidates(name, term_set)
            if chosen is not None and not len(chosen):
                continue
            if len(term_set) < _MANY_TERMS:
                texts = term_set.terms if chosen is None else (term_set.terms[term] for term in chosen.tolist())
                lists = (self._terms.find(name, text) for text in texts)
                sets += [_of_term(postings) for postings in lists if postings is not None]
            else:
                sets.append(self._terms.union_of(name, term_set, chosen))
        sets = [part for part in sets if part.size]
        return sets[0] if len(sets) == 1 else Union(sets) if sets else EmptySet()

    def complement(self, part: DocSet) -> DocSet:
        return Complement(part, self._shard.documents)

    def _numbered(self, bounds: tuple[int, int]) -> DocSet:
        """Return the documents that have a term with a number from the first bound to before the second."""
        first, end = bounds
        if end - first == 1:
            return _of_term(self._terms.list_of(first))
        return self._kept(bounds, lambda: self._terms.union(np.arange(first, end))) if end > first else EmptySet()


def _of_term(postings: Postings) -> DocSet:
    # Lists of these kinds are sets as they are.
    return postings if isinstance(postings, (BitPostings, ShortList)) else TermDocs(postings)
