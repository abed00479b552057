"""Numbers that were added in any batches are found as in a dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from custody.ingest.dedup import SortedRuns

NUMBERS = st.integers(0, 30) | st.integers(0, (1 << 63) - 1)


@given(st.lists(st.lists(st.tuples(NUMBERS, st.integers(0, 1000)), max_size=8), max_size=12), st.lists(NUMBERS))
def test_the_newest_value_of_a_number_is_found(batches: list[list[tuple[int, int]]], wanted: list[int]) -> None:
    runs, known = SortedRuns(), dict[int, int]()
    for batch in batches:
        runs.add([number for number, _ in batch], [value for _, value in batch])
        known.update(batch)
        asked = [*wanted, *known]
        assert runs.find(asked) == {number: known[number] for number in asked if number in known}
