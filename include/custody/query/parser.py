"""The query language: Whoosh's syntax on custody's fields, with whole identifiers, ISO times and strict field names.

`event_type:SEND AND filename:orders*`, `event_time:[2026-01-01 TO 2026-01-31]`, `file_size:[1000 TO]`,
`NOT component_type:PutHDFS`, `details:"auto terminated"`. Text without a field is looked for in all text fields.
Case never matters; both ends of a range belong to it; an end that is a day means the whole day.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import partial

from whoosh import fields, query
from whoosh.qparser import FieldsPlugin, MultifieldParser, QueryParserError

from custody.errors import InvalidInputError
from custody.index import (
    NUMBER_FIELDS,
    STANDARD_FIELDS,
    TIME_FIELDS,
    searched_fields,
    whoosh_schema,
)
from custody.query.times import time_span

QUERY_CHARACTERS_MAX = 4096  # the parser's work grows with the square of the length
_NUMBER_MAX = 1 << 62
_FIELD_LIKE = re.compile(r"(?:^|[\s(])([A-Za-z_][\w.\-]*):(?!//)")
_QUOTED = re.compile(r"\"[^\"]*\"|'[^']*'")


class _NumberField(fields.NUMERIC):  # type: ignore[misc]
    """A number in a query: what is no number is an error, where Whoosh would quietly find nothing."""

    now_ms = 0

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
        return bounded(number)

    def upper(self, text: str) -> int:
        return self.lower(text)


class _TimeField(_NumberField):
    """A time in a query: the shard holds plain numbers, people write dates."""

    def lower(self, text: str) -> int:
        return bounded(time_span(text.strip("'\""), self.now_ms)[0])

    def upper(self, text: str) -> int:
        return bounded(time_span(text.strip("'\""), self.now_ms)[1])


def bounded(number: int) -> int:
    """Return a number that Whoosh can compare: near the ends of 64 bits it fails while it searches, or matches all."""
    if not -_NUMBER_MAX <= number <= _NUMBER_MAX:
        raise InvalidInputError(f"query: expected a number from -2^62 to 2^62, got {number}")
    return number


def field_help(attributes: Iterable[str], standard: Iterable[str] = STANDARD_FIELDS) -> dict[str, str]:
    """Return what can be searched: name → meaning."""
    names = {field.name: field.help for field in searched_fields(attributes, standard)}
    return {**names, **TIME_FIELDS, **NUMBER_FIELDS}


def check_field(name: str, known: Iterable[str]) -> None:
    """Raise InvalidInputError, with the fields that are known, for one that is not."""
    if name not in known:
        raise InvalidInputError(
            f"query: unknown field {name!r}. Known fields: {', '.join(known)}. Quote a text that contains a colon; "
            "the settings index.fields and index.attributes say what is indexed."
        )


def parse_query(
    text: str, attributes: Iterable[str] = (), now_ms: int = 0, standard: Sequence[str] = STANDARD_FIELDS
) -> query.Query:
    """Return the query of a text; an empty text matches every event.

    `attributes` and `standard` are what is indexed. `now_ms` is what times such as `-2h` count from.

    Raises:
        InvalidInputError: an unknown field, a malformed time or number, or a text that is too long.
    """
    attributes = tuple(attributes)
    if len(text) > QUERY_CHARACTERS_MAX:
        raise InvalidInputError(f"query: expected at most {QUERY_CHARACTERS_MAX} characters, got {len(text)}.")
    if text.strip() in ("", "*"):
        return query.Every()
    known = field_help(attributes, standard)
    for name in _FIELD_LIKE.findall(_known_fields(known).sub("=", _QUOTED.sub("", text))):
        check_field(name, known)
    try:
        parser = _parser(attributes, standard, known, now_ms)
        parsed = parser.parse(text, normalize=False)
        parsed = parsed.accept(_refuse_errors).accept(partial(_unquoted, parser.schema)).normalize()
    except InvalidInputError:
        raise
    except (QueryParserError, ValueError, TypeError) as error:
        raise InvalidInputError(f"query {text!r}: {error}") from error
    if parsed == query.NullQuery:
        raise InvalidInputError(f"query {text!r}: expected words or field:value, got neither.")
    return parsed


def _known_fields(known: Iterable[str]) -> re.Pattern[str]:
    """Return what finds the known fields of a text; an attribute's name may hold spaces and colons."""
    return re.compile(rf"(?:(?<=[\s(])|^)(?:{_choice(known)}):")


def _choice(known: Iterable[str]) -> str:
    return "|".join(re.escape(name) for name in sorted(known, key=len, reverse=True))


def _parser(
    attributes: tuple[str, ...], standard: Sequence[str], known: Iterable[str], now_ms: int
) -> MultifieldParser:
    schema = whoosh_schema(attributes, standard=standard)
    for names, kind in ((TIME_FIELDS, _TimeField), (NUMBER_FIELDS, _NumberField)):
        for name in names:
            schema.remove(name)
            number = kind(int, 64, signed=True, shift_step=8, sortable=True)
            number.now_ms = now_ms
            schema.add(name, number)
    texts = [field.name for field in searched_fields(attributes, standard)]
    parser = MultifieldParser(texts, schema)
    # Only known names are fields, so that the colon of a URI stays part of the value.
    parser.replace_plugin(FieldsPlugin(expr=rf"(?P<text>{_choice(known)}):"))
    return parser


def _unquoted(schema: fields.Schema, node: query.Query) -> query.Query:
    """Read a number or a time that was written in double quotes."""
    if isinstance(node, query.Term) and isinstance(schema[node.fieldname], _NumberField):
        return schema[node.fieldname].parse_query(node.fieldname, node.text)
    return node


def _refuse_errors(node: query.Query) -> query.Query:
    """Raise what a field said of its text; Whoosh only notes it, and then finds nothing."""
    error = getattr(node, "error", None)
    if error is not None:
        raise error if isinstance(error, InvalidInputError) else InvalidInputError(f"query: {error}")
    return node
