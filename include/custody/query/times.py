"""Times as people write them: ISO 8601, milliseconds, and English such as `yesterday` or `3 hours ago`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from whoosh.qparser.dateparse import English
from whoosh.util.times import adatetime, timespan

from custody.errors import InvalidInputError
from custody.index import parse_time

_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-?W\d{2}-?\d")
_ISO_WEEK = re.compile(r"\d{4}-?W\d{2}")
_WEEK_DAYS = 7
_AGO = re.compile(r"(\d+\s*[a-z]+(?:\s+\d+\s*[a-z]+)*)\s+ago")
_ENGLISH = English()

Span = tuple[int, int]


def time_span(text: str, now_ms: int) -> Span:
    """Return the first and the last millisecond of what a text means; relative ones count from `now_ms`, days are UTC.

    Raises:
        InvalidInputError: it means no time.
    """
    days = 1 if _ISO_DAY.fullmatch(text) else _WEEK_DAYS if _ISO_WEEK.fullmatch(text) else None
    if days is not None:
        first = parse_time(text)
        return first, first + days * _DAY_MS - 1
    try:
        moment = parse_time(text)
    except InvalidInputError:
        span = _english(text, now_ms)
        if span is None:
            raise
        return span
    return moment, moment


def _english(text: str, now_ms: int) -> Span | None:
    words = text.strip().lower()
    ago = _AGO.fullmatch(words)
    now = (_EPOCH + timedelta(milliseconds=now_ms)).replace(tzinfo=None)
    try:
        found = _ENGLISH.date_from(f"-{ago[1]}" if ago else words, now)
        if isinstance(found, adatetime | timespan):
            found = found.disambiguated(now)
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None
    if isinstance(found, datetime):
        return _ms(found), _ms(found)
    if isinstance(found, timespan) and isinstance(found.start, datetime) and isinstance(found.end, datetime):
        return _ms(found.start), _ms(found.end)
    return None


def _ms(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
