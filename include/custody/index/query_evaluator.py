"""The kinds of query that custody answers: one list, for index shards, for scans of events, and for bounds of time.

A query is a tree of Whoosh's query classes. `QueryEvaluator` knows these classes and what they mean, and leaves to its
subclasses what an answer is: a set of documents, a mask of rows, a range of times.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from whoosh import query

from custody.errors import InvalidInputError
from custody.index.by_question import ByQuestion
from custody.index.fields import is_numeric
from custody.index.terms import TermSet, alternatives

Answer = TypeVar("Answer")


def _leaves(question: query.Query) -> tuple[query.Query, ...]:
    # Whoosh's own walk takes three times as long.
    found: list[query.Query] = []
    waiting = [question]
    while waiting:
        one = waiting.pop()
        if type(one) is query.Term or one.is_leaf():
            found.append(one)
        else:
            waiting += one.children()
    return tuple(found)


leaves = ByQuestion(_leaves)
"""Return the conditions of a query, in any order."""


class QueryEvaluator(ABC, Generic[Answer]):
    """Answers a query by answering its conditions and combining the answers.

    Parts come as an iterator: a query may have thousands, and an answer may be as long as a table.
    """

    def evaluate(self, question: query.Query) -> Answer:
        """Return the answer to a query.

        Raises:
            InvalidInputError: a kind of query that custody does not know.
        """
        answer = _ANSWERS.get(type(question))
        if answer is None:
            # A single object in Whoosh, not a class, so the table of types below cannot hold it.
            if question == query.NullQuery:
                return self.none()
            raise InvalidInputError(f"query: {type(question).__name__} is a kind of query that custody does not know.")
        result: Answer = answer(self, question)
        return result

    @abstractmethod
    def all(self) -> Answer:
        """Return the answer that every event matches."""

    @abstractmethod
    def none(self) -> Answer:
        """Return the answer that no event matches."""

    @abstractmethod
    def any_term(self, name: str) -> Answer:
        """Answer for events that have a field with terms."""

    @abstractmethod
    def term(self, name: str, text: str) -> Answer:
        """Answer for one term of a field."""

    @abstractmethod
    def prefix(self, name: str, text: str) -> Answer:
        """Answer for the terms that begin with a text."""

    @abstractmethod
    def wildcard(self, name: str, pattern: str) -> Answer:
        """Answer for the terms that a pattern matches as a whole."""

    @abstractmethod
    def phrase(self, name: str, words: Sequence[str]) -> Answer:
        """Answer for words that follow each other."""

    @abstractmethod
    def number_range(self, name: str, first: int | None, last: int | None) -> Answer:
        """Answer for numbers from `first` to `last`, both included; None leaves an end open."""

    @abstractmethod
    def term_range(self, question: query.TermRange) -> Answer:
        """Answer for the terms between two others, in the order of their bytes."""

    @abstractmethod
    def intersect(self, parts: Iterable[Answer]) -> Answer:
        """Return the answer for events that are in all parts; without any, that is every event."""

    @abstractmethod
    def unite(self, parts: Iterable[Answer], terms: Mapping[str, TermSet]) -> Answer:
        """Return the answer for events that are in one of the parts or have one of the terms of a field."""

    @abstractmethod
    def complement(self, part: Answer) -> Answer:
        """Return the answer for events that are not in a part."""

    def _every(self, question: query.Every) -> Answer:
        name = question.fieldname
        if name in (None, "*"):
            return self.all()
        return self.number_range(name, None, None) if is_numeric(name) else self.any_term(name)

    def _numeric_range(self, question: query.NumericRange) -> Answer:
        first = None if question.start is None else int(question.start) + bool(question.startexcl)
        last = None if question.end is None else int(question.end) - bool(question.endexcl)
        return self.number_range(question.fieldname, first, last)

    def _or(self, question: query.Or) -> Answer:
        # A lineage asks for hundreds of terms of one field: they are looked up together, not one by one.
        split = alternatives(question)
        return self.unite(map(self.evaluate, split.others), split.terms)

    def _and(self, question: query.Query) -> Answer:
        return self.intersect(map(self.evaluate, question.children()))

    def _and_not(self, question: query.AndNot) -> Answer:
        return self.intersect([self.evaluate(question.a), self.complement(self.evaluate(question.b))])


# By exact type: a subclass of Whoosh's may mean something else, and is refused instead of guessed.
_ANSWERS: dict[type, Callable[[QueryEvaluator[Any], Any], Any]] = {
    query.Every: QueryEvaluator._every,
    query.Term: lambda evaluator, question: evaluator.term(question.fieldname, question.text),
    query.Prefix: lambda evaluator, question: evaluator.prefix(question.fieldname, question.text),
    query.Wildcard: lambda evaluator, question: evaluator.wildcard(question.fieldname, question.text),
    query.Phrase: lambda evaluator, question: evaluator.phrase(question.fieldname, question.words),
    query.NumericRange: QueryEvaluator._numeric_range,
    query.TermRange: lambda evaluator, question: evaluator.term_range(question),
    query.And: QueryEvaluator._and,
    query.Or: QueryEvaluator._or,
    query.Not: lambda evaluator, question: evaluator.complement(evaluator.evaluate(question.query)),
    query.AndNot: QueryEvaluator._and_not,
    # What may be there as well would only change the rank, and results are not ranked.
    query.AndMaybe: lambda evaluator, question: evaluator.evaluate(question.a),
    query.Require: QueryEvaluator._and,
}
