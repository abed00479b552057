"""Answers a query without an index, on columns: for events that were acknowledged and have no shard yet.

It takes terms and words from where the index takes them (`custody.index.fields`), so both give the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from fnmatch import translate

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.errors import InvalidInputError
from custody.index import NUMBER_FIELDS, TEXT_FIELD, TIME_FIELDS, identifier_fields, term, words

Mask = npt.NDArray[np.bool_]


class Scan:
    """A table of events that can be asked; the terms of a field are taken once, when it is first asked for."""

    def __init__(self, table: pa.Table, attributes: Iterable[str] = ()) -> None:
        self._table = table
        self._fields = {field.name: field for field in identifier_fields(attributes)}
        self._terms: dict[str, list[list[str]]] = {}

    def match(self, question: query.Query) -> Mask:
        """Return which rows match, shape (rows,).

        Raises:
            InvalidInputError: a kind of query that only an index answers.
        """
        answer = _ANSWERS.get(type(question))
        if answer is not None:
            return answer(self, question)
        if question == query.NullQuery:
            return self._none()
        raise InvalidInputError(f"query: {type(question).__name__} cannot be asked of events that are not indexed yet")

    def all(self) -> Mask:
        """Return every row."""
        return np.ones(self._table.num_rows, np.bool_)

    def _none(self) -> Mask:
        return np.zeros(self._table.num_rows, np.bool_)

    def where(self, name: str, test: Callable[[list[str]], bool]) -> Mask:
        """Return the rows whose terms of a field pass a test; a field that no row has matches none."""
        if name in NUMBER_FIELDS or name in TIME_FIELDS:
            return np.asarray(self._table.column(name).is_valid())
        return np.fromiter(map(test, self._terms_of(name)), np.bool_, self._table.num_rows)

    def numbers(self, name: str) -> tuple[npt.NDArray[np.int64], Mask]:
        """Return a number or time column and which rows have a value; absent ones read as 0."""
        column = self._table.column(name).cast(pa.int64())
        return column.fill_null(0).to_numpy(), np.asarray(column.is_valid())

    def _terms_of(self, name: str) -> list[list[str]]:
        if name not in self._terms:
            if name == TEXT_FIELD.name:
                texts = TEXT_FIELD.terms(self._table)
                self._terms[name] = [[word for text in row for word in words(text)] for row in texts]
            elif name in self._fields:
                self._terms[name] = [[term(value) for value in row] for row in self._fields[name].terms(self._table)]
            else:
                self._terms[name] = [[] for _ in range(self._table.num_rows)]
        return self._terms[name]


def _every(scan: Scan, question: query.Every) -> Mask:
    return scan.all() if question.fieldname in (None, "*") else scan.where(question.fieldname, bool)


def _term(scan: Scan, question: query.Term) -> Mask:
    return scan.where(question.fieldname, lambda terms: question.text in terms)


def _prefix(scan: Scan, question: query.Prefix) -> Mask:
    return scan.where(question.fieldname, lambda terms: any(found.startswith(question.text) for found in terms))


def _wildcard(scan: Scan, question: query.Wildcard) -> Mask:
    pattern = re.compile(translate(question.text))
    return scan.where(question.fieldname, lambda terms: any(pattern.match(found) for found in terms))


def _phrase(scan: Scan, question: query.Phrase) -> Mask:
    wanted = list(question.words)

    def follows(terms: list[str]) -> bool:
        return any(terms[start : start + len(wanted)] == wanted for start in range(len(terms) - len(wanted) + 1))

    return scan.where(question.fieldname, follows)


def _numeric_range(scan: Scan, question: query.NumericRange) -> Mask:
    numbers, present = scan.numbers(question.fieldname)
    if question.start is not None:
        present &= numbers > question.start if question.startexcl else numbers >= question.start
    if question.end is not None:
        present &= numbers < question.end if question.endexcl else numbers <= question.end
    return present


def _term_range(scan: Scan, question: query.TermRange) -> Mask:
    start, end = _bytes(question.start), _bytes(question.end)

    def inside(found: str) -> bool:
        data = found.encode()
        above = start is None or data > start or (data == start and not question.startexcl)
        below = end is None or data < end or (data == end and not question.endexcl)
        return above and below

    return scan.where(question.fieldname, lambda terms: any(map(inside, terms)))


def _bytes(text: str | bytes | None) -> bytes | None:
    return text.encode() if isinstance(text, str) else text


def _and(scan: Scan, question: query.And) -> Mask:
    mask = scan.all()
    for part in question.children():
        mask &= scan.match(part)
    return mask


def _or(scan: Scan, question: query.Or) -> Mask:
    mask = ~scan.all()
    for part in question.children():
        mask |= scan.match(part)
    return mask


def _not(scan: Scan, question: query.Not) -> Mask:
    return ~scan.match(question.query)


def _and_not(scan: Scan, question: query.AndNot) -> Mask:
    return scan.match(question.a) & ~scan.match(question.b)


def _and_maybe(scan: Scan, question: query.AndMaybe) -> Mask:
    return scan.match(question.a)


def _require(scan: Scan, question: query.Require) -> Mask:
    return scan.match(question.a) & scan.match(question.b)


_ANSWERS: dict[type, Callable[[Scan, query.Query], Mask]] = {
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
