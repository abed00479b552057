"""Calendar days of times: those of UTC, or those of a zone, where a day of a changed clock is shorter or longer."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import numpy as np
import numpy.typing as npt

from custody.errors import InvalidInputError

DAY_MS = 86_400_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Those that a calendar has, with a day at both ends for the offset.
_FIRST_DAY, _LAST_DAY = -719_160, 2_932_894

Times = npt.NDArray[np.int64]
"""Times in ms since the epoch."""


class Days:
    """Says on which day each of some times is.

    Args:
        zone: a name of the IANA database, such as `Asia/Kolkata`; UTC without one.

    Raises:
        InvalidInputError: this machine knows no such zone.
    """

    def __init__(self, zone: str | None = None) -> None:
        self._zone = None if zone in (None, "UTC") else _zone_of(zone)

    def of(self, times: Times) -> Times:
        """Return the days, counted from 1970-01-01; of a year that no calendar has, the days of UTC."""
        days = times // DAY_MS
        if self._zone is None or not len(times):
            return days
        distinct, which = np.unique(days, return_inverse=True)
        spans = [_offsets_of(self._zone, day) for day in distinct.tolist()]
        # The clock changes within a day at most once: before that moment the first offset counts.
        former, change, later = (np.array(column, np.int64)[which] for column in zip(*spans, strict=True))
        return (times + np.where(times < change, former, later)) // DAY_MS


UTC_DAYS = Days()


def day_name(day: int) -> str:
    """Return a day, counted from 1970-01-01, as YYYY-MM-DD."""
    return str(np.datetime64(day, "D"))


def _zone_of(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    # A name may be a path out of the database, or one of a folder in it.
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInputError(
            f"zone {name[:80]!r}: expected a name such as Asia/Kolkata that is known here."
        ) from None


@lru_cache(maxsize=20_000)
def _offsets_of(zone: ZoneInfo, day: int) -> tuple[int, int, int]:
    """Return the offset at the beginning of a day of UTC, when it changes within that day, and the one after; in ms."""
    if not _FIRST_DAY <= day <= _LAST_DAY:
        return 0, 0, 0
    start = day * DAY_MS
    former, later = _offset(zone, start), _offset(zone, start + DAY_MS - 1)
    if former == later:
        return former, start, later
    low, high = start, start + DAY_MS - 1
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == former else (low, middle)
    return former, high, later


def _offset(zone: ZoneInfo, time_ms: int) -> int:
    offset = (_EPOCH + timedelta(milliseconds=time_ms)).astimezone(zone).utcoffset()
    return 0 if offset is None else offset // timedelta(milliseconds=1)
