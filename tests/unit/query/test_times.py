"""Times in queries: what ISO 8601 writes is what the index compares, to the millisecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.query.times import parse_time

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@example(139_260_791_064_097)  # seconds as a float would lose its last millisecond
@given(st.integers(0, 253_402_300_799_999))
def test_an_iso_time_keeps_its_milliseconds(milliseconds: int) -> None:
    moment = EPOCH + timedelta(milliseconds=milliseconds)
    assert parse_time(moment.isoformat(timespec="milliseconds")) == milliseconds
    assert parse_time(moment.isoformat().replace("+00:00", "Z")) == milliseconds
    assert parse_time(moment.replace(tzinfo=None).isoformat(" ")) == milliseconds


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("1970-01-01", 0),
        ("19700102", 86_400_000),
        ("1970-01-01T01:00+01:00", 0),
        ("1969-12-31T23:59:59.999Z", -1),
        ("1772409600000", 1_772_409_600_000),
        ("-1772409600000", -1_772_409_600_000),
    ],
)
def test_dates_zones_and_plain_milliseconds_are_read(text: str, milliseconds: int) -> None:
    assert parse_time(text) == milliseconds


@pytest.mark.parametrize("text", ["", "yesterday", "2026-02-30", "12", "2026-01-01T25:00", "1e12"])
def test_what_is_no_time_is_named(text: str) -> None:
    with pytest.raises(InvalidInputError, match=f"time '{text}'"):
        parse_time(text)
