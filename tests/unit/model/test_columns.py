"""Events and columns are two forms of one thing: nothing is lost either way."""

from __future__ import annotations

import msgspec
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from custody.model import EVENT_SCHEMA, ContentClaim, Event, to_batch, to_events
from tests.support import EVENTS, event, numbered, sample

INT64_MAX = (1 << 63) - 1
EXTREME = event(
    event_time=-(1 << 63),
    file_size=INT64_MAX,
    event_duration=-(1 << 63),
    lineage_start_date=INT64_MAX,
    details="line\nNUL\0 and \N{PILE OF POO} and \u202e",
    parent_uuids=("", "\0"),
    previous_attributes={"": "", "\N{SNOWMAN}": None, "k\0": "v\0"},
    updated_attributes={"removed": None},
    content_claim=ContentClaim(),
    previous_content_claim=ContentClaim("c", "s", "i", 0, INT64_MAX),
)


@example([EXTREME, event()], 0)
@given(st.lists(EVENTS, max_size=4), st.integers(0, INT64_MAX - 10))
def test_events_come_back_from_a_batch_with_their_ids(events: list[Event], first: int) -> None:
    assert to_events(to_batch(events, first)) == numbered(events, first)


@given(st.lists(EVENTS, min_size=1, max_size=3))
def test_events_come_back_from_the_ipc_form_of_a_journal(events: list[Event]) -> None:
    stored = to_batch(events, 7).serialize().to_pybytes()
    assert to_events(pa.ipc.read_record_batch(pa.py_buffer(stored), EVENT_SCHEMA)) == numbered(events, 7)


def test_every_field_of_an_event_has_its_column_and_no_other_exists() -> None:
    fields = [field.name for field in msgspec.structs.fields(Event)]
    assert sorted(fields) == sorted(EVENT_SCHEMA.names)
    # But for the id: it has a default, and stands behind the fields that have none.
    assert [name for name in fields if name != "event_id"] == EVENT_SCHEMA.names[1:]


def test_every_optional_field_keeps_its_value_and_its_absence() -> None:
    fields = [field for field in msgspec.structs.fields(Event) if field.default is None]
    assert len(fields) > 20
    for field in fields:
        column = EVENT_SCHEMA.field(field.name).type
        value: object = "text" if pa.types.is_string(column) else 1
        if pa.types.is_struct(column):
            value = ContentClaim(container="c", size=3)
        one, other = to_events(to_batch([event(**{field.name: value}), event(**{field.name: None})], 0))
        assert getattr(one, field.name) == value
        assert getattr(other, field.name) is None


def test_sample_events_come_back_from_a_table_of_several_batches() -> None:
    events = sample(100)
    table = pa.Table.from_batches([to_batch(events[:40], 0), to_batch(events[40:], 40)])
    assert to_events(table) == numbered(events)


def test_a_column_that_a_file_lacks_reads_as_absent() -> None:
    table = pa.Table.from_batches([to_batch([event(details="x", transit_uri="u")], 0)])
    [found] = to_events(table.drop_columns(["details"]))
    assert found.details is None
    assert found.transit_uri == "u"


def test_a_number_beyond_int64_is_refused() -> None:
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        to_batch([event(file_size=1 << 63)], 0)


def test_attributes_are_the_previous_ones_overlaid_with_the_updates() -> None:
    found = event(
        previous_attributes={"filename": "a", "kept": "1", "gone": "2"},
        updated_attributes={"filename": "b", "gone": None, "new": ""},
    )
    assert found.attributes == {"filename": "b", "kept": "1", "new": ""}
    assert found.filename == "b"
    assert event().filename is None


def test_any_slice_of_a_table_gives_the_events_of_its_rows() -> None:
    events = sample(150)
    table = pa.Table.from_batches([to_batch(events[:90], 0), to_batch(events[90:], 90)])
    for start, count in ((0, 1), (89, 2), (17, 120), (149, 1), (150, 0)):
        assert to_events(table.slice(start, count)) == numbered(events)[start : start + count]


@pytest.mark.parametrize(
    "column",
    [
        ("event_time", pa.array([1, None], EVENT_SCHEMA.field("event_time").type)),
        ("event_type", pa.array([None, None], pa.string())),
        ("event_duration", pa.array([None, 3], pa.int64())),
        ("child_uuids", pa.array([["u"], ["v", None]], pa.list_(pa.string()))),
        ("parent_uuids", pa.array([None, ["v"]], pa.list_(pa.string()))),
        ("updated_attributes", pa.array([None, [("k", "v")]], pa.map_(pa.string(), pa.string()))),
    ],
    ids=lambda column: column[0],
)
def test_columns_without_a_value_that_every_event_has_become_no_events(column: tuple[str, pa.Array]) -> None:
    name, values = column
    table = pa.Table.from_batches([to_batch([event(), event()], 0)])
    with pytest.raises(msgspec.ValidationError):
        to_events(table.set_column(table.schema.get_field_index(name), name, values))
