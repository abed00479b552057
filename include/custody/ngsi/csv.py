r"""Fields of CSV lines: plain where nothing needs care, and every value can be read back.

A line is one line. A line end in a value is written `\n`, a carriage return `\r`. A value that has either, or that
already has `\n`, `\r` or `\\` in it, has each backslash doubled; every other value keeps its backslashes. A field
with a separator or a quote stands in quotes, quotes in it doubled. No value is `NULL`; the text NULL is `"NULL"`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from custody.errors import InvalidInputError

NULL = "NULL"
_NEEDS_ESCAPES = re.compile(r"[\n\r]|\\[nr\\]")
_LOOKS_ESCAPED = re.compile(r"\\[nr\\]")
_MEANS = {"\\n": "\n", "\\r": "\r", "\\\\": "\\"}
_QUOTE = '"'


def line(fields: Iterable[str | None], separator: str) -> str:
    """Return a line without its end; None is no value."""
    return separator.join(_field(item, separator) for item in fields)


def _field(item: str | None, separator: str) -> str:
    if item is None:
        return NULL
    if _NEEDS_ESCAPES.search(item):
        item = item.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if separator in item or _QUOTE in item or item == NULL:
        return _QUOTE + item.replace(_QUOTE, _QUOTE * 2) + _QUOTE
    return item


def read_line(text: str, separator: str) -> list[str | None]:
    """Return the values of a line.

    Raises:
        InvalidInputError: a quote is not closed, or stands where none may.
    """
    return [None if field == NULL and not is_quoted else value(field) for field, is_quoted in _fields(text, separator)]


def value(field: str) -> str:
    """Return the value of a field whose quotes are gone, as any reader of CSV gives it."""
    return _LOOKS_ESCAPED.sub(lambda found: _MEANS[found[0]], field)


def _fields(text: str, separator: str) -> Iterator[tuple[str, bool]]:
    plain = re.compile(rf"[^{re.escape(separator)}\"]*")
    quoted = re.compile(r'"((?:[^"]|"")*)"')
    at = 0
    while True:
        pattern = quoted if text.startswith(_QUOTE, at) else plain
        found = pattern.match(text, at)
        if found is None or (found.end() < len(text) and text[found.end()] != separator):
            raise InvalidInputError(f"CSV line @{at}: expected a field and {separator!r}, got {text[at : at + 40]!r}")
        yield (found[1].replace(_QUOTE * 2, _QUOTE), True) if pattern is quoted else (found[0], False)
        at = found.end() + 1
        if at > len(text):
            return
