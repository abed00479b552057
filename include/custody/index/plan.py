"""From a query to nodes of one shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np
from whoosh import query

from custody.errors import InvalidInputError
from custody.index.dictionary import Dictionary
from custody.index.doc_sets import (
    AllDocs,
    Complement,
    DocList,
    DocSet,
    EmptySet,
    Intersection,
    RangeDocs,
    TermDocs,
    Union,
    phrase,
)
from custody.index.fields import NUMBER_FIELDS, TIME_FIELDS
from custody.index.number_columns import NumberColumn
from custody.index.term_sets import alternatives, encoded
from custody.index.wildcards import literal_prefix, matching

_SMALLEST, _GREATEST = -(1 << 63), (1 << 63) - 2
_MANY_TERMS = 16
_TEXTS_AT_ONCE = 1 << 16


class Shard(Protocol):
    """What a query needs of a shard."""

    documents: int
    terms: Dictionary

    def numbers(self, name: str) -> NumberColumn:
        """Return a number column."""
        ...

    def absent(self, name: str) -> int:
        """Return how many documents have no such number."""
        ...


def plan(shard: Shard, question: query.Query) -> DocSet:
    """Return the documents of a shard that match a query.

    Raises:
        InvalidInputError: a kind of query that custody does not know.
    """
    if question == query.NullQuery:
        return EmptySet()
    answer = _ANSWERS.get(type(question))
    if answer is None:
        raise InvalidInputError(f"query: {type(question).__name__} is a kind of query that custody does not know.")
    return answer(shard, question)


def _every(shard: Shard, question: query.Every) -> DocSet:
    name = question.fieldname
    if name in (None, "*"):
        return AllDocs(shard.documents)
    if name in TIME_FIELDS or name in NUMBER_FIELDS:
        return _between(shard, name, _SMALLEST, _GREATEST)
    return _range(shard, shard.terms.range_of(name))


def _term(shard: Shard, question: query.Term) -> DocSet:
    found = shard.terms.find(question.fieldname, encoded(question.text))
    return EmptySet() if found is None else TermDocs(found)


def _prefix(shard: Shard, question: query.Prefix) -> DocSet:
    return _range(shard, shard.terms.with_prefix(question.fieldname, encoded(question.text)))


def _term_range(shard: Shard, question: query.TermRange) -> DocSet:
    low = None if question.start is None else encoded(question.start)
    high = None if question.end is None else encoded(question.end)
    bounds = shard.terms.between(
        question.fieldname, low, high, after_low=bool(question.startexcl), with_high=not question.endexcl
    )
    return _range(shard, bounds)


def _range(shard: Shard, bounds: tuple[int, int]) -> DocSet:
    first, end = bounds
    if end - first == 1:
        return TermDocs(shard.terms.list_of(first))
    return DocList(shard.terms.union(np.arange(first, end))) if end > first else EmptySet()


def _wildcard(shard: Shard, question: query.Wildcard) -> DocSet:
    first, end = shard.terms.with_prefix(question.fieldname, encoded(literal_prefix(question.text)))
    found = [
        np.flatnonzero(matching(shard.terms.texts(start, min(start + _TEXTS_AT_ONCE, end)), question.text)) + start
        for start in range(first, end, _TEXTS_AT_ONCE)
    ]
    return DocList(shard.terms.union(np.concatenate(found))) if found else EmptySet()


def _phrase(shard: Shard, question: query.Phrase) -> DocSet:
    lists = [shard.terms.find(question.fieldname, encoded(word)) for word in question.words]
    return phrase([found for found in lists if found is not None]) if lists and None not in lists else EmptySet()


def _numeric_range(shard: Shard, question: query.NumericRange) -> DocSet:
    first = _SMALLEST if question.start is None else int(question.start) + bool(question.startexcl)
    last = _GREATEST if question.end is None else int(question.end) - bool(question.endexcl)
    return _between(shard, question.fieldname, first, last)


def _between(shard: Shard, name: str, first: int, last: int) -> DocSet:
    absent = shard.absent(name)
    if first > last or absent == shard.documents:
        return EmptySet()  # Whoosh's own writer makes no file for a column of nothing
    has_absent = absent > 0
    column = shard.numbers(name)
    if not has_absent and first <= column.least and column.greatest <= last:
        return AllDocs(shard.documents)
    return RangeDocs(column, shard.documents, first, last, has_absent=has_absent)


def _and(shard: Shard, question: query.And) -> DocSet:
    return _all([plan(shard, part) for part in question.children()], shard)


def _all(parts: list[DocSet], shard: Shard) -> DocSet:
    told = [part for part in parts if not isinstance(part, AllDocs)]
    if not told:
        return AllDocs(shard.documents)
    return told[0] if len(told) == 1 else Intersection(told)


def _or(shard: Shard, question: query.Or) -> DocSet:
    """Answer an OR; many terms of one field, such as the uuids of a lineage, are found before anything else."""
    asked = alternatives(question)
    parts = [plan(shard, part) for part in asked.others]
    for name, wanted in asked.terms.items():
        if len(wanted) < _MANY_TERMS:
            lists = (shard.terms.find(name, text) for text in wanted.terms)
            parts += [TermDocs(found) for found in lists if found is not None]
        else:
            documents = shard.terms.union_of(name, wanted)
            parts += [DocList(documents)] if len(documents) else []
    parts = [part for part in parts if not isinstance(part, EmptySet)]
    return parts[0] if len(parts) == 1 else Union(parts) if parts else EmptySet()


def _not(shard: Shard, question: query.Not) -> DocSet:
    return Complement(plan(shard, question.query), shard.documents)


def _and_not(shard: Shard, question: query.AndNot) -> DocSet:
    return _all([plan(shard, question.a), Complement(plan(shard, question.b), shard.documents)], shard)


def _and_maybe(shard: Shard, question: query.AndMaybe) -> DocSet:
    return plan(shard, question.a)


def _require(shard: Shard, question: query.Require) -> DocSet:
    return _all([plan(shard, question.a), plan(shard, question.b)], shard)


_ANSWERS: dict[type, Callable[[Shard, query.Query], DocSet]] = {
    query.Every: _every,
    query.Term: _term,
    query.Prefix: _prefix,
    query.Wildcard: _wildcard,
    query.Phrase: _phrase,
    query.NumericRange: _numeric_range,
    query.TermRange: _term_range,
    query.And: _and,
    query.Or: _or,
    query.Not: _not,
    query.AndNot: _and_not,
    query.AndMaybe: _and_maybe,
    query.Require: _require,
}
