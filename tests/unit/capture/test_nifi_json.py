"""One event of site-to-site JSON: it goes in and out unchanged, and what is wrong is named by its key."""

from __future__ import annotations

import json
from typing import Any

import pytest

from custody.capture import event_to_json
from custody.capture.nifi_json import event_from_json
from custody.capture.values import format_time
from custody.errors import InvalidInputError
from custody.model import EventType, check_event
from tests.support import event
from tests.unit.capture.json_documents import KINDS, NODE, document

REQUIRED = ["eventType", "timestampMillis", "componentId", "componentType", "entityId", "entitySize"]
OPTIONAL = [key for key in document("SEND") if key not in REQUIRED]
TEXTS = [key for key, value in document("SEND").items() if isinstance(value, str) and key != "timestamp"]
NUMBERS = [key for key, value in document("SEND").items() if isinstance(value, int)]


def test_the_fixtures_cover_every_type() -> None:
    assert set(KINDS) == set(EventType)


@pytest.mark.parametrize("kind", KINDS)
def test_an_event_of_every_type_goes_in_and_out_unchanged(kind: str) -> None:
    given = document(kind)
    event = event_from_json(json.loads(json.dumps(given)))
    assert event_to_json(event) == given
    assert list(event_to_json(event))[:5] == ["eventId", "eventOrdinal", "eventType", "timestampMillis", "timestamp"]
    assert event.event_type == kind
    assert check_event(event, relationship_exported=False) == []


def test_values_land_in_the_fields_that_mean_them() -> None:
    event = event_from_json(document("SEND"))
    assert (event.source_ordinal, event.source_node, event.source_format) == (1003, NODE, "nifi-s2s")
    assert (event.event_time, event.event_duration, event.file_size) == (1_772_409_600_126, -1, 30)
    assert (event.flowfile_uuid, event.transit_uri) == ("e-3", "hdfs://lake/orders/2026")
    assert event.source_system_flowfile_identifier == "urn:nifi:other:17"
    assert event.extra is None


@pytest.mark.parametrize("key", REQUIRED)
@pytest.mark.parametrize("how", ["absent", "null"])
def test_a_required_key_that_is_missing_or_null_is_named(key: str, how: str) -> None:
    given = document("SEND", **{key: None})
    if how == "absent":
        del given[key]
    with pytest.raises(InvalidInputError, match=f"^{key}: expected a value, got {'null' if how == 'null' else 'no'}"):
        event_from_json(given)


RETOLD = {
    "componentName": "renamed",
    "processGroupId": "moved",
    "processGroupName": "moved",
    "application": "another",
    "platform": "another",
    "childIds": ["c-2", "c-1"],
    "updatedAttributes": {"a": "b", "gone": None},
    "flowVersion": 7,
}


def test_an_event_with_an_id_and_no_ordinal_is_numbered_by_its_id() -> None:
    """MiNiFi C++ sends no ordinals, and keeps the id of an event."""
    one = event_from_json(document("SEND", eventOrdinal=None))
    assert one.source_ordinal is not None
    assert event_from_json(document("SEND", eventOrdinal=None, **RETOLD)).source_ordinal == one.source_ordinal
    assert event_from_json(document("SEND", eventOrdinal=None, details="x")).source_ordinal == one.source_ordinal
    assert event_from_json(document("SEND", eventOrdinal=None, eventId="x")).source_ordinal != one.source_ordinal


def test_an_event_with_neither_id_nor_ordinal_is_numbered_by_what_all_copies_share() -> None:
    bare: dict[str, Any] = {"eventOrdinal": None, "eventId": None, "updatedAttributes": {"a": "b"}}
    one = event_from_json(document("FORK", **bare))
    assert event_from_json(document("FORK", **{**bare, **RETOLD})).source_ordinal == one.source_ordinal
    for changes in ({"entityId": "x"}, {"entitySize": 5}, {"timestampMillis": 5}, {"updatedAttributes": {"a": "c"}}):
        assert event_from_json(document("FORK", **{**bare, **changes})).source_ordinal != one.source_ordinal


