"""Parts of a date in the name of a folder, as `strftime` writes them."""

from __future__ import annotations

import re
from pathlib import PurePath

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
