"""Structured queries: the query language as JSON, for programs and forms, with nothing to quote.

One object is one condition:
`{"and": [{"field": "event_type", "equals": "SEND"}, {"not": {"field": "filename", "wildcard": "*.tmp"}}]}`,
`{"field": "file_size", "from": 1000, "to": 2000}`, `{"field": "details", "phrase": "auto terminated"}`, `{}` for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from whoosh import query

from custody.errors import InvalidInputError
from custody.index import NUMBER_FIELDS, STANDARD_FIELDS, TEXT_FIELD, is_numeric
from custody.query.conditions import CONDITIONS_MAX, TYPE_FIELD, ConditionError, Conditions, short
from custody.query.parser import DEPTH_MAX, QUERY_CHARACTERS_MAX, unknown_field


class _Builder:
    """Turns JSON objects into a query; counts them, so that no request grows without bound."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self._count = 0

    def build(self, value: object, depth: int = 0) -> query.Query:
        self._count += 1
        # Checked before the recursion, so that no request reaches Python's own limit.
        if depth > DEPTH_MAX or self._count > CONDITIONS_MAX:
            raise InvalidInputError(
                f"query: expected at most {CONDITIONS_MAX} conditions, {DEPTH_MAX} in each other, got more."
            )
        match value:
            case {"and": list(parts), **rest} if not rest:
                return query.And([self.build(part, depth + 1) for part in parts]) if parts else query.Every()
            case {"or": list(parts), **rest} if not rest and parts:
                return query.Or([self.build(part, depth + 1) for part in parts])
            case {"or": [], **rest} if not rest:
                raise InvalidInputError("query: expected at least one condition in or, got none: it matches no event.")
            case {"not": part, **rest} if not rest:
                return query.Not(self.build(part, depth + 1))
            case {"field": str(name)} if isinstance(value, dict):
                return self._named(name, {key: value[key] for key in value if key != "field"})
            case {}:
                if not value:
                    return query.Every()
        raise InvalidInputError(f"query: expected and, or, not, or field with a condition, got {short(value)}.")

    def _named(self, name: str, condition: dict[str, object]) -> query.Query:
        if name not in self._conditions.known:
            raise InvalidInputError("query: " + " ".join(unknown_field(name, self._conditions.known)))
        try:
            return self._condition(name, condition)
        except ConditionError as refused:
            help = f" {refused.correction}" if refused.correction else ""
            raise InvalidInputError(f"query: field {name!r}: {refused.what}{help}") from refused

    def _condition(self, name: str, condition: dict[str, object]) -> query.Query:
        if condition == {"exists": True}:
            return self._conditions.exists(name)
        if set(condition) in ({"from"}, {"to"}, {"from", "to"}):
            check = _number_or_time if is_numeric(name) else _text
            first, last = (check(name, condition[end]) if end in condition else None for end in ("from", "to"))
            return self._conditions.between(name, first, last)
        if is_numeric(name):
            return self._number(name, condition)
        return self._texts(name, condition)

    def _number(self, name: str, condition: Mapping[str, object]) -> query.Query:
        if set(condition) != {"equals"}:
            raise ConditionError(f"expected equals, exists, from or to, got {short(condition)}.")
        value = _number_or_time(name, condition["equals"])
        return self._conditions.between(name, value, value)

    def _texts(self, name: str, condition: dict[str, object]) -> query.Query:
        is_unknown = name == TYPE_FIELD and condition.pop("unknown", False) is True
        match condition:
            case {"equals": value, **rest} if not rest:
                is_exact = is_unknown or name == TEXT_FIELD.name
                return self._conditions.equals(name, _text(name, value), is_exact=is_exact)
            case {"wildcard": value, **rest} if not rest:
                return self._conditions.pattern(name, _text(name, value), is_exact=is_unknown)
            case {"prefix": value, **rest} if not rest:
                return self._conditions.prefix(name, _text(name, value), is_exact=is_unknown)
            case {"phrase": value, **rest} if not rest:
                return self._conditions.phrase(name, _text(name, value))
        raise ConditionError(
            f"expected exists, from, to or one of equals, prefix, wildcard, phrase, got {short(condition)}."
        )


def structured_query(
    value: object, attributes: Iterable[str] = (), now_ms: int = 0, standard: Iterable[str] = STANDARD_FIELDS
) -> query.Query:
    """Return the query of a decoded JSON value.

    Raises:
        InvalidInputError: an unknown field or condition, a value that its field cannot have, a malformed time or
            number, or too many conditions.
    """
    return _Builder(Conditions(attributes, now_ms, standard)).build(value)


def _number_or_time(name: str, value: object) -> object:
    if value is None or (isinstance(value, str) and name in NUMBER_FIELDS):
        raise ConditionError(f"expected a {'whole number' if name in NUMBER_FIELDS else 'time'}, got {short(value)}.")
    return value


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise ConditionError(f"expected a text, got {short(value)}.")
    if name == TEXT_FIELD.name and len(value) > QUERY_CHARACTERS_MAX:
        raise ConditionError(f"expected at most {QUERY_CHARACTERS_MAX} characters, got {len(value)}.")
    # JSON may spell half a character by an escape; it cannot be encoded, and so cannot be looked for.
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise ConditionError(f"expected Unicode text, got half of a character in {short(value)}.")
    return value
