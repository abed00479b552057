"""Readers of decoded JSON values: texts, numbers, arrays, objects, and times.

Each takes the key of its value, so that the message about a wrong one names it. Times are ISO 8601, or as NiFi's
interface shows them, and become milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache

import msgspec

from custody.errors import InvalidInputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))? ?(Z|z|[+-]\d\d:?\d\d)?")
_SHOWN = re.compile(r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:\.(\d{3}))? (Z|UTC|(?:UTC|GMT)?[+-]\d\d:?\d\d|GMT)")


def format_time(milliseconds: object) -> str | None:
    """Return NiFi's text form of a time, `2026-01-31T09:30:00.000Z`; None for a value that is no time."""
    if not isinstance(milliseconds, int):
        return None
    try:
        return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"
    except OverflowError:
        return None


# Events of one second come together.
@lru_cache(maxsize=1 << 10)
def _second(seconds: int) -> str:
    """Return a time without its milliseconds, `2026-01-31T09:30:00`; raises OverflowError."""
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


def parse_iso(key: str, text: str) -> int:
    """Return the time of an ISO 8601 text, UTC where it names no zone; digits beyond milliseconds are dropped.

    Raises:
        InvalidInputError: it is no time; the message names the key.
    """
    match = _ISO.fullmatch(text)
    try:
        if match:
            seconds, digits, zone = match.groups()
            zone = "+00:00" if zone in (None, "Z", "z") else zone
            return _moment(seconds + zone) + int(((digits or "") + "000")[:3])
    # The form is right and the date is none, such as February 30: the error below says so, too.
    except (ValueError, OverflowError):
        pass
    raise InvalidInputError(f"{key}: expected a time such as 2026-01-31T09:30:00.000Z, got {text[:40]!r}")


def parse_shown(key: str, text: str) -> int:
    """Return the time that NiFi shows as `01/31/2026 09:30:00.000 UTC`, in UTC, GMT or with an offset.

    Raises:
        InvalidInputError: it is no time, or names a zone by letters that mean several zones, such as CST.
    """
    match = _SHOWN.fullmatch(text)
    try:
        if match:
            month, day, year, hour, minute, second, digits, zone = match.groups()
            zone = zone.removeprefix("UTC").removeprefix("GMT").removeprefix("Z") or "+00:00"
            moment = datetime.fromisoformat(f"{year}-{month}-{day}T{hour}:{minute}:{second}{zone}")
            return _milliseconds(moment) + int(digits or 0)
    except (ValueError, OverflowError):
        pass
    raise InvalidInputError(
        f"{key}: expected a time such as 01/31/2026 09:30:00.000 UTC (UTC, GMT or an offset), got {text[:40]!r}"
    )


# Events of one second come together.
@lru_cache(maxsize=1 << 10)
def _moment(text: str) -> int:
    """Return the milliseconds of an ISO 8601 time with a zone; raises ValueError, OverflowError."""
    return _milliseconds(datetime.fromisoformat(text))


def _milliseconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(milliseconds=1)


Document = Mapping[str, object]


def text(key: str, value: object) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise wrong(key, "text", value)
    return value


def integer(key: str, value: object) -> int:
    """Return a whole number; JSON may write it with a point."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    # To Python a bool is an int, to JSON it is not.
    if isinstance(value, bool) or not isinstance(value, int):
        raise wrong(key, "a whole number", value)
    return value


def texts(key: str, value: object) -> tuple[str, ...]:
    """Return an array of texts."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise wrong(key, "an array of texts", value)
    return tuple(value)


def mapping(key: str, value: object) -> Document:
    """Return an object."""
    if not isinstance(value, dict):
        raise wrong(key, "an object", value)
    return value


def mappings(key: str, value: object) -> list[Document]:
    """Return an array of objects."""
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise wrong(key, "an array of objects", value)
    return value


def attributes(key: str, value: object) -> dict[str, str | None]:
    """Return an object of texts and nulls."""
    document = mapping(key, value)
    for name, item in document.items():
        if item is not None and not isinstance(item, str):
            # Without the value: it may be one that is kept from whoever reads messages.
            raise InvalidInputError(
                f"{key}: expected an object whose values are texts or null, got another value of {name[:80]!r}"
            )
    return dict(document)  # type: ignore[arg-type]


def require(document: Document, *keys: str) -> None:
    """Raise InvalidInputError for the first of the keys that has no value."""
    for key in keys:
        if document.get(key) is None:
            raise InvalidInputError(f"{key}: expected a value, got {'null' if key in document else 'no key'}")


def wrong(key: str, expected: str, value: object) -> InvalidInputError:
    """Return the error for a value of the wrong kind."""
    shown = msgspec.json.encode(value)[:80].decode("utf-8", "replace")
    return InvalidInputError(f"{key}: expected {expected}, got {shown}")
