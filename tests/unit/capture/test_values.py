"""The text of a time says what its number says, whatever the number is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import example, given
from hypothesis import strategies as st

from custody.capture.values import format_time


@given(st.integers(-(10**14), 3 * 10**14) | st.integers() | st.booleans())
@example(-1)
@example(-62_135_596_800_000)
@example(-62_135_596_800_001)
@example(253_402_300_800_000)
def test_the_text_of_a_time_is_that_of_its_date_and_clock(milliseconds: int) -> None:
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=milliseconds)
    except OverflowError:
        assert format_time(milliseconds) is None
    else:
        assert format_time(milliseconds) == moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
