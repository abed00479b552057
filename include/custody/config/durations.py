"""Spans of time as people write them: `7 days`, `90 minutes`, `5 years`."""

from __future__ import annotations

import re

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