def test_an_event_that_no_nifi_numbered_leaves_with_an_id_and_the_number_that_it_has_when_it_comes_back() -> None:
    own = event(1, source_node=None, source_ordinal=None, source_format="custody", relationship="success")
    given = event_to_json(own)
    assert {"eventId", "eventOrdinal"} <= given.keys()
    assert event_to_json(own) == given
    assert event_to_json(event(2, source_ordinal=None))["eventId"] != given["eventId"]
    without = {key: value for key, value in given.items() if key not in ("eventId", "eventOrdinal")}
    assert event_from_json(without).source_ordinal == given["eventOrdinal"]


@pytest.mark.parametrize("key", OPTIONAL)
def test_an_optional_key_that_is_null_is_the_same_as_an_absent_one(key: str) -> None:
    null = document("SEND", **{key: None})
    absent = {name: value for name, value in null.items() if name != key}
    assert event_from_json(null) == event_from_json(absent)


@pytest.mark.parametrize(
    ("keys", "bad", "expected"),
    [
        (TEXTS, [1, True, [], {}], "text"),
        (NUMBERS, ["1", 1.5, True, [], {}], "a whole number"),
        (["parentIds", "childIds"], ["x", {}, [1], [None]], "an array of texts"),
        (["updatedAttributes", "previousAttributes"], ["x", [], {"a": 1}, {"a": {}}], "an object"),
    ],
)
def test_a_value_of_the_wrong_type_is_named_with_its_key(keys: list[str], bad: list[object], expected: str) -> None:
    assert keys
    for key in keys:
        for value in bad:
            with pytest.raises(InvalidInputError, match=f"^{key}: expected {expected}"):
                event_from_json(document("SEND", **{key: value}))


def test_a_wrong_value_is_shown_but_not_at_length() -> None:
    with pytest.raises(InvalidInputError) as caught:
        event_from_json(document("SEND", details=["\N{PILE OF POO}" * 10_000]))
    assert len(str(caught.value)) < 200


def test_unknown_keys_are_kept_as_they_are() -> None:
    extra: dict[str, Any] = {"newInNiFi3": {"a": [1, 2.5, None, "x"]}, "flag": True, "nothing": None}
    given = document("SEND", **extra)
    event = event_from_json(given)
    assert event.extra is not None
    assert json.loads(event.extra) == extra
    assert event_to_json(event) == given


def test_a_timestamp_text_that_contradicts_the_number_is_kept() -> None:
    given = document("SEND", timestamp="yesterday")
    event = event_from_json(given)
    assert event.event_time == given["timestampMillis"]
    assert event_to_json(event) == given


@pytest.mark.parametrize(
    ("changes", "argument", "node"),
    [
        ({}, "argument", NODE),
        ({"contentURI": None}, "argument", NODE),
        ({"contentURI": "http://alone:8080/nifi-api/x", "previousContentURI": None}, "argument", "alone:8080"),
        ({"contentURI": None, "previousContentURI": None}, "argument", "argument"),
        ({"contentURI": None, "previousContentURI": None}, None, "nifi-1.example"),
        ({"contentURI": "http://[broken", "previousContentURI": ""}, None, "nifi-1.example"),
        ({"contentURI": None, "previousContentURI": None, "actorHostname": None}, None, "unknown"),
    ],
)
def test_the_node_is_taken_from_the_surest_place(changes: dict[str, object], argument: str | None, node: str) -> None:
    assert event_from_json(document("SEND", **changes), argument).source_node == node


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_772_409_600_007, "2026-03-02T00:00:00.007Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (10**30, None),
        ("x", None),
    ],
)
def test_a_time_is_written_as_nifi_writes_it(milliseconds: object, text: str | None) -> None:
    assert format_time(milliseconds) == text
