"""Parts of a date in the name of a folder, as `strftime` writes them.

Spans of time as people write them: `7 days`, `90 minutes`, `5 years`.

Where a store lies: a folder of this machine, as a path or as `file://`, or the URL of an object store.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePath
from urllib.parse import unquote, urlsplit

from custody.errors import ConfigurationError

_PART = re.compile(r"%.?")
_KNOWN = ("%Y", "%m", "%d", "%j", "%H", "%M")


def date_parts(template: str) -> list[str]:
    """Return the parts of a date in a template, in its order.

    Raises:
        ValueError: it has another part, or a part without the larger ones that it belongs to.
    """
    parts = _PART.findall(template)
    unknown = [part for part in parts if part not in _KNOWN]
    if unknown:
        raise ValueError(f"{unknown[0]!r} is no part of a date that is known here; expected {', '.join(_KNOWN)}")
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
    "second": _SECOND_MS,
    "minute": 60 * _SECOND_MS,
    "hour": 3600 * _SECOND_MS,
    "day": 86_400 * _SECOND_MS,
    "week": 7 * 86_400 * _SECOND_MS,
    "year": 365 * 86_400 * _SECOND_MS,
}
_SPAN = re.compile(rf"(\d{{1,9}})\s*({'|'.join(_UNITS_MS)})s?")


def span_ms(text: str) -> int:
    """Return a span of time in ms; a year has 365 days.

    Raises:
        ValueError: it is none.
    """
    found = _SPAN.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"expected a span of time such as '30 days' ({', '.join(_UNITS_MS)}), got {text!r}")
    return int(found[1]) * _UNITS_MS[found[2]]


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
