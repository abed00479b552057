"""NGSI notifications: one RECEIVE event for each entity, with what was received, from where and how many bytes."""

from __future__ import annotations

import hashlib
import json

import pytest

from custody.capture import Accepted, Format, Rejected
from custody.model import Event
from tests.unit.capture.sample_inputs import ARRIVED_MS, Json, array, entity, envelope, lines, notification, read

V1 = {
    "subscriptionId": "60b0cccc0000000000000001",
    "originator": "localhost",
    "contextResponses": [
        {
            "contextElement": {
                "id": "Bench1",
                "type": "Bench",
                "isPattern": "false",
                "attributes": [{"name": "seats", "type": "Number", "value": "4"}],
            },
            "statusCode": {"code": "200", "reasonPhrase": "OK"},
        }
    ],
}
LD = {
    "id": "urn:ngsi-ld:Notification:1",
    "type": "Notification",
    "subscriptionId": "urn:ngsi-ld:Subscription:9",
    "notifiedAt": "2026-03-04T05:06:07.089Z",
    "data": [{"id": "urn:ngsi-ld:Bench:1", "type": "Bench", "seats": {"type": "Property", "value": 4}}],
}


def events_of(document: object, **options: str) -> list[Event]:
    found = read(json.dumps(document).encode(), Format.NGSI, **options)  # type: ignore[arg-type]
    assert all(isinstance(outcome, Accepted) and not outcome.warnings for outcome in found), found
    return [outcome.event for outcome in found if isinstance(outcome, Accepted)]


@pytest.mark.parametrize(
    ("body", "version", "format"),
    [
        (notification(), "ngsi-v2", "normalized"),
        (notification({"id": "Bench1", "type": "Bench", "seats": 4, "wood": "oak"}), "ngsi-v2", "keyValues"),
        (entity(), "ngsi-v2", "normalized"),
        (V1, "ngsi-v1", "normalized"),
        (LD, "ngsi-ld", "normalized"),
        ({**LD, "data": [{"id": "x", "type": "Bench", "seats": 4}]}, "ngsi-ld", "keyValues"),
    ],
)
def test_every_kind_of_notification_is_received(body: Json, version: str, format: str) -> None:
    [event] = events_of(body)
    attributes = event.updated_attributes
    assert event.event_type == "RECEIVE"
    assert (attributes["ngsi.version"], attributes["ngsi.format"]) == (version, format)
    assert (event.component_type, event.platform) == (version, "ngsi")
    assert attributes["ngsi.entity.type"] == "Bench"


def test_each_entity_is_an_event_with_the_size_and_digest_of_the_body() -> None:
    body = notification(entity(1), entity(2))
    events = events_of(body)
    raw = json.dumps(body).encode()
    assert [event.updated_attributes["ngsi.entity.id"] for event in events] == ["Bench1", "Bench2"]
    assert len({event.flowfile_uuid for event in events} | {str(event.source_ordinal) for event in events}) == 4
    for event in events:
        assert event.file_size == len(raw)
        assert event.updated_attributes["ngsi.payload.sha256"] == hashlib.sha256(raw).hexdigest()


def test_an_envelope_says_service_path_time_and_target() -> None:
    body = notification(entity(1), entity(2))
    headers = {"Fiware_Service": "parks", "FIWARE_SERVICEPATH": "/north,/south", "Fiware_Correlator": "c-1"}
    first, second = events_of(envelope(body, **headers))
    assert (first.source_node, first.event_time) == ("ngsi:parks", 1_772_600_767_000)
    assert first.transit_uri == "http://sink.example.org/notify"
    assert first.file_size == len(json.dumps(body))
    paths = [event.updated_attributes["ngsi.service_path"] for event in (first, second)]
    assert paths == ["/north", "/south"]
    assert first.updated_attributes["ngsi.correlator"] == "c-1"


def test_one_service_path_stands_for_all_entities() -> None:
    events = events_of(envelope(notification(entity(1), entity(2)), Fiware_ServicePath="/north"))
    assert {event.updated_attributes["ngsi.service_path"] for event in events} == {"/north"}


def test_a_body_without_a_time_happened_when_its_file_arrived() -> None:
    [event] = events_of(notification())
    assert (event.event_time, event.updated_attributes["ngsi.time"]) == (ARRIVED_MS, "arrival")
    [linked] = events_of(LD)
    assert (linked.event_time, linked.updated_attributes["ngsi.time"]) == (1_772_600_767_089, "notifiedAt")


def test_a_linked_data_subscription_is_where_it_came_from() -> None:
    [event] = events_of(LD)
    assert event.transit_uri == "urn:ngsi-ld:Subscription:9"
    assert event.source_system_flowfile_identifier == "urn:ngsi-ld:Notification:1"
    assert events_of(notification())[0].transit_uri == "ngsi:subscription/60b0cccc0000000000000001"


def test_copies_have_one_number_and_other_deliveries_have_others() -> None:
    [one], [again] = events_of(notification()), events_of(notification())
    assert one == again
    others = [
        notification(entity(2)),
        envelope(notification(), Fiware_Service="parks"),
        envelope(notification(), Fiware_Correlator="c-2"),
        envelope(notification(), Fiware_Correlator="c-3"),
    ]
    numbers = {event.source_ordinal for document in others for event in events_of(document)} | {one.source_ordinal}
    assert len(numbers) == 5


def test_a_bad_entity_costs_itself_only() -> None:
    found = read(array([notification(entity(1), {"type": "Bench"}, entity(3))]), Format.NGSI)
    assert [type(outcome) for outcome in found] == [Accepted, Rejected, Accepted]
    assert isinstance(found[1], Rejected)
    assert found[1].problem.message == "entity 1: id: expected a value, got none"


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"subscriptionId": "x", "data": [[23, 70]]}, "data: expected an array of objects, got [[23,70]]"),
        ({"hello": 1}, "data: expected a notification with data, contextResponses or an entity"),
        (envelope(notification(), Fiware_ServicePath="/a,/b"), "Fiware-ServicePath: expected 1 or 1 paths, got 2"),
        ({"headers": {"a": 5}, "body": {}}, "envelope: expected headers and body"),
        ({"headers": {}, "body": [5]}, "body: expected an object, got [5]"),
        ({"contextResponses": [{}]}, "contextElement: expected an object, got null"),
        ({**LD, "notifiedAt": "noon"}, "notifiedAt: expected a time such as"),
        ({**LD, "notifiedAt": 5}, "notifiedAt: expected text, got 5"),
    ],
)
def test_what_is_no_notification_is_refused_with_the_reason(document: Json, says: str) -> None:
    [found] = read(lines([document]), Format.NGSI)
    assert isinstance(found, Rejected)
    assert says in found.problem.message
