"""The query language as JSON, for programs and forms: one object a condition, nothing to quote.

`{"and": [{"field": "event_type", "equals": "SEND"}, {"not": {"field": "filename", "wildcard": "*.tmp"}}]}`,
`{"field": "file_size", "from": 1000, "to": 2000}`, `{"field": "details", "phrase": "auto terminated"}`, `{}` for all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from whoosh import query

from custody.errors import InvalidInputError
from custody.index import NUMBER_FIELDS, STANDARD_FIELDS, TEXT_FIELD, TIME_FIELDS, term, words
from custody.query.parser import bounded, check_field, field_help
from custody.query.times import time_span

DEPTH_MAX = 64
CONDITIONS_MAX = 10_000


class _Builder:
    """Turns objects into a query; counts them, so that no request grows without bound."""

    def __init__(self, attributes: Iterable[str], now_ms: int, standard: Iterable[str]) -> None:
        self._known = field_help(attributes, standard)
        self._now_ms = now_ms
        self._count = 0

    def build(self, value: object, depth: int = 0) -> query.Query:
        self._count += 1
        if depth > DEPTH_MAX or self._count > CONDITIONS_MAX:
            raise InvalidInputError(
                f"query: expected at most {CONDITIONS_MAX} conditions, {DEPTH_MAX} in each other, got more."
            )
        match value:
            case {"and": list(parts), **rest} if not rest:
                return query.And([self.build(part, depth + 1) for part in parts]) if parts else query.Every()
            case {"or": list(parts), **rest} if not rest:
                return query.Or([self.build(part, depth + 1) for part in parts]) if parts else query.NullQuery
            case {"not": part, **rest} if not rest:
                return query.Not(self.build(part, depth + 1))
            case {"field": str(name)} if isinstance(value, dict):
                check_field(name, self._known)
                return self._condition(name, {key: value[key] for key in value if key != "field"})
            case {}:
                if not value:
                    return query.Every()
        raise InvalidInputError(f"query: expected and, or, not, or field with a condition, got {_short(value)}.")

    def _condition(self, name: str, condition: Mapping[str, object]) -> query.Query:
        if name in TIME_FIELDS or name in NUMBER_FIELDS:
            return self._numbers(name, condition)
        if set(condition) in ({"from"}, {"to"}, {"from", "to"}):
            first, last = condition.get("from"), condition.get("to")
            return query.TermRange(
                name, _text(first) if "from" in condition else None, _text(last) if "to" in condition else None
            )
        if len(condition) == 1:
            [(kind, value)] = condition.items()
            if kind == "exists" and value is True:
                return query.Every(name)
            if kind in _TEXT_CONDITIONS:
                return _TEXT_CONDITIONS[kind](name, _text(value) if kind != "phrase" else str(value))
        expected = "exists, from, to or one of " + ", ".join(_TEXT_CONDITIONS)
        raise InvalidInputError(f"query: field {name!r}: expected {expected}, got {_short(dict(condition))}.")

    def _numbers(self, name: str, condition: Mapping[str, object]) -> query.Query:
        if condition == {"exists": True}:
            return query.Every(name)
        if set(condition) == {"equals"}:
            first, last = self._span(name, condition["equals"])
            return query.NumericRange(name, first, last)
        if set(condition) not in ({"from"}, {"to"}, {"from", "to"}):
            raise InvalidInputError(
                f"query: field {name!r}: expected equals, exists, from or to, got {_short(dict(condition))}."
            )
        start = self._span(name, condition["from"])[0] if "from" in condition else None
        end = self._span(name, condition["to"])[1] if "to" in condition else None
        return query.NumericRange(name, start, end)

    def _span(self, name: str, value: object) -> tuple[int, int]:
        if isinstance(value, int) and not isinstance(value, bool):
            return bounded(value), bounded(value)
        if name in TIME_FIELDS and isinstance(value, str):
            first, last = time_span(value, self._now_ms)
            return bounded(first), bounded(last)
        raise InvalidInputError(
            f"query: field {name!r}: expected a {'time' if name in TIME_FIELDS else 'number'}, got {_short(value)}."
        )


def structured_query(
    value: object, attributes: Iterable[str] = (), now_ms: int = 0, standard: Iterable[str] = STANDARD_FIELDS
) -> query.Query:
    """Return the query of a decoded JSON value.

    Raises:
        InvalidInputError: an unknown field or condition, a malformed time or number, or too many conditions.
    """
    return _Builder(attributes, now_ms, standard).build(value)


def _phrase(name: str, text: str) -> query.Query:
    if name != TEXT_FIELD.name:
        raise InvalidInputError(f"query: field {name!r}: expected a phrase in {TEXT_FIELD.name} only.")
    return _words(name, text)


def _words(name: str, text: str) -> query.Query:
    found = words(text)
    if not found:
        return query.NullQuery
    return query.Term(name, found[0]) if len(found) == 1 else query.Phrase(name, found)


def _equals(name: str, text: str) -> query.Query:
    return _words(name, text) if name == TEXT_FIELD.name else query.Term(name, text)


_TEXT_CONDITIONS: dict[str, Callable[[str, str], query.Query]] = {
    "equals": _equals,
    "prefix": query.Prefix,
    "wildcard": query.Wildcard,
    "phrase": _phrase,
}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInputError(f"query: expected a text, got {_short(value)}.")
    return term(value)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
