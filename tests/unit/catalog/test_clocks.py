"""Clocks that are ahead or go back: stamps only go up, and a time that does not tell what was there is named."""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from custody.catalog import Catalog, prune, verify
from custody.clock import ManualClock
from custody.errors import NotFoundError
from tests.unit.catalog.catalogs import START_MS, add, open_catalog

DAY_MS = 86_400_000


def commit(catalog: Catalog, clock: ManualClock, at_ms: int, number: int) -> None:
    clock.advance(at_ms - clock.now_ms())
    catalog.commit([add(f"{number}.parquet", number)], next_event_id=number + 1)


def opened(root: Path) -> tuple[Catalog, ManualClock]:
    clock = ManualClock(START_MS)
    return open_catalog(root, clock), clock


def test_a_commit_by_a_clock_that_is_ahead_is_named_until_and_after_its_time(tmp_path: Path) -> None:
    catalog, clock = opened(tmp_path)
    times = [START_MS, START_MS + 365 * DAY_MS, START_MS + 2000, START_MS + 4000]
    for number, at_ms in enumerate(times):
        commit(catalog, clock, at_ms, number)
    for now_ms in (START_MS + 5000, START_MS + 800 * DAY_MS):
        clock.advance(now_ms - clock.now_ms())
        for asked_ms in (START_MS, START_MS + 3000, START_MS + 300 * DAY_MS):
            found = catalog.uncertain_times(asked_ms)
            assert found is not None
            assert (found.first, found.last) == (1, 3)
            assert "revisions 1 to 3" in str(found)
        assert catalog.uncertain_times(START_MS - 1) is None
        assert catalog.uncertain_times(START_MS + 366 * DAY_MS) is None
        assert catalog.uncertain_now() is not None


def test_before_anybody_else_commits_the_clock_of_who_asks_tells(tmp_path: Path) -> None:
    catalog, clock = opened(tmp_path)
    commit(catalog, clock, START_MS, 0)
    commit(catalog, clock, START_MS + DAY_MS, 1)
    clock.advance(5000 - DAY_MS)
    assert catalog.uncertain_times(START_MS + 4000) is not None
    assert catalog.uncertain_now() is not None
    clock.advance(2 * DAY_MS)
    assert catalog.uncertain_now() is None


@pytest.mark.parametrize("step", [1, 5000])
def test_clocks_that_agree_are_never_named(tmp_path: Path, step: int) -> None:
    catalog, clock = opened(tmp_path)
    for number in range(10):
        # Machines differ by a little.
        commit(catalog, clock, START_MS + number * step - 400 * (number % 2), number)
    clock.advance(1000)
    assert catalog.load().behind.first == 0
    assert all(catalog.uncertain_times(START_MS + offset) is None for offset in range(0, 60_000, 777))


def test_a_checkpoint_and_a_prune_keep_what_is_known_of_clocks(tmp_path: Path) -> None:
    catalog, clock = opened(tmp_path)
    for number, at_ms in enumerate([START_MS, START_MS + DAY_MS, START_MS + 2000, START_MS + 4000]):
        commit(catalog, clock, at_ms, number)
        if number == 2:
            catalog.write_checkpoint()
    behind = catalog.load().behind
    assert behind == (2, 3, START_MS + 2000)
    assert open_catalog(tmp_path, clock).load().behind == behind
    assert verify(catalog, files=False).defects == []
    for number in (4, 5):
        commit(catalog, clock, START_MS + number * DAY_MS, number)
        catalog.write_checkpoint()
    assert prune(catalog, 2).floor == 2
    fresh = open_catalog(tmp_path, clock)
    assert fresh.load().behind == behind
    assert fresh.uncertain_times(START_MS + DAY_MS) is not None
    assert fresh.uncertain_times(START_MS + 2 * DAY_MS) is None
    assert fresh.uncertain_now() is not None


COMMITS = st.lists(
    st.tuples(st.integers(1, 20_000), st.sampled_from([0, 0, 0, 3000, 50_000, 400_000])), min_size=1, max_size=12
)


@settings(max_examples=60, deadline=None)
@given(COMMITS, st.lists(st.integers(0, 500_000), min_size=1, max_size=8))
def test_a_time_finds_what_was_there_or_is_named(commits: list[tuple[int, int]], asked: list[int]) -> None:
    """Clocks are right, or ahead by so much; who asks has a clock that is right."""
    with TemporaryDirectory() as folder:
        catalog, clock = opened(Path(folder))
        true_ms, truth, clocks = START_MS, list[int](), list[int]()
        for number, (gap, error) in enumerate(commits):
            true_ms += gap
            truth.append(true_ms)
            clocks.append(true_ms + error)
            commit(catalog, clock, true_ms + error, number)
        stamps = [each.commit_time_ms for each in catalog.timeline(0, len(commits) - 1)]
        now_ms = true_ms + 1
        clock.advance(now_ms - clock.now_ms())
        for moment in (min(START_MS + offset, now_ms) for offset in asked):
            try:
                found = catalog.revision_at(moment)
            except NotFoundError:
                found = -1
            should = bisect_right(truth, moment) - 1
            assert found <= should
            # Whether a clock that was read later says that the first one that is lacking was stamped ahead.
            if found < should and min([*clocks[found + 2 :], now_ms]) < stamps[found + 1] - 2000:
                assert catalog.uncertain_times(moment) is not None, (moment, found, should, stamps, truth, clocks)
