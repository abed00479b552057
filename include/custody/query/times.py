"""Times in queries: ISO 8601, milliseconds since the epoch, and English such as `yesterday` or `3 hours ago`.

A text means a span: a day, a week, a month or a year is all of it, any other time a single millisecond. Times without
a zone are UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING

from custody.errors import InvalidInputError

if TYPE_CHECKING:
    from whoosh.qparser.dateparse import English

_DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECONDS = re.compile(r"-?[0-9]{9,40}")  # eight digits are a day
_ISO_DAY = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-?W\d{2}-?\d")
_ISO_WEEK = re.compile(r"\d{4}-?W\d{2}")
_ISO_MONTH = re.compile(r"(\d{4})(?:-(\d{2}))?")
_WEEK_DAYS = 7
_AGO = re.compile(r"(\d+\s*[a-z]+(?:\s+\d+\s*[a-z]+)*)\s+ago")

TimeSpan = tuple[int, int]


def time_span(text: str, now_ms: int) -> TimeSpan:
    """Return the first and the last millisecond of what a text means; relative ones count from `now_ms`, days are UTC.

    Raises:
        InvalidInputError: it means no time.
    """
    if (month := _ISO_MONTH.fullmatch(text)) is not None:
        return _months(text, int(month[1]), month[2])
    days = 1 if _ISO_DAY.fullmatch(text) else _WEEK_DAYS if _ISO_WEEK.fullmatch(text) else None
    if days is not None:
        first = parse_time(text)
        return first, first + days * _DAY_MS - 1
    try:
        moment = parse_time(text)
    except InvalidInputError:
        # ISO 8601 first, as it is exact; English only for what is not ISO.
        span = _english(text, now_ms)
        if span is None:
            raise
        return span
    return moment, moment


def _months(text: str, year: int, month: str | None) -> TimeSpan:
    """Return the span of a month, or of a year where none is given."""
    try:
        first = datetime(year, int(month or 1), 1, tzinfo=UTC)
        last = datetime(year + (month in (None, "12")), int(month or 12) % 12 + 1, 1, tzinfo=UTC)
    except ValueError as error:
        raise InvalidInputError(f"time {text!r}: expected a year such as 2026 or a month such as 2026-01.") from error
    return _ms(first), _ms(last) - 1


def parse_time(text: str) -> int:
    """Return milliseconds since the epoch of an ISO 8601 date or time (UTC where no zone is given) or of a number.

    Raises:
        InvalidInputError: it is neither.
    """
    if _MILLISECONDS.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInputError(
            f"time {text!r}: expected ISO 8601, such as 2026-01-31 or 2026-01-31T09:30:00, ms since the epoch, "
            "or English, such as yesterday, '3 hours ago' or '5 march 2026'."
        ) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    # In whole numbers: a float of seconds would be off by a millisecond.
    return (moment - _EPOCH) // timedelta(milliseconds=1)


@cache
def _english_parser() -> English:
    # Imported by who asks in English: it takes as long as reading an event, and every command may be given times.
    from whoosh.qparser.dateparse import English

    return English()


def _english(text: str, now_ms: int) -> TimeSpan | None:
    from whoosh.util.times import adatetime, timespan

    phrase = text.strip().lower()
    ago = _AGO.fullmatch(phrase)
    # Whoosh's parser computes with times without a zone; here they all mean UTC.
    now = (_EPOCH + timedelta(milliseconds=now_ms)).replace(tzinfo=None)
    try:
        date = _english_parser().date_from(f"-{ago[1]}" if ago else phrase, now)
        if isinstance(date, adatetime | timespan):
            date = date.disambiguated(now)
    # Whoosh's parser raises any of these for texts that are no times; the caller then reports the text.
    except (ValueError, OverflowError, TypeError, AttributeError):
        return None
    if isinstance(date, datetime):
        return _ms(date), _ms(date)
    if isinstance(date, timespan) and isinstance(date.start, datetime) and isinstance(date.end, datetime):
        return _ms(date.start), _ms(date.end)
    return None


def _ms(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - _EPOCH) // timedelta(milliseconds=1)
