"""Days in a zone: as the standard library counts them, time by time, also where a clock changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from custody.errors import InvalidInputError
from custody.index import UTC_DAYS, Days, day_name

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR = 3_600_000
ZONES = ["Asia/Kolkata", "America/St_Johns", "Europe/Berlin", "Pacific/Apia", "Australia/Lord_Howe"]


def _ms(text: str) -> int:
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(milliseconds=1)


@pytest.mark.parametrize("zone", ZONES)
def test_days_are_those_of_the_standard_library(zone: str) -> None:
    # Every quarter of an hour of a year, and the milliseconds around; Apia went without 2011-12-30.
    start = _ms("2011-01-01T00:00:00+00:00")
    quarters = start + np.arange(370 * 96, dtype=np.int64) * (HOUR // 4)
    times = np.concatenate([quarters, quarters - 1, quarters + 1])
    named = [str((EPOCH + timedelta(milliseconds=time)).astimezone(ZoneInfo(zone)).date()) for time in times.tolist()]
    assert [day_name(day) for day in Days(zone).of(times).tolist()] == named


def test_a_day_of_a_changed_clock_has_its_own_length() -> None:
    first = _ms("2026-03-08T00:00:00-03:30")
    hours = first + np.arange(48, dtype=np.int64) * HOUR
    days = [day_name(day) for day in Days("America/St_Johns").of(hours).tolist()]
    assert (days.count("2026-03-08"), days.count("2026-03-09")) == (23, 24)


def test_times_that_no_calendar_has_are_counted_in_utc() -> None:
    times = np.array([-(1 << 61), 1 << 61], np.int64)
    assert Days("Asia/Kolkata").of(times).tolist() == UTC_DAYS.of(times).tolist()


@pytest.mark.parametrize("zone", ["Nowhere/There", "../../etc/passwd", "America", "", "/etc/localtime", "a\0b"])
def test_a_zone_that_is_not_known_is_refused(zone: str) -> None:
    with pytest.raises(InvalidInputError, match="Asia/Kolkata"):
        Days(zone)
