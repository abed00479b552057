"""The conditions of a query: each is checked against its field and made into a Whoosh query for index and scan.

A value that its field cannot have is refused, for "0 events" would read as "it never happened": an event type that
nobody knows, a date that is none, a range whose ends are the wrong way round.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from whoosh import query

from custody.errors import InvalidInputError
from custody.index import (
    NUMBER_FIELDS,
    STANDARD_FIELDS,
    TEXT_FIELD,
    TIME_FIELDS,
    WHOLE,
    is_numeric,
    searched_fields,
    term,
    words,
)
from custody.model import EventType
from custody.query.syntax_tree import did_you_mean
from custody.query.times import time_span

CONDITIONS_MAX = 10_000
"""Bound on the conditions of one query; one without a field counts once for each field that is searched."""
PATTERNS_MAX = 512
"""Bound on the patterns among them, each of which compares many terms of its field."""
TYPE_FIELD = "event_type"
_NUMBER_MAX = 1 << 62
_WHOLE_NUMBER = re.compile(r"-?[0-9]+")
_WORD_PATTERN = re.compile(r"(?:[\w.*?]|\[[^\]]*\])+")


class ConditionError(Exception):
    """A condition makes no sense: what is wrong, and a correction that may help, or None."""

    def __init__(self, what: str, correction: str | None = None, *, is_last: bool = False) -> None:
        super().__init__(what, correction)
        self.what, self.correction, self.is_last = what, correction, is_last


def field_help(attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> dict[str, str]:
    """Return what can be searched: name → meaning."""
    names = {field.name: field.help for field in searched_fields(attributes, standard)}
    return {**names, **TIME_FIELDS, **NUMBER_FIELDS}


class Conditions:
    """Builds the conditions of one query, counts them, and refuses those that make no sense.

    `attributes` and `standard` are what is indexed; `now_ms` is what times such as `-2h` count from.
    """

    def __init__(self, attributes: Iterable[str], now_ms: int, standard: Iterable[str]) -> None:
        attributes, standard = tuple(attributes), tuple(standard)
        self.known = tuple(field_help(attributes, standard))
        self._texts = [field.name for field in searched_fields(attributes, standard)]
        self._now_ms = now_ms
        self._count = 0
        self._patterns = 0

    def exists(self, name: str) -> query.Query:
        """Return the query for events that have a field."""
        self._counted()
        return query.Every(name)

    def equals(self, name: str | None, text: str, *, is_exact: bool = False) -> query.Query:
        """Return the query for a value of a field, or of any text field; `is_exact` takes a text as it is.

        Words of a text are wanted side by side where it is exact, anywhere in it where it is not.
        """
        if name is None:
            # A text without words, such as `---`, can be a value of the other fields only.
            names = [one for one in self._texts if one != TEXT_FIELD.name or words(text)]
            # A text for any field need not be an event type.
            return _any_of([self.equals(one, text, is_exact=is_exact or one == TYPE_FIELD) for one in names])
        self._counted()
        if is_numeric(name):
            first, last = self.span(name, text)
            return query.NumericRange(name, first, last)
        if name == TEXT_FIELD.name:
            return _words(text, is_phrase=is_exact)
        if name == TYPE_FIELD and not is_exact:
            _check_type(text)
        return query.Term(name, term(text, WHOLE))

    def pattern(self, name: str | None, text: str, *, is_exact: bool = False) -> query.Query:
        """Return the query for values of a field, or of any text field, that a pattern matches.

        `is_exact` allows patterns of event types that match none that custody knows.
        """
        if name is None:
            names = [one for one in self._texts if one != TEXT_FIELD.name or _WORD_PATTERN.fullmatch(text)]
            return _any_of([self.pattern(one, text, is_exact=True) for one in names])
        if is_numeric(name):
            raise ConditionError(
                f"{name} is a number or a time, which has no patterns.", f"Write a range, or {name}:*."
            )
        if name == TEXT_FIELD.name and not _WORD_PATTERN.fullmatch(text):
            raise ConditionError(
                f"a pattern in {name} is of one word, got {short(text)}.", "Ask for each word by itself."
            )
        if not text:
            raise ConditionError("expected a pattern, got an empty text.")
        if name == TYPE_FIELD and not is_exact:
            _check_type_pattern(text)
        self._patterned()
        return _pattern(name, term(text, WHOLE))

    def prefix(self, name: str, text: str, *, is_exact: bool = False) -> query.Query:
        """Return the query for values of a text field that begin with a text."""
        if name == TYPE_FIELD and not is_exact:
            _check_type_pattern(text + "*")
        self._patterned()
        return query.Prefix(name, term(text, WHOLE))

    def between(
        self, name: str, first: object, last: object, *, without_first: bool = False, without_last: bool = False
    ) -> query.Query:
        """Return the query for values between two ends, of which one may be None."""
        self._counted()
        if is_numeric(name):
            start = None if first is None else self.span(name, first)[0]
            end = None if last is None else self._last(name, last)
            # An empty range would answer "0 events", which reads as "it never happened".
            if start is not None and end is not None and start + without_first > end - without_last:
                raise ConditionError(*_no_range(first, last, is_reversed=start > end))
            return query.NumericRange(name, start, end, without_first, without_last)
        low, high = (None if end is None else term(str(end), WHOLE) for end in (first, last))
        if low is not None and high is not None:
            is_reversed = low.encode() > high.encode()
            if is_reversed or (low == high and (without_first or without_last)):
                raise ConditionError(*_no_range(first, last, is_reversed=is_reversed))
        return query.TermRange(name, low, high, without_first, without_last)

    def phrase(self, name: str, text: str) -> query.Query:
        """Return the query for words side by side."""
        self._counted()
        if name != TEXT_FIELD.name:
            raise ConditionError(f"expected a phrase in {TEXT_FIELD.name} only.")
        return _words(text, is_phrase=True)

    def span(self, name: str, value: object) -> tuple[int, int]:
        """Return the first and the last number that a value of a number or time field means."""
        # A truth value of JSON is an int in Python, and would pass for 0 or 1.
        if isinstance(value, int) and not isinstance(value, bool):
            return bounded(value), bounded(value)
        if isinstance(value, str) and name in TIME_FIELDS:
            try:
                first, last = time_span(value, self._now_ms)
            except InvalidInputError as error:
                raise ConditionError(str(error)) from error
            return bounded(first), bounded(last)
        if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
            return bounded(int(value)), bounded(int(value))
        raise ConditionError(f"expected a {'time' if name in TIME_FIELDS else 'whole number'}, got {short(value)}.")

    def _last(self, name: str, value: object) -> int:
        try:
            return self.span(name, value)[1]
        except ConditionError as refused:
            # Marked, so that the message points at the end of the range that is wrong.
            raise ConditionError(refused.what, refused.correction, is_last=True) from None

    def _patterned(self) -> None:
        self._counted()
        self._patterns += 1
        if self._patterns > PATTERNS_MAX:
            raise ConditionError(f"expected at most {PATTERNS_MAX} patterns, got more.", "Name the field of each.")

    def _counted(self) -> None:
        self._count += 1
        if self._count > CONDITIONS_MAX:
            raise ConditionError(f"expected at most {CONDITIONS_MAX} conditions, got more.", "Ask in parts.")


def bounded(number: int) -> int:
    """Return a number that Whoosh can compare: near the ends of 64 bits it fails while it searches, or matches all."""
    if not -_NUMBER_MAX <= number <= _NUMBER_MAX:
        raise ConditionError(f"expected a number from -2^62 to 2^62, got {number}.")
    return number


def short(value: object) -> str:
    """Return a value in the form in which messages show it."""
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _any_of(queries: list[query.Query]) -> query.Query:
    if not queries:
        raise ConditionError("no field of the index can have this text.", "Name a field.")
    return queries[0] if len(queries) == 1 else query.Or(queries)


def _words(text: str, *, is_phrase: bool) -> query.Query:
    name, split = TEXT_FIELD.name, words(text)
    if not split:
        raise ConditionError(f"expected words of letters and digits, got {short(text)}.")
    if len(split) == 1:
        return query.Term(name, split[0])
    return query.Phrase(name, split) if is_phrase else query.And([query.Term(name, word) for word in split])


def _pattern(name: str, text: str) -> query.Query:
    # A star at the end alone is a prefix: a range of terms instead of a comparison with each.
    begin = text[:-1]
    return query.Prefix(name, begin) if text[-1] == "*" and not set(begin) & set("*?[") else query.Wildcard(name, text)


def _check_type(text: str) -> None:
    # A misspelt type would match nothing, and nothing reads as: it never happened.
    if text.upper() not in frozenset(EventType):
        near = did_you_mean(text, EventType)
        quoted = f'event_type:"{text}" looks for a type that custody does not know.'
        known = f"Known types: {', '.join(EventType)}."
        raise ConditionError(f"unknown event type {short(text)}.", " ".join(filter(None, (near, known, quoted))))


def _check_type_pattern(text: str) -> None:
    if not any(fnmatchcase(known, text.upper()) for known in EventType):
        raise ConditionError(f"no event type matches {text}.", f"Known types: {', '.join(EventType)}.")


def _no_range(first: object, last: object, *, is_reversed: bool) -> tuple[str, str]:
    if is_reversed:
        return f"a range from {short(first)} down to {short(last)} holds nothing.", "Write the smaller end first."
    return f"nothing lies between {short(first)} and {short(last)}.", "Brackets, [ and ], take the ends in."
