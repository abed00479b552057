"""Times in columns: they are those of each text, and texts those of each time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from custody.capture.time_columns import iso_times, time_texts
from custody.capture.values import format_time, parse_iso
from custody.errors import InvalidInputError


@given(times=st.lists(st.integers(0, 253_402_300_799_999), max_size=30))
@example(times=[0, 951_782_400_000, 951_868_800_000 - 1, 4_107_542_400_000 - 1, 253_402_300_799_999])
def test_the_texts_of_many_times_are_those_of_each(times: list[int]) -> None:
    assert time_texts(np.array(times, np.int64)).tobytes().decode() == "".join(str(format_time(time)) for time in times)


def _parsed(text: str) -> int | None:
    try:
        return parse_iso("", text)
    except InvalidInputError:
        return None


def _compare(texts: list[str]) -> list[int | None]:
    # Behind others, as a column that is a part of another one begins.
    column = pa.array(["before", *texts], pa.string()).slice(1)
    times, is_time = iso_times(column)
    found = [time if is_one else None for time, is_one in zip(times.tolist(), is_time.tolist(), strict=True)]
    assert found == [_parsed(text) for text in texts]
    return found


@pytest.mark.parametrize(
    "text",
    [
        *(
            "2026-03-04T05:06:07Z",
            "2026-03-04T05:06:07.089Z",
            "2026-03-04T05:06:07.089123+00:00",
            "2024-02-29T00:00:00Z",
        ),
        *("2026-03-04T05:06:07.5Z", "2026-03-04T05:06:07.089", "2026-03-04T05:06Z", "2026-03-04 05:06:07.089Z"),
        *("2026-03-04T05:06:07.089123456Z", "2026-03-04T05:06:07.0891234567Z", "2026-03-04T05:06:07.089+02:00"),
        *("2026-02-30T05:06:07Z", "2026-13-01T05:06:07Z", "2026-00-01T05:06:07Z", "2026-01-00T05:06:07Z"),
        *("2026-03-04T24:00:00Z", "2026-03-04T05:60:00Z", "2026-03-04T23:59:60Z", "1969-12-31T23:59:59.999Z"),
        *(
            "2026-03-04T05:06:07.08xZ",
            "2026-03-04T05:06:07.089x23Z",
            "2026-03-04T05:06:07.0891/3Z",
            "",
            "Z",
            "yesterday",
        ),
        *("2026-03-04T05:06:07.089z", "2026-03-04T05:06:07,089Z", "0000-03-04T05:06:07Z", "9999-12-31T23:59:59.999Z"),
        *("2026-03-04T05:06:07.08\u00e9", "\u0662026-03-04T05:06:07Z", "2026-03-04T05:06:07.089+00:0x"),
    ],
)
def test_a_time_of_any_form_between_usual_ones_is_what_it_is_alone(text: str) -> None:
    _compare([text, "2026-03-04T05:06:07.089Z", text, "2026-03-04T05:06:08Z"])


def test_no_texts_have_no_times() -> None:
    assert _compare([]) == []


_TIME = st.builds(lambda moment, zone: moment.isoformat() + zone, st.datetimes(), st.sampled_from(["Z", "+00:00", ""]))
_LIKE_A_TIME = st.from_regex(r"20\d\d-[01]\d-[0-3]\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)?", fullmatch=True)


@given(texts=st.lists(_TIME | _LIKE_A_TIME))
def test_the_times_of_many_texts_are_those_of_each(texts: list[str]) -> None:
    _compare(texts)
