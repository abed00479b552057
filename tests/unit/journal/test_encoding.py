"""Events in records: rows and batches hold the same, and what no column holds is refused before it costs anything."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.clock import ManualClock
from custody.errors import CorruptionError
from custody.format.framing import Frame, frames
from custody.journal import JournalFile, JournalWriter, encoding
from custody.journal.encoding import (
    JOURNAL_SCHEMA,
    KIND_BATCH,
    KIND_ROWS,
    ROWS_MAX,
    EventRecord,
    PreparedEvents,
    decode,
)
from custody.model import (
    EVENT_SCHEMA,
    AttributeMask,
    ContentClaim,
    Event,
    EventType,
    to_batch,
    to_events,
    valid_events,
)
from custody.model.event_message import exact_message
from custody.vfs import PosixFileSystem
from tests.support import EVENTS, TEXTS, event, numbered, sample
from tests.unit.journal.watched_disk import stored

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
NUMBERS = tuple(
    field.name
    for field in msgspec.structs.fields(Event)
    if field.type in (int, int | None) and field.name != "event_id"
)
REFUSED: dict[str, dict[str, Any]] = {
    "a number of 64 bits and a sign": {"file_size": 1 << 63},
    "a number below the least": {"event_time": INT64_MIN - 1},
    "an optional number too large": {"source_ordinal": 1 << 64},
    "a number too large in a claim": {"content_claim": ContentClaim(offset=1 << 63)},
    "a fraction": {"file_size": 1.5},
    "a whole fraction": {"file_size": 1.0},
    "a truth value for a number": {"file_size": True},
    "a truth value for an optional number": {"source_ordinal": True},
    "nothing for a number": {"file_size": None},
    "nothing for a text": {"event_type": None},
    "a number for a text": {"details": 5},
    "a number for a required text": {"component_id": 5},
    "bytes for a text": {"details": b"abc"},
    "a number for a uuid": {"parent_uuids": (1,)},
    "nothing for a uuid": {"child_uuids": ("a", None)},
    "nothing for a list": {"parent_uuids": None},
    "nothing for attributes": {"updated_attributes": None},
    "a number as an attribute": {"updated_attributes": {"a": 1}},
    "a number as an attribute's name": {"previous_attributes": {1: "a"}},
    "no name of an attribute": {"previous_attributes": {None: "a"}},
    "half a character": {"details": "\ud83d"},
    "half a character as an attribute": {"updated_attributes": {"a": "\udc00"}},
    "half a character as a name": {"updated_attributes": {"\udc00": "a"}},
    "half a character in a uuid": {"parent_uuids": ("\ud800",)},
    "half a character in a claim": {"content_claim": ContentClaim(container="\ud800")},
}


def records_of(events: list[Event], first_event_id: int) -> list[EventRecord]:
    """What one append writes, as a reader finds it."""
    records = []
    for pieces in PreparedEvents(events).records(first_event_id):
        [item] = frames(b"".join(pieces))
        assert isinstance(item, Frame)
        records.append(EventRecord.of(item, Path("journal"), 0, JOURNAL_SCHEMA))
    return records


def as_rows(events: list[Event], first_event_id: int) -> pa.Table:
    """The events as a journal of rows gives them: appends of at most ROWS_MAX, read together."""
    records = []
    for start in range(0, len(events), ROWS_MAX):
        records += records_of(events[start : start + ROWS_MAX], first_event_id + start)
    assert {record.kind for record in records} == {KIND_ROWS}
    return decode(records)


def expect_same(events: list[Event], first_event_id: int = 0) -> None:
    table = as_rows(events, first_event_id)
    table.validate(full=True)
    assert table.schema == EVENT_SCHEMA
    assert table.combine_chunks().to_batches()[0].equals(to_batch(events, first_event_id))
    assert to_events(table) == numbered(events, first_event_id)


@given(st.lists(EVENTS, min_size=1, max_size=5), st.integers(0, INT64_MAX - 10))
def test_rows_hold_what_a_batch_holds(events: list[Event], first_event_id: int) -> None:
    expect_same(events, first_event_id)


@given(st.lists(EVENTS, min_size=1, max_size=4), st.integers(0, INT64_MAX - 200))
def test_a_batch_gets_its_ids_afterwards(some: list[Event], first_event_id: int) -> None:
    events = some * (ROWS_MAX + 1)
    [record] = records_of(events, first_event_id)
    assert (record.kind, record.first_event_id, record.count) == (KIND_BATCH, first_event_id, len(events))
    assert record.last_event_id == first_event_id + len(events) - 1
    table = decode([record])
    table.validate(full=True)
    assert table.combine_chunks().to_batches()[0].equals(to_batch(events, first_event_id))


@pytest.mark.parametrize("count", [8, ROWS_MAX, 500])
def test_a_large_append_becomes_several_records(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(encoding, "RECORD_BYTES", 2000)
    events = [event(number, details="x" * 300 * (number % 5)) for number in range(count)]
    records = records_of(events, 7)
    assert len(records) > 1
    assert all(len(record.body) < 8000 for record in records)
    assert to_events(decode(records)) == numbered(events, 7)


def test_an_event_that_fits_no_record_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "PAYLOAD_BYTES_MAX", 4000)
    for count in (1, ROWS_MAX + 1):
        with pytest.raises(ValueError, match="an event has at most 2000 bytes in a journal, got"):
            PreparedEvents([event(0, details="x" * 2000)] * count)


@given(st.lists(st.tuples(st.booleans(), EVENTS), min_size=1, max_size=8), st.randoms())
def test_records_in_any_order_and_of_both_kinds_come_in_the_order_of_ids(
    appended: list[tuple[bool, Event]], random: Random
) -> None:
    records: list[EventRecord] = []
    expected: list[Event] = []
    for many, item in appended:
        events = [item] * (ROWS_MAX + 1 if many else 1)
        records += records_of(events, len(expected))
        expected += events
    random.shuffle(records)
    assert to_events(decode(records)) == numbered(expected)


def test_many_rows_are_read_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "_PART_BYTES", 1000)
    events = [event(number, details="x" * 300) for number in range(20)]
    records = [record for number, item in enumerate(events) for record in records_of([item], number)]
    table = decode(records)
    assert table.column(0).num_chunks > 5
    assert to_events(table) == numbered(events)


def test_a_record_that_does_not_hold_what_its_head_says_is_damage() -> None:
    for count in (1, ROWS_MAX + 1):
        [record] = records_of([event(number) for number in range(count)], 0)
        with pytest.raises(CorruptionError, match=f"journal @0: expected {count + 1} events in 1 records, got {count}"):
            decode([replace(record, count=count + 1)])
        with pytest.raises(CorruptionError, match="journal @0: expected records of events, got"):
            decode([replace(record, body=record.body[:-5])])


def test_of_records_of_several_files_the_one_that_is_wrong_is_named() -> None:
    [first] = records_of([event(number) for number in range(ROWS_MAX + 1)], 0)
    behind = replace(first, first_event_id=ROWS_MAX + 1)
    [other] = records_of([event()] * (ROWS_MAX + 2), 2 * ROWS_MAX + 2)
    damaged = replace(other, path=Path("other.journal"), body=other.body[:-5])
    with pytest.raises(CorruptionError, match=r"other\.journal @0: expected records of events, got"):
        decode([first, behind, damaged])
    # Counts that are right only in sum would give events the ids of others.
    shifted = [replace(first, count=first.count + 1), replace(behind, count=behind.count - 1)]
    with pytest.raises(CorruptionError, match=f"expected {ROWS_MAX + 2} events in 1 records, got {ROWS_MAX + 1}"):
        decode(shifted)


@pytest.mark.parametrize("number", [INT64_MIN, INT64_MIN + 1, -1, 0, (1 << 53) + 1, INT64_MAX])
def test_every_number_column_holds_its_extremes(number: int) -> None:
    expect_same([event(**dict.fromkeys(NUMBERS, number), content_claim=ContentClaim(offset=number, size=number))])


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a\0b", "\N{GRINNING FACE}\N{ZERO WIDTH JOINER}", "\r\n\u2028", '"\\/{}', "\ufeff", "\U0010ffff"],
    ids=ascii,
)
def test_every_text_column_holds_any_characters(text: str) -> None:
    expect_same(
        [
            event(
                **dict.fromkeys(TEXTS, text),
                event_type=text,
                flowfile_uuid=text,
                parent_uuids=(text, ""),
                updated_attributes={text: text, "other": None},
                content_claim=ContentClaim(container=text),
            )
        ]
    )


def test_absent_and_empty_values_stay_what_they_are() -> None:
    expect_same(
        [
            event(0),
            event(1, details="", parent_uuids=("",), updated_attributes={"": None}, content_claim=ContentClaim()),
            event(2, previous_attributes={"": ""}, child_uuids=("a", "b"), previous_content_claim=ContentClaim(size=0)),
            event(3, event_type=EventType.SEND),
        ]
    )


def test_rows_of_sample_events_are_read_as_their_batch() -> None:
    expect_same(sample(300), 7)


def test_a_long_text_is_read_whole() -> None:
    expect_same([event(0), event(1, details="long " * 1_000_000), event(2)])


def test_few_events_are_rows_and_many_a_batch() -> None:
    for count, kind in ((1, KIND_ROWS), (ROWS_MAX, KIND_ROWS), (ROWS_MAX + 1, KIND_BATCH)):
        assert [record.kind for record in records_of([event(n) for n in range(count)], 0)] == [kind]


def test_a_journal_may_mix_rows_and_batches(tmp_path: Path) -> None:
    sizes = [1, 40, 2, 3, 100, ROWS_MAX, ROWS_MAX + 1, 1]
    events = [event(number) for number in range(sum(sizes))]
    with JournalWriter(PosixFileSystem(), [tmp_path], "main", "provenance", ManualClock()) as writer:
        start = 0
        for size in sizes:
            writer.append(events[start : start + size])
            start += size
    [path] = (tmp_path / "main" / "journals").iterdir()
    assert to_events(JournalFile.read(PosixFileSystem(), path).table()) == numbered(events)


@pytest.mark.parametrize("count", [1, ROWS_MAX + 1], ids=["rows", "batch"])
@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_what_no_column_holds_is_refused_before_an_id_is_used(
    tmp_path: Path, values: dict[str, Any], count: int
) -> None:
    good = [event(number) for number in range(count - 1)]
    with JournalWriter(PosixFileSystem(), [tmp_path], "main", "provenance", ManualClock()) as writer:
        with pytest.raises((ValueError, TypeError, OverflowError)):
            writer.append([*good, event(**values)])
        assert not list((tmp_path / "main" / "journals").iterdir())
        assert writer.append([event(1)]) == range(1)
    assert stored([tmp_path]) == numbered([event(1)])


@pytest.mark.parametrize("values", REFUSED.values(), ids=REFUSED)
def test_whole_columns_take_nothing_that_single_events_refuse(values: dict[str, Any]) -> None:
    """An exact batch means that each event was asked; wherever it may not be one, each event is."""
    try:
        message = exact_message([*sample(20), event(**values), *sample(20)])
    except UnicodeEncodeError:
        message = None
    assert message is None


LISTS: list[Any] = [(), [], ("f1",), ["f1", "f2"], ("a\0b",)]
MAPS: list[Any] = [{}, {"a": "b"}, {"a": None}, {"a": "", "b": None}, {"b": "1", "a": "2"}, {"\0": "\0"}]


@given(st.lists(st.tuples(*map(st.sampled_from, (LISTS, LISTS, MAPS, MAPS)), EVENTS), min_size=1, max_size=50))
def test_lists_and_maps_are_those_of_single_events(held: list[tuple[Any, Any, Any, Any, Event]]) -> None:
    names = ("parent_uuids", "child_uuids", "previous_attributes", "updated_attributes")
    events = [msgspec.structs.replace(item, **dict(zip(names, values, strict=True))) for *values, item in held]
    message = exact_message(events)
    assert message is not None
    assert message == to_batch(events, 0).remove_column(0).serialize().to_pybytes()


def test_a_subclass_of_what_a_column_holds_is_left_to_each_event() -> None:
    class Attributes(dict[str, str | None]):
        """As `collections.OrderedDict` is one."""

    class Uuids(tuple[str, ...]):
        """As a named tuple is one."""

        __slots__ = ()

    for values in ({"updated_attributes": Attributes()}, {"child_uuids": Uuids()}, {"parent_uuids": Uuids(["a"])}):
        assert exact_message([*sample(20), event(**values), *sample(20)]) is None


def test_an_event_of_another_class_is_left_to_each_event() -> None:
    class Longer(Event, frozen=True, gc=False):
        more: int = 0

    class Same(Event, frozen=True, gc=False):
        pass

    for kind in (Longer, Same):
        assert exact_message([*sample(20), kind(**msgspec.structs.asdict(event(1))), *sample(20)]) is None


def test_a_mask_hides_values_of_a_batch_made_of_events() -> None:
    events = [event(number, updated_attributes={"secret": "s", "filename": f"f{number}"}) for number in range(50)]
    [pieces] = PreparedEvents(events, AttributeMask(["secret"])).records(7)
    [item] = frames(b"".join(pieces))
    assert isinstance(item, Frame)
    found = to_events(decode([EventRecord.of(item, Path("journal"), 0, JOURNAL_SCHEMA)]))
    assert [one.updated_attributes for one in found] == [
        {"secret": "***", "filename": f"f{number}"} for number in range(50)
    ]


@given(st.lists(EVENTS, max_size=5))
def test_whole_columns_hold_what_single_events_become(events: list[Event]) -> None:
    message = exact_message([*events, *sample(3), *events])
    assert message is not None
    batch = pa.ipc.read_record_batch(pa.py_buffer(message), JOURNAL_SCHEMA)
    batch.validate(full=True)
    one_by_one = to_batch([*events, *sample(3), *events], 0).remove_column(0)
    assert batch.equals(one_by_one)
    # What is written is the same to the bit, too.
    assert message == one_by_one.serialize().to_pybytes()


def test_few_columns_become_rows_and_more_stay_columns() -> None:
    events = [event(number, details="x" * number) for number in range(10)]
    for count in (1, 3, 10):
        columns = to_batch(events[:count], 0).remove_column(0)
        assert valid_events(columns) == events[:count]
        few = PreparedEvents.of_few(valid_events(columns)).records(5)
        many = PreparedEvents.of_columns(columns).records(5)
        kinds, found = [], []
        for [pieces] in (few, many):
            [item] = frames(b"".join(pieces))
            assert isinstance(item, Frame)
            record = EventRecord.of(item, Path("journal"), 0, JOURNAL_SCHEMA)
            kinds.append(record.kind)
            found.append(to_events(decode([record])))
        assert kinds == [KIND_ROWS, KIND_BATCH]
        assert found[0] == found[1] == numbered(events[:count], 5)


@pytest.mark.parametrize("padding", range(8))
def test_columns_lie_at_even_addresses_wherever_a_record_begins(padding: int) -> None:
    events = [event(number) for number in range(100)]
    [pieces] = PreparedEvents(events).records(0)
    whole = b"".join(pieces)
    data = memoryview(bytes(padding) + whole)[padding:]
    [record] = frames(data)
    assert isinstance(record, Frame)
    table = decode([EventRecord.of(record, Path("j"), 0, JOURNAL_SCHEMA)])
    addresses = [
        part.address
        for column in table.columns
        for chunk in column.chunks
        for part in chunk.buffers()
        if part is not None and part.size
    ]
    assert addresses
    assert not [address for address in addresses if address % 8]
