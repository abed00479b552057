"""Numbers for events that have none, and what makes two events copies."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, Format, contradictions, harmless_differences, is_same
from custody.format.identifiers import digest_ordinal
from custody.model import INT64_MAX, Event
from tests.unit.capture.sample_inputs import Json, array, avro_file, dto, entity, notification, payloads, read

PARTS = st.lists(st.none() | st.text(max_size=5), max_size=4)


def event_of(document: Json, format: Format) -> Event:
    [found] = read(array([document]), format)
    assert isinstance(found, Accepted)
    return found.event


@given(PARTS, st.none() | st.integers(-(1 << 63), 1 << 63))
def test_a_number_fits_its_column_and_never_changes(parts: list[str | None], time: int | None) -> None:
    assert 0 <= digest_ordinal(parts, time) <= INT64_MAX
    assert digest_ordinal(parts, time) == digest_ordinal(list(parts), time)


def test_numbers_that_are_stored_stay_what_they_are() -> None:
    assert digest_ordinal(["a", None, "b"], None) == 3_124_831_311_517_721_330
    assert digest_ordinal(["a", None, "b"], 1_772_600_767_089) == 4_331_102_427_183_339_808


@given(PARTS, PARTS)
def test_parts_cannot_be_confused_by_where_they_are_cut(one: list[str | None], other: list[str | None]) -> None:
    assert (digest_ordinal(one, None) == digest_ordinal(other, None)) == (one == other)


def test_later_hours_have_larger_numbers() -> None:
    hours = [digest_ordinal([str(hour)], hour * 3_600_000) for hour in range(490_000, 490_050)]
    assert hours == sorted(hours)


def test_the_copies_of_nifi_differ_in_their_event_id_only() -> None:
    event = event_of(payloads(1)[0], Format.NIFI)
    assert is_same(event, msgspec.structs.replace(event, event_id=5, source_event_id="other"))
    assert not is_same(event, msgspec.structs.replace(event, file_size=event.file_size + 1))


def test_one_event_in_three_formats_is_one_event() -> None:
    payload = {**payloads(1)[0], "contentURI": None, "previousContentURI": None, "actorHostname": "node-a"}
    plain = event_of(payload, Format.NIFI)
    [packed] = read(avro_file([payload]))
    shown = event_of(
        dto(
            payload["eventOrdinal"],
            eventType=payload["eventType"],
            eventTimestamp=payload["timestamp"],
            componentId=payload["componentId"],
            flowFileUuid=payload["entityId"],
            fileSizeBytes=payload["entitySize"],
            clusterNodeId="node-a",
        ),
        Format.NIFI_REST,
    )
    assert isinstance(packed, Accepted)
    for other in (packed.event, shown):
        assert (other.source_node, other.source_ordinal) == (plain.source_node, plain.source_ordinal)
        assert is_same(plain, other)
        assert is_same(other, plain)
        assert not is_same(plain, msgspec.structs.replace(other, file_size=0))


@pytest.mark.parametrize("source", ["nifi-s2s", "nifi-avro", "nifi-rest"])
def test_every_format_of_nifi_may_tell_names_anew(source: str) -> None:
    if source == "nifi-rest":
        one = event_of(dto(), Format.NIFI_REST)
    else:
        one = msgspec.structs.replace(event_of(payloads(1)[0], Format.NIFI), source_format=source)
    other = msgspec.structs.replace(one, component_name="new", process_group_id=None, source_host="elsewhere")
    assert is_same(one, other)
    assert harmless_differences(one, other) == ["component_name", "process_group_id", "source_host"]
    assert contradictions(one, msgspec.structs.replace(other, component_type="new")) == ["component_type"]


@given(st.permutations(["a", "b", "c", "c"]))
def test_relatives_have_no_order_but_a_number(relatives: list[str]) -> None:
    one = msgspec.structs.replace(event_of(payloads(1)[0], Format.NIFI), child_uuids=("a", "b", "c", "c"))
    assert is_same(one, msgspec.structs.replace(one, child_uuids=tuple(relatives)))
    assert not is_same(one, msgspec.structs.replace(one, child_uuids=tuple(relatives[1:])))


def test_a_component_that_got_another_name_is_no_contradiction() -> None:
    one, other = event_of(dto(), Format.NIFI_REST), event_of(dto(componentName="new", groupId=None), Format.NIFI_REST)
    assert is_same(one, other)
    assert not is_same(one, event_of(dto(relationship="red"), Format.NIFI_REST))


def test_the_time_of_arrival_is_not_compared() -> None:
    event = event_of(notification(), Format.NGSI)
    assert is_same(event, msgspec.structs.replace(event, event_time=5))
    said = event_of({**notification(entity()), "notifiedAt": "2026-03-04T05:06:07Z"}, Format.NGSI)
    assert not is_same(said, msgspec.structs.replace(said, event_time=5))
