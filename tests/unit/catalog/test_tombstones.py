"""Tombstones: which rows they bury, alone and together, and what a commit refuses."""

from __future__ import annotations

import pyarrow as pa
import pytest

from custody.catalog import AddTombstone, Attribute, columns_needed, may_match, visible
from custody.catalog.tombstones import check_tombstone
from custody.errors import InvalidInputError
from custody.model import to_batch
from tests.support import event

EVENTS = [
    event(0, updated_attributes={"filename": "a.csv", "owner": "x"}),
    event(1, previous_attributes={"owner": "x"}, updated_attributes={"owner": "y"}),
    event(2, updated_attributes={"owner": None}),
    event(3),
    event(4, flowfile_uuid=event(0).flowfile_uuid),
]
TABLE = pa.Table.from_batches([to_batch(EVENTS, 100)])
START = EVENTS[0].event_time


def buried(*stones: AddTombstone) -> list[int]:
    return [number for number, seen in enumerate(visible(stones, TABLE).to_pylist()) if not seen]


@pytest.mark.parametrize(
    ("stone", "expected"),
    [
        (AddTombstone(event_ids=[101, 103, 999]), [1, 3]),
        (AddTombstone(flowfile_uuids=[EVENTS[0].flowfile_uuid]), [0, 4]),
        (AddTombstone(from_time_ms=START + 1000, to_time_ms=START + 3000), [1, 2]),
        (AddTombstone(to_time_ms=START + 1), [0]),
        (AddTombstone(attributes=[Attribute(name="owner", value="x")]), [0, 1]),
        (AddTombstone(attributes=[Attribute(name="owner", value="y")]), [1]),
        (AddTombstone(attributes=[Attribute(name="owner", value="x"), Attribute(name="filename", value="a.csv")]), [0]),
        (AddTombstone(attributes=[Attribute(name="owner", value="")]), []),
        (AddTombstone(flowfile_uuids=[EVENTS[0].flowfile_uuid], before_event_id=104), [0]),
        (AddTombstone(event_ids=[100, 101], flowfile_uuids=[EVENTS[0].flowfile_uuid]), [0]),
    ],
)
def test_a_tombstone_buries_the_events_that_meet_all_its_conditions(stone: AddTombstone, expected: list[int]) -> None:
    assert buried(stone) == expected
    needed = columns_needed([stone])
    assert visible([stone], TABLE.select(needed)).to_pylist() == visible([stone], TABLE).to_pylist()
    bounds = (100, 104, START, START + 4000)
    assert may_match(stone, *bounds) or not expected


def test_several_tombstones_bury_what_any_of_them_means() -> None:
    assert buried() == []
    assert buried(AddTombstone(event_ids=[100]), AddTombstone(event_ids=[104])) == [0, 4]
    empty = TABLE.slice(0, 0)
    assert visible([AddTombstone(event_ids=[1])], empty).to_pylist() == []


def test_a_file_outside_a_tombstone_s_bounds_need_not_be_read() -> None:
    assert not may_match(AddTombstone(event_ids=[5]), 6, 9, 0, 9)
    assert may_match(AddTombstone(event_ids=[5, 7]), 6, 9, 0, 9)
    assert not may_match(AddTombstone(from_time_ms=10, to_time_ms=20), 0, 9, 0, 9)
    assert not may_match(AddTombstone(from_time_ms=10, to_time_ms=20), 0, 9, 20, 29)
    assert may_match(AddTombstone(from_time_ms=10, to_time_ms=20), 0, 9, 19, 29)
    assert not may_match(AddTombstone(flowfile_uuids=["a"], before_event_id=6), 6, 9, 0, 9)


@pytest.mark.parametrize(
    "stone",
    [
        AddTombstone(event_ids=[1]),
        AddTombstone(id=b"x" * 16),
        AddTombstone(id=b"x" * 16, before_event_id=7),
        AddTombstone(id=b"x" * 16, from_time_ms=5, to_time_ms=5),
    ],
)
def test_a_tombstone_that_means_nothing_or_everything_is_refused(stone: AddTombstone) -> None:
    with pytest.raises(InvalidInputError, match="tombstone"):
        check_tombstone(stone)
