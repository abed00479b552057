"""A query answered without an index, on columns: for events that were acknowledged and have no shard yet.

Terms and words come from where the index takes them (`custody.index.terms`), so both give the same answers; but here
terms are whole values, however long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from whoosh import query

from custody.index import (
    QueryEvaluator,
    TermSet,
    TermValues,
    flags,
    integers,
    match_wildcard,
    number_scalar,
    text_array,
    text_scalar,
    whole_fields,
)

Mask = npt.NDArray[np.bool_]


class Columns(Protocol):
    """Columns of events by name, of which only those exist that are asked for."""

    num_rows: int

    def column(self, name: str) -> pa.ChunkedArray:
        """Return a column."""


class Scan(QueryEvaluator[Mask]):
    """Events that can be asked; the terms or numbers of a field are taken once, when it is first asked for.

    `table` is a table of them, or anything else that has a `column` by name and `num_rows`.
    """

    def __init__(self, table: pa.Table | Columns, attributes: Iterable[str] = ()) -> None:
        self._table = table
        self._fields = {field.name: field for field in whole_fields(attributes)}
        self._values: dict[str, TermValues] = {}
        self._numbers: dict[str, tuple[npt.NDArray[np.int64], Mask]] = {}

    def match(self, question: query.Query) -> Mask:
        """Return which rows match, shape (rows,).

        Raises:
            InvalidInputError: a kind of query that custody does not know.
        """
        return self.evaluate(question)

    def numbers(self, name: str) -> tuple[npt.NDArray[np.int64], Mask]:
        """Return a number or time column and which rows have a value; absent ones read as 0."""
        if name not in self._numbers:
            column = self._table.column(name).cast(pa.int64())
            # Copied: a scan that is kept must not keep a mapped file's pages, which are released behind it.
            numbers = integers(column.fill_null(number_scalar(0)), np.int64).copy()
            self._numbers[name] = numbers, flags(column.is_valid())
        numbers, present = self._numbers[name]
        # A caller narrows the mask in place.
        return numbers, present.copy()

    def values(self, name: str) -> TermValues | None:
        """Return the terms of a field, None for a field that no event has."""
        if name not in self._values and name in self._fields:
            self._values[name] = self._fields[name].values(self._table)
        return self._values.get(name)

    def all(self) -> Mask:
        """Return every row."""
        return np.ones(self._table.num_rows, np.bool_)

    def none(self) -> Mask:
        """Return no row."""
        return np.zeros(self._table.num_rows, np.bool_)

    def any_term(self, name: str) -> Mask:
        """Return the rows that have a term of a field."""
        return self._where(name, lambda terms: np.ones(len(terms), np.bool_))

    def term(self, name: str, text: str) -> Mask:
        """Return the rows with a term."""
        return self._where(name, lambda terms: pc.equal(terms, _scalar(text)))

    def prefix(self, name: str, text: str) -> Mask:
        """Return the rows with a term that begins with a text."""
        return self._where(name, lambda terms: pc.starts_with(terms, text))

    def wildcard(self, name: str, pattern: str) -> Mask:
        """Return the rows with a term that a pattern matches."""
        return self._where(name, lambda terms: match_wildcard(terms, pattern))

    def phrase(self, name: str, words: Sequence[str]) -> Mask:
        """Return the rows in which the words follow each other."""
        values = self.values(name)
        mask = self.none()
        if values is None or values.positions is None or not len(values.rows):
            return mask
        begins: Mask | None = None
        for distance, word in enumerate(words):
            # The words of a text lie one behind the other: in a phrase each follows the one before, in the same row.
            here = flags(pc.equal(values.terms, _scalar(word)))[values.codes]
            # Moved back by the distance of the word: the phrase begins where all the shifted words meet.
            moved = np.zeros_like(here)
            moved[: len(here) - distance] = here[distance:] & (
                values.rows[distance:] == values.rows[: len(here) - distance]
            )
            begins = moved if begins is None else begins & moved
        if begins is not None:
            mask[values.rows[begins]] = True
        return mask

    def number_range(self, name: str, first: int | None, last: int | None) -> Mask:
        """Return the rows whose number lies in a range."""
        numbers, present = self.numbers(name)
        if first is not None:
            # Absent numbers read as 0, so the mask of what is there decides first.
            present &= numbers >= first
        if last is not None:
            present &= numbers <= last
        return present

    def term_range(self, question: query.TermRange) -> Mask:
        """Return the rows with a term between two others."""

        def inside(terms: pa.StringArray) -> Mask:
            data = terms.cast(pa.binary())  # in the order of bytes, as the index has them
            mask = np.ones(len(terms), np.bool_)
            if question.start is not None:
                compare = pc.greater if question.startexcl else pc.greater_equal
                mask &= flags(compare(data, _scalar(question.start).cast(pa.binary())))
            if question.end is not None:
                compare = pc.less if question.endexcl else pc.less_equal
                mask &= flags(compare(data, _scalar(question.end).cast(pa.binary())))
            return mask

        return self._where(question.fieldname, inside)

    def intersect(self, parts: Iterable[Mask]) -> Mask:
        """Return the rows that are in all parts."""
        mask = self.all()
        for part in parts:
            mask &= part
        return mask

    def unite(self, parts: Iterable[Mask], terms: Mapping[str, TermSet]) -> Mask:
        """Return the rows that are in one of the parts or have one of the terms."""
        mask = self.none()
        for part in parts:
            mask |= part
        for name, term_set in terms.items():
            mask |= self._where(name, partial(_one_of, text_array([term.decode() for term in term_set.terms])))
        return mask

    def complement(self, part: Mask) -> Mask:
        """Return the rows that are not in a part."""
        return ~part

    def _where(self, name: str, test: Callable[[pa.StringArray], pa.Array | Mask]) -> Mask:
        """Return the rows with a term that passes a test, which is made once for each distinct term."""
        mask = self.none()
        values = self.values(name)
        if values is not None and len(values.rows):
            passed = test(values.terms)
            chosen = flags(passed) if isinstance(passed, pa.Array) else passed
            # The test was made for each distinct term; here its answers spread to the rows that have them.
            mask[values.rows[chosen[values.codes]]] = True
        return mask


def _one_of(values: pa.Array, terms: pa.StringArray) -> pa.Array:
    return pc.is_in(terms, values)


def _scalar(value: str | bytes) -> pa.Scalar:
    return text_scalar(value if isinstance(value, str) else value.decode())
