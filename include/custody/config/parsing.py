"""Texts that settings and options have in common, and how they are read.

Spans of time (`90s`, `24h`, `30 days`), the parts of a date in a folder's name (`%Y-%m-%d`), and the location of a
store: a folder of this machine, as a path or as `file://`, or the URL of an object store.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from custody.errors import ConfigurationError

_DATE_PART = re.compile(r"%.?")
_KNOWN_DATE_PARTS = ("%Y", "%m", "%d", "%j", "%H", "%M")


def date_parts(template: str) -> list[str]:
    """Return the parts of a date in a template, in its order.

    Raises:
        ValueError: it has another part, or a part without the larger ones that it belongs to.
    """
    parts = _DATE_PART.findall(template)
    unknown = [part for part in parts if part not in _KNOWN_DATE_PARTS]
    if unknown:
        expected = ", ".join(_KNOWN_DATE_PARTS)
        raise ValueError(f"{unknown[0]!r} is not a known part of a date; expected {expected}")
    has = set(parts)
    is_day = bool(has & {"%d", "%j"})
    if ("%M" in has and "%H" not in has) or ("%H" in has and not is_day) or ("%d" in has and "%m" not in has):
        raise ValueError("a smaller part of a date without the larger one: hours need days, days need months")
    if has and "%Y" not in has:
        raise ValueError("parts of a date without the year, %Y")
    if ".." in PurePath(template).parts:
        raise ValueError("a folder must not lead upwards")
    return parts


_SECOND_MS = 1000
_UNITS_MS = {
    "ms": 1,
    "s": _SECOND_MS,
    "m": 60 * _SECOND_MS,
    "h": 3600 * _SECOND_MS,
    "d": 86_400 * _SECOND_MS,
    "w": 7 * 86_400 * _SECOND_MS,
    "y": 365 * 86_400 * _SECOND_MS,
}
_UNIT_WORDS = {"second": "s", "minute": "m", "hour": "h", "day": "d", "week": "w", "year": "y"}
_DURATION = re.compile(rf"(\d{{1,9}})\s*(?:({'|'.join(_UNITS_MS)})|({'|'.join(_UNIT_WORDS)})s?)")


def duration_ms(text: str) -> int:
    """Return a span of time in milliseconds: a number and a unit, as a letter or a word; a year has 365 days.

    The one language for spans of time, in the settings as on the command line.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"expected a span of time such as 90s, 24h, 7d or '30 days', got {text!r}")
    number, letter, word = match.groups()
    return int(number) * _UNITS_MS[letter or _UNIT_WORDS[word]]


def is_local(location: str) -> bool:
    """Whether a location is a folder of this machine."""
    return "://" not in location or location.startswith("file://")


def local_folder(location: str) -> Path:
    """Return the folder of a local location; a relative path stays relative.

    Raises:
        ConfigurationError: it is a URL of another kind, or a `file://` URL of another machine.
    """
    if "://" not in location:
        return Path(location)
    parts = urlsplit(location)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not parts.path:
        raise ConfigurationError(f"store {location!r}: expected a folder of this machine: a path or file:///folder.")
    return Path(unquote(parts.path))
