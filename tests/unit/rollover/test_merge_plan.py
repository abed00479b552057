"""The choice of groups that are merged together: small neighbours, never over a gap, each group once."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from custody.journal import Group
from custody.rollover.merge import plan_units


def planned(sizes: list[int], most: int) -> list[list[int]]:
    """Plan groups with these journal sizes (-1: not to be rolled over); groups are told by their places."""
    groups = [Group("main", place, (Path(f"{place}.sealed"),), ()) for place in range(len(sizes))]
    return [
        [group.first_event_id for group in unit]
        for unit in plan_units(groups, lambda group: sizes[group.first_event_id], most)
    ]


def test_small_neighbours_are_merged_and_large_groups_are_not() -> None:
    assert planned([3, 3, 3, 3, 20, 1, 9, 2], 10) == [[0, 1, 2], [3], [4], [5, 6], [7]]


def test_no_unit_reaches_over_a_group_that_is_live_or_open() -> None:
    assert planned([1, -1, 1, 1, -1], 10) == [[0], [2, 3]]
    assert planned([-1, -1], 10) == []


def test_no_unit_reaches_over_a_group_that_is_done_and_swept() -> None:
    groups = [Group("main", first, (Path(f"{first}.sealed"),), ()) for first in (0, 7, 20, 30)]
    units = plan_units(groups, lambda _: 1, 10, finished={3, 4, 7, 35})
    firsts = [[group.first_event_id for group in unit] for unit in units]
    assert firsts == [[0], [7, 20, 30]]


@given(st.lists(st.integers(-1, 12), max_size=12), st.integers(1, 20))
def test_every_group_is_in_one_unit_and_units_cannot_be_joined(sizes: list[int], most: int) -> None:
    units = planned(sizes, most)
    assert [place for unit in units for place in unit] == [place for place, size in enumerate(sizes) if size >= 0]
    for unit in units:
        assert unit == list(range(unit[0], unit[-1] + 1))
        assert sum(sizes[place] for place in unit) <= most or len(unit) == 1
    for first, second in pairwise(units):
        if first[-1] + 1 == second[0]:
            assert sum(sizes[place] for place in first) + sizes[second[0]] > most
