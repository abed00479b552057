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
