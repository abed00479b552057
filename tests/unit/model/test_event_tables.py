"""Events that come as columns: what is taken, what is refused, and that the rules are those of single events."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import InvalidInputError
from custody.model import (
    EVENT_SCHEMA,
    ContentClaim,
    Event,
    Severity,
    check_event,
    require_valid_columns,
    to_batch,
    to_events,
    valid_events,
)
from custody.repository import Repository
from tests.support import event, sample

NEEDED = ["event_type", "event_time", "component_id", "component_type", "flowfile_uuid", "file_size"]


def columns(events: list[Event]) -> pa.RecordBatch:
    return to_batch(events, 0).drop_columns(["event_id"])


def test_events_as_columns_are_stored_as_events_are(repository: Repository) -> None:
    events = sample(300)
    told = repository.append_columns(columns(events))
    assert list(repository.get_many(list(told.event_ids))) == [
        msgspec.structs.replace(item, event_id=number) for number, item in zip(told.event_ids, events, strict=True)
    ]
    assert repository.append_columns(columns([])).event_ids == range(300, 300)


def test_columns_that_say_nothing_may_be_left_out_and_types_may_be_wider(repository: Repository) -> None:
    table = pa.table(
        {
            "event_type": pa.array(["CREATE", "DROP"]).dictionary_encode(),
            "event_time": pa.array(
                [1_772_409_600_000_000, 1_772_409_601_000_000], pa.timestamp("us", tz="Europe/Rome")
            ),
            "component_id": pa.array(["c", "c"], pa.large_string()),
            "component_type": ["T", "T"],
            "flowfile_uuid": ["u-1", "u-2"],
            "file_size": pa.array([1, 2], pa.uint32()),
            "parent_uuids": pa.array([["p"], []], pa.large_list(pa.large_string())),
            "details": pa.nulls(2),
        }
    )
    told = repository.append_columns(pa.concat_tables([table.slice(0, 1), table.slice(1)]))
    first, second = repository.get_many(list(told.event_ids))
    assert (first.event_type, first.event_time, first.file_size, first.parent_uuids) == (
        "CREATE",
        1_772_409_600_000,
        1,
        ("p",),
    )
    assert (second.event_duration, second.details, second.updated_attributes) == (-1, None, {})


def good() -> dict[str, pa.Array]:
    batch = columns([event(1), event(2)])
    return {name: batch.column(name) for name in NEEDED}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"event_id": pa.array([1, 2])}, "event_id"),
        ({"colour": pa.array(["red", "blue"])}, "colour"),
        ({"event_type": pa.array(["CREATE", ""])}, r"column event_type, row 1: expected text"),
        ({"event_type": pa.array(["CREATE", None])}, r"column event_type, row 1: expected a value"),
        ({"event_type": pa.array([1, 2])}, r"column event_type: expected string, got int64"),
        ({"file_size": pa.array([1.5, 2.0])}, r"column file_size: expected int64, got double"),
        ({"file_size": pa.array([1, -1])}, r"column file_size, row 1"),
        ({"file_size": pa.array([1, 1 << 63], pa.uint64())}, r"expected values of the event schema"),
        ({"event_time": pa.array([0, 253_402_300_800_000])}, r"column event_time, row 1: expected ms"),
        ({"event_time": pa.array([0, 1], pa.timestamp("ms"))}, r"column event_time: expected timestamp"),
        ({"event_duration": pa.array([-2, -1])}, r"column event_duration, row 0"),
        ({"child_uuids": pa.array([["a"], ["b", None]])}, r"column child_uuids, row 1: expected no null in a list"),
        ({"content_claim": pa.array([{"offset": -1}, {"size": 2}])}, r"content_claim"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_column_and_nothing_is_stored(
    repository: Repository, change: dict[str, pa.Array], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        repository.append_columns(pa.table({**good(), **change}))
    assert repository.status().writers == () or repository.search("", limit=1).total == 0


def test_a_missing_column_is_named() -> None:
    table = pa.table(good()).drop_columns(["flowfile_uuid"])
    with pytest.raises(InvalidInputError, match="flowfile_uuid missing"):
        require_valid_columns(table)


def test_text_that_is_no_utf_8_is_refused() -> None:
    bad = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")]
    )
    with pytest.raises(InvalidInputError, match=r"UTF-?8"):
        require_valid_columns(pa.table({**good(), "details": bad}))


NUMBERS = st.sampled_from([-2, -1, 0, 1, 253_402_300_799_999, 253_402_300_800_000, (1 << 63) - 1])
MAYBE = st.none() | NUMBERS
TEXTS = st.sampled_from(["", "x"])


@given(
    st.fixed_dictionaries(
        {
            **dict.fromkeys(["event_type", "component_id", "component_type", "flowfile_uuid"], TEXTS),
            **dict.fromkeys(["event_time", "file_size", "event_duration"], NUMBERS),
            **dict.fromkeys(
                ["flowfile_entry_date", "lineage_start_date", "previous_file_size", "source_ordinal"], MAYBE
            ),
        }
    )
)
def test_columns_are_refused_exactly_when_the_event_is(values: dict[str, object]) -> None:
    item = event(**values)
    is_bad = any(problem.severity is Severity.ERROR for problem in check_event(item))
    batch = columns([event(5), item])
    if is_bad:
        for check in (require_valid_columns, valid_events):
            with pytest.raises(InvalidInputError, match="row 1"):
                check(batch)
    else:
        valid = require_valid_columns(batch)
        assert valid_events(batch) == to_events(valid)
        ids = pa.array([0, 1])
        both = pa.RecordBatch.from_arrays([ids, *valid.columns], schema=EVENT_SCHEMA)
        assert to_events(both)[1] == msgspec.structs.replace(item, event_id=1)


def test_of_a_slice_only_the_rows_that_it_shows_are_asked() -> None:
    items = [
        event(0),
        event(1, file_size=-1),
        event(2, source_ordinal=5),
        event(3, content_claim=ContentClaim(size=-1)),
    ]
    whole = columns(items)
    for start, length, is_good in ((0, 1, True), (2, 1, True), (1, 1, False), (3, 1, False), (0, 4, False)):
        part = whole.slice(start, length)
        if is_good:
            assert to_events(require_valid_columns(part)) == items[start : start + length]
        else:
            with pytest.raises(InvalidInputError, match="row"):
                require_valid_columns(part)


def test_few_columns_become_the_events_that_many_become() -> None:
    events = sample(40)
    whole = columns(events)
    said = [name for name in whole.schema.names if whole.column(name).null_count < whole.num_rows]
    assert len(said) < whole.num_columns
    for few in (
        whole,
        pa.Table.from_batches([whole]),
        whole.select(said),
        pa.Table.from_batches([whole]).select(said),
    ):
        assert valid_events(few) == events
        assert valid_events(few.slice(7, 3)) == events[7:10]
    both = pa.Table.from_batches([whole.slice(0, 9), whole.slice(9)])
    assert valid_events(both) == events


@pytest.mark.parametrize("name", ["details", "parent_uuids", "updated_attributes"])
def test_few_rows_of_many_are_looked_at_alone_and_whole(name: str) -> None:
    many = columns([event(0, parent_uuids=("p", "q"), updated_attributes={"k": "v", "l": "w"}) for _ in range(4000)])
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")])
    texts = pa.concat_arrays([pa.array(["good"] * 3000), bad, pa.array(["good"] * 999)])
    offsets = pa.array(range(4001), pa.int32())
    wrong = {
        "details": texts,
        "parent_uuids": pa.ListArray.from_arrays(offsets, texts, type=EVENT_SCHEMA.field("parent_uuids").type),
        "updated_attributes": pa.MapArray.from_arrays(offsets, pa.array(["k"] * 4000), texts),
    }
    mixed = many.set_column(many.schema.get_field_index(name), many.schema.field(name), wrong[name])
    for check in (require_valid_columns, valid_events):
        with pytest.raises(InvalidInputError, match=r"UTF-?8"):
            check(mixed)
        with pytest.raises(InvalidInputError, match=r"UTF-?8"):
            check(mixed.slice(2999, 3))
        assert len(check(mixed.slice(10, 3))) == 3
        assert len(check(many.slice(3999, 1))) == 1


@pytest.mark.parametrize("places", [[0, 9000, 2], [0, 2, 1], [-1, 2, 3]])
def test_offsets_that_lead_astray_are_refused_in_few_rows_of_many(places: list[int]) -> None:
    many = columns([event(0, child_uuids=("p", "q", "r")) for _ in range(3000)])
    child = many.column("child_uuids")
    offsets = child.offsets.to_numpy().copy()
    offsets[100:103] = places
    astray = pa.Array.from_buffers(
        child.type, len(child), [None, pa.py_buffer(offsets.tobytes())], children=[child.values]
    )
    mixed = many.set_column(many.schema.get_field_index("child_uuids"), many.schema.field("child_uuids"), astray)
    for check in (require_valid_columns, valid_events):
        with pytest.raises(InvalidInputError, match="columns: expected values"):
            check(mixed.slice(100, 2))
        assert len(check(mixed.slice(500, 2))) == 2
