"""Answers a query without an index, on columns: for events that were acknowledged and have no shard yet.

It takes terms and words from where the index takes them (`custody.index.fields`), so both give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh import query

from custody.errors import InvalidInputError
from custody.index import (
    NUMBER_FIELDS,
    TIME_FIELDS,
    TermValues,
    flags,
    integers,
    matching,
    number,
    searched_fields,
    text,
)

Mask = npt.NDArray[np.bool_]


class Scan:
    """A table of events that can be asked; the terms of a field are taken once, when it is first asked for."""

    def __init__(self, table: pa.Table, attributes: Iterable[str] = ()) -> None:
        self._table = table
        self._fields = {field.name: field for field in searched_fields(attributes)}
        self._values: dict[str, TermValues] = {}

    def match(self, question: query.Query) -> Mask:
        """Return which rows match, shape (rows,).

        Raises:
            InvalidInputError: a kind of query that custody does not know.
        """
        answer = _ANSWERS.get(type(question))
        if answer is not None:
            return answer(self, question)
        if question == query.NullQuery:
            return self.none()
        raise InvalidInputError(f"query: {type(question).__name__} is a kind of query that custody does not know.")

    def all(self) -> Mask:
        """Return every row."""
        return np.ones(self._table.num_rows, np.bool_)

    def none(self) -> Mask:
        """Return no row."""
        return np.zeros(self._table.num_rows, np.bool_)

    def numbers(self, name: str) -> tuple[npt.NDArray[np.int64], Mask]:
        """Return a number or time column and which rows have a value; absent ones read as 0."""
        column = self._table.column(name).cast(pa.int64())
        return integers(column.fill_null(number(0)), np.int64), flags(column.is_valid())

    def values(self, name: str) -> TermValues | None:
        """Return the terms of a field, None for a field that no event has."""
        if name not in self._values and name in self._fields:
            self._values[name] = self._fields[name].values(self._table)
        return self._values.get(name)

    def where(self, name: str, test: Callable[[pa.StringArray], pa.Array | Mask]) -> Mask:
        """Return the rows with a term that passes a test, which is asked once for all distinct terms."""
        mask = self.none()
        values = self.values(name)
        if values is not None and len(values.rows):
            found = test(values.terms)
            chosen = flags(found) if isinstance(found, pa.Array) else found
            mask[values.rows[chosen[values.codes]]] = True
        return mask


def _every(scan: Scan, question: query.Every) -> Mask:
    name = question.fieldname
    if name in (None, "*"):
        return scan.all()
    if name in NUMBER_FIELDS or name in TIME_FIELDS:
        return scan.numbers(name)[1]
    return scan.where(name, lambda terms: np.ones(len(terms), np.bool_))


def _term(scan: Scan, question: query.Term) -> Mask:
    return scan.where(question.fieldname, lambda terms: pc.equal(terms, text(question.text)))


def _prefix(scan: Scan, question: query.Prefix) -> Mask:
    return scan.where(question.fieldname, lambda terms: pc.starts_with(terms, question.text))


def _wildcard(scan: Scan, question: query.Wildcard) -> Mask:
    return scan.where(question.fieldname, lambda terms: matching(terms, question.text))


def _phrase(scan: Scan, question: query.Phrase) -> Mask:
    values = scan.values(question.fieldname)
    mask = scan.none()
    if values is None or values.positions is None or not len(values.rows):
        return mask
    begins: Mask | None = None
    for distance, word in enumerate(question.words):
        # The words of a text lie one behind the other: a phrase is where each follows the one before in the same row.
        here = flags(pc.equal(values.terms, text(word)))[values.codes]
        moved = np.zeros_like(here)
        moved[: len(here) - distance] = here[distance:] & (
            values.rows[distance:] == values.rows[: len(here) - distance]
        )
        begins = moved if begins is None else begins & moved
    if begins is not None:
        mask[values.rows[begins]] = True
    return mask


def _numeric_range(scan: Scan, question: query.NumericRange) -> Mask:
    numbers, present = scan.numbers(question.fieldname)
    if question.start is not None:
        present &= numbers > question.start if question.startexcl else numbers >= question.start
    if question.end is not None:
        present &= numbers < question.end if question.endexcl else numbers <= question.end
    return present


def _term_range(scan: Scan, question: query.TermRange) -> Mask:
    def inside(terms: pa.StringArray) -> Mask:
        data = terms.cast(pa.binary())  # in the order of bytes, as the index has them
        found = np.ones(len(terms), np.bool_)
        if question.start is not None:
            found &= flags((pc.greater if question.startexcl else pc.greater_equal)(data, _bytes(question.start)))
        if question.end is not None:
            found &= flags((pc.less if question.endexcl else pc.less_equal)(data, _bytes(question.end)))
        return found

    return scan.where(question.fieldname, inside)


def _bytes(value: str | bytes) -> pa.Scalar:
    return text(value if isinstance(value, str) else value.decode()).cast(pa.binary())


def _and(scan: Scan, question: query.And) -> Mask:
    mask = scan.all()
    for part in question.children():
        mask &= scan.match(part)
    return mask


def _or(scan: Scan, question: query.Or) -> Mask:
    mask = scan.none()
    wanted: dict[str, list[pa.Scalar]] = {}
    for part in question.children():
        if type(part) is query.Term:  # a lineage asks for hundreds of one field
            wanted.setdefault(part.fieldname, []).append(text(part.text))
        else:
            mask |= scan.match(part)
    for name, found in wanted.items():
        mask |= scan.where(name, partial(_one_of, pa.array(found)))
    return mask


def _one_of(wanted: pa.Array, terms: pa.StringArray) -> pa.Array:
    return pc.is_in(terms, wanted)


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
