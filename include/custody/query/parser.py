"""The query language: Whoosh's syntax on custody's fields, with whole identifiers, ISO times and strict field names.

`event_type:SEND AND filename:orders*`, `event_time:[2026-01-01 TO 2026-01-31]`, `file_size:[1000 TO]`,
`NOT component_type:PutHDFS`, `details:"auto terminated"`. Text without a field is looked for in all text fields.
Case never matters; both ends of a range belong to it; an end that is a day means the whole day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from whoosh import fields, query
from whoosh.qparser import FieldsPlugin, MultifieldParser, QueryParserError

from custody.errors import InvalidInputError
from custody.index import (
    NUMBER_FIELDS,
    TEXT_FIELD,
    TIME_FIELDS,
    identifier_fields,
    parse_time,
    whoosh_schema,
)

QUERY_CHARACTERS_MAX = 4096  # the parser's work grows with the square of the length
_DAY_MS = 86_400_000
_NUMBER_MAX = 1 << 62
_FIELD_LIKE = re.compile(r"(?:^|[\s(])([A-Za-z_][\w.\-]*):(?!//)")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


class _NumberField(fields.NUMERIC):  # type: ignore[misc]
    """A number in a query: what is no number is an error, where Whoosh would quietly find nothing."""

    def parse_query(self, fieldname: str, qstring: str, boost: float = 1.0) -> query.Query:
        return query.NumericRange(fieldname, self.lower(qstring), self.upper(qstring), boost=boost)

    def parse_range(
        self, fieldname: str, start: str | None, end: str | None, startexcl: bool, endexcl: bool, boost: float = 1.0
    ) -> query.Query:
        first = self.lower(start) if start else None
        last = self.upper(end) if end else None
        return query.NumericRange(fieldname, first, last, startexcl, endexcl, boost=boost)

    def lower(self, text: str) -> int:
        try:
            number = int(text)
        except ValueError as error:
            raise InvalidInputError(f"query: expected a whole number, got {text!r}") from error
        return _bounded(number)

    def upper(self, text: str) -> int:
        return self.lower(text)


class _TimeField(_NumberField):
    """A time in a query: the shard holds plain numbers, people write dates."""

    def lower(self, text: str) -> int:
        return _bounded(parse_time(text.strip("'\"")))

    def upper(self, text: str) -> int:
        text = text.strip("'\"")
        is_day = re.fullmatch(r"\d{4}-\d{2}-\d{2}|\d{8}", text) is not None
        return _bounded(parse_time(text) + (_DAY_MS - 1 if is_day else 0))


def _bounded(number: int) -> int:
    """Return a number that Whoosh can compare: near the ends of 64 bits it fails while it searches, or matches all."""
    if not -_NUMBER_MAX <= number <= _NUMBER_MAX:
        raise InvalidInputError(f"query: expected a number from -2^62 to 2^62, got {number}")
    return number


def field_help(attributes: Iterable[str]) -> dict[str, str]:
    """Return what can be searched: name → meaning."""
    names = {field.name: field.help for field in identifier_fields(attributes)}
    return {**names, TEXT_FIELD.name: TEXT_FIELD.help, **TIME_FIELDS, **NUMBER_FIELDS}


def parse_query(text: str, attributes: Iterable[str] = ()) -> query.Query:
    """Return the query of a text; an empty text matches every event.

    Raises:
        InvalidInputError: an unknown field, a malformed time or number, or a text that is too long.
    """
    attributes = tuple(attributes)
    if len(text) > QUERY_CHARACTERS_MAX:
        raise InvalidInputError(f"query: expected at most {QUERY_CHARACTERS_MAX} characters, got {len(text)}.")
    if text.strip() in ("", "*"):
        return query.Every()
    known = field_help(attributes)
    for name in _FIELD_LIKE.findall(_QUOTED.sub("", text)):
        if name not in known:
            raise InvalidInputError(
                f"query: unknown field {name!r}. Known fields: {', '.join(known)}. Quote a text that contains a colon."
            )
    try:
        parsed = _parser(attributes, known).parse(text, normalize=False)
        parsed = parsed.accept(_refuse_errors).normalize()
    except InvalidInputError:
        raise
    except (QueryParserError, ValueError, TypeError) as error:
        raise InvalidInputError(f"query {text!r}: {error}") from error
    if parsed == query.NullQuery:
        raise InvalidInputError(f"query {text!r}: expected words or field:value, got neither.")
    return parsed


def _parser(attributes: tuple[str, ...], known: Iterable[str]) -> MultifieldParser:
    schema = whoosh_schema(attributes)
    for names, kind in ((TIME_FIELDS, _TimeField), (NUMBER_FIELDS, _NumberField)):
        for name in names:
            schema.remove(name)
            schema.add(name, kind(int, 64, signed=True, shift_step=8, sortable=True))
    texts = [field.name for field in identifier_fields(attributes)] + [TEXT_FIELD.name]
    parser = MultifieldParser(texts, schema)
    # Only known names are fields, so that the colon of a URI stays part of the value.
    choice = "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))
    parser.replace_plugin(FieldsPlugin(expr=rf"(?P<text>{choice}):"))
    return parser


def _refuse_errors(node: query.Query) -> query.Query:
    """Raise what a field said of its text; Whoosh only notes it, and then finds nothing."""
    error = getattr(node, "error", None)
    if error is not None:
        raise error if isinstance(error, InvalidInputError) else InvalidInputError(f"query: {error}")
    return node
