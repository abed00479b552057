"""Remnants of tombstones: which of a source's numbers were erased, as runs, and which groups."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from custody.catalog import (
    AddTombstone,
    SourceKeys,
    erased_among,
    is_remnant,
    live_groups,
    may_match,
    merged_remnant,
    source_keys,
    visible,
)
from custody.catalog.state import EMPTY
from custody.catalog.tombstones import check_tombstone
from custody.model import EVENT_SCHEMA
from tests.support import INT64

NUMBERS = st.sets(st.integers(0, 30) | INT64 | st.sampled_from([-(1 << 63), (1 << 63) - 1, (1 << 63) - 2]), max_size=20)


def keys(numbers: set[int], node: str | None = "n", time_ms: int = 7) -> list[SourceKeys]:
    columns = {
        "source_node": pa.array([node] * len(numbers), pa.string()),
        "source_ordinal": pa.array(sorted(numbers, reverse=True), pa.int64()),
        "event_time": pa.array([time_ms] * len(numbers), pa.int64()),
    }
    return source_keys(pa.table(columns))


@given(parts=st.lists(NUMBERS, min_size=1, max_size=4), others=NUMBERS)
def test_exactly_the_erased_numbers_are_found(parts: list[set[int]], others: set[int]) -> None:
    erased = set().union(*parts)
    stones = [AddTombstone(erased=keys(part)) for part in parts]
    asked = sorted(erased | others)
    assert erased_among(stones, "n", asked).keys() == erased
    merged = AddTombstone.FromString(merged_remnant(stones, 1).SerializeToString())
    assert erased_among([merged], "n", asked) == {number: [(7, 7)] for number in erased}
    assert erased_among([merged], "m", asked) == {}


def test_each_run_has_the_times_of_its_events() -> None:
    stones = [AddTombstone(erased=keys({1, 2, 9}, time_ms=50)), AddTombstone(erased=keys({3, 20}, time_ms=80))]
    assert erased_among(stones, "n", [1, 3, 4, 20]) == {1: [(50, 50)], 3: [(80, 80)], 20: [(80, 80)]}
    merged = merged_remnant(stones, 1)
    assert erased_among([merged], "n", [1, 9, 20]) == {1: [(50, 80)], 9: [(50, 50)], 20: [(80, 80)]}
    [lacking] = keys({5})
    del lacking.first_times_ms[:], lacking.last_times_ms[:]
    [(first, last)] = erased_among([AddTombstone(erased=[lacking])], "n", [5])[5]
    assert first < 0 < last


def test_neighbouring_numbers_are_one_run() -> None:
    [key] = keys({1, 2, 3, 7})
    assert (list(key.firsts), list(key.counts)) == ([1, 7], [3, 1])
    [merged] = merged_remnant([AddTombstone(erased=[key]), AddTombstone(erased=keys({4, 5, 6}))], 1).erased
    assert (list(merged.firsts), list(merged.counts)) == ([1], [7])


def test_an_event_without_a_node_has_no_key() -> None:
    assert keys({1, 2}, None) == []


def test_a_remnant_hides_nothing_and_its_groups_count_as_live() -> None:
    stone = check_tombstone(merged_remnant([AddTombstone(erased_groups=[7]), AddTombstone(erased=keys({1}))], 5))
    assert is_remnant(stone)
    assert len(stone.id) == 16
    assert not may_match(stone, 0, 9, 0, 9)
    assert visible([stone], EVENT_SCHEMA.empty_table()).to_pylist() == []
    assert live_groups(replace(EMPTY, tombstones={"x": stone})) == {7}
