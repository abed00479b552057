"""Readers of decoded JSON values: texts, numbers, arrays, objects, and times.

Each takes the key of its value, so that the message about a wrong one names it. Times are ISO 8601, or as NiFi's
interface shows them, and become milliseconds since the epoch, UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from custody.errors import InvalidInputError

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ISO = re.compile(r"(\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))? ?(Z|z|[+-]\d\d:?\d\d)?")
_SHOWN = re.compile(
    r"(\d\d)/(\d\d)/(\d{4}) (\d\d):(\d\d):(\d\d)(?:\.(\d{3}))? (?:(?:UTC|GMT)?([+-]\d\d:?\d\d)|([A-Za-z]{1,5}))"
)
# Letters that Java shows for one offset alone, by minutes ahead of UTC.
_OFFSETS = {
    0: "Z UTC GMT WET",
    60: "WEST CET MET WAT",
    120: "CEST MEST EET SAST",
    180: "EEST EAT",
    300: "PKT",
    480: "SGT HKT AWST",
    540: "JST",
    570: "ACST",
    600: "AEST",
    630: "ACDT",
    660: "AEDT",
    720: "NZST",
    780: "NZDT",
    -150: "NDT",
    -240: "EDT",
    -300: "EST",
    -360: "MDT",
    -420: "MST PDT",
    -480: "AKDT",
    -540: "AKST",
    -600: "HST",
}
_LETTERS = {name: minutes for minutes, names in _OFFSETS.items() for name in names.split()}


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


def parse_shown(key: str, text: str, zone: str | None = None) -> int:
    """Return the time that NiFi shows as `01/31/2026 09:30:00.000 UTC`, with an offset or the letters of a zone.

    `zone` is that of the server's clock. It decides where letters, such as CST, stand for several zones.

    Raises:
        InvalidInputError: it is no time, or its letters stand for several zones and `zone` is none of them.
    """
    match = _SHOWN.fullmatch(text)
    letters = None
    try:
        if match:
            month, day, year, hour, minute, second, digits, offset, letters = match.groups()
            local = f"{year}-{month}-{day}T{hour}:{minute}:{second}"
            if offset is not None:
                moment: datetime | None = datetime.fromisoformat(local + offset)
            elif letters in _LETTERS:
                moment = datetime.fromisoformat(local).replace(tzinfo=timezone(timedelta(minutes=_LETTERS[letters])))
            else:
                moment = _moment_of_letters(local, letters, zone)
            if moment is not None:
                return _milliseconds(moment) + int(digits or 0)
    except (ValueError, OverflowError):
        letters = None
    if letters is None:
        expected = "a time such as 01/31/2026 09:30:00.000 UTC"
    elif zone is None:
        expected = "an offset, or letters of one zone alone. Name the zone of the server's clock by capture.nifi_zone"
    else:
        expected = f"letters of {zone} (capture.nifi_zone) at that time"
    raise InvalidInputError(f"{key}: expected {expected}; got {text[:40]!r}")


def _moment_of_letters(local: str, letters: str, zone: str | None) -> datetime | None:
    """Return a time of the clock of a zone; None where its letters are not those of the zone at that time."""
    if zone is None:
        return None
    shown = datetime.fromisoformat(local).replace(tzinfo=ZoneInfo(zone))
    # An hour that the clock shows twice has two names.
    for moment in (shown, shown.replace(fold=1)):
        if moment.tzname() == letters:
            return moment
    # Of zones without letters in the database, such as Asia/Dubai, Java has some.
    return None if (shown.tzname() or "").isalpha() else shown


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
