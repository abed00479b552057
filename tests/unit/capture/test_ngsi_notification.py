"""Notifications as values: what was written is what is kept, and what cannot be read is named with its place."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from custody.capture.ngsi_notification import (
    Metadatum,
    NgsiVersion,
    Notification,
    Shape,
    open_notification,
    read_notification,
)
from custody.capture.raw_json import JsonKind, RawJson, exact_text, to_raw_json
from custody.errors import InvalidInputError
from tests.unit.capture.sample_inputs import Json, entity, envelope, notification
from tests.unit.capture.test_ngsi_events import LD, events_of

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def read(document: object, **headers: str) -> Notification:
    return read_notification(json.dumps(document).encode(), headers)


@given(VALUES, st.sampled_from([None, 1, 4, "\t"]), st.booleans())
def test_a_value_loses_its_blanks_and_nothing_else(value: Any, indent: int | str | None, ascii_only: bool) -> None:
    written = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    kept = to_raw_json(msgspec.Raw(written.encode()))
    assert kept.json == json.dumps(value, separators=(",", ":"), ensure_ascii=ascii_only)
    assert json.loads(kept.json) == value


@pytest.mark.parametrize(
    ("written", "kind", "plain"),
    [
        ("null", JsonKind.NULL, "null"),
        ("true", JsonKind.BOOLEAN, "true"),
        ("-1.50E+3", JsonKind.NUMBER, "-1.50E+3"),
        ('"a\\u00e9\\n"', JsonKind.STRING, "aé\n"),
        ("[1, 2]", JsonKind.ARRAY, "[1,2]"),
        ('{"a": " b "}', JsonKind.OBJECT, '{"a":" b "}'),
    ],
)
def test_the_kinds_of_values(written: str, kind: JsonKind, plain: str) -> None:
    kept = to_raw_json(msgspec.Raw(written.encode()))
    assert (kept.kind, kept.plain, kept.is_composite) == (kind, plain, kind in (JsonKind.ARRAY, JsonKind.OBJECT))


@given(st.text())
def test_characters_become_a_value_and_come_back(text: str) -> None:
    assert exact_text(text).plain == text
    assert json.loads(exact_text(text).json) == text


def test_entities_attributes_and_metadata_are_in_their_order() -> None:
    body = (
        b'{"data": [{"id": "a", "z": {"value": 1.0, "type": "Number", "metadata": {"n": {"type": "T", "value": [1 ]},'
        b' "m": {"value": null}}}, "type": "X", "b": {"value": "v"}}]}'
    )
    found = read_notification(body, {"Fiware-Correlator": "c", "NGSILD-Tenant": "t"})
    [one] = found.entities
    assert (found.version, found.service, found.correlator, found.size) == (NgsiVersion.V2, "t", "c", 1)
    assert (one.id, one.type, one.path, one.shape) == ("a", "X", None, Shape.NORMALIZED)
    first, second = one.attributes
    assert (first.name, first.type, first.value) == ("z", "Number", RawJson("1.0"))
    assert first.metadata == (Metadatum("n", "T", RawJson("[1]")), Metadatum("m", "", RawJson("null")))
    assert (second.name, second.type, second.value.plain) == ("b", "", "v")


def metadata_of(attribute: Json, **more: object) -> list[tuple[str, str, object]]:
    body = {"data": [{"id": "a", "type": "T", "x": attribute}], **more}
    [one] = read_notification(json.dumps(body).encode(), {}).entities
    assert one.shape is Shape.NORMALIZED
    [found] = one.attributes
    return [(item.name, item.type, json.loads(item.value.json)) for item in found.metadata]


@pytest.mark.parametrize(
    ("attribute", "expected"),
    [
        (
            {"unitCode": "C62", "observedAt": "2026-03-01T10:11:57Z", "metadata": {"accuracy": {"value": 0.05}}},
            [("unitCode", "Text", "C62"), ("observedAt", "DateTime", "2026-03-01T10:11:57Z"), ("accuracy", "", 0.05)],
        ),
        (
            {"metadata": {"unitCode": "C62", "n": 5, "b": True, "l": [1], "o": {"a": 1}, "z": None}},
            [
                ("unitCode", "Text", "C62"),
                ("n", "Number", 5),
                ("b", "Boolean", True),
                ("l", "StructuredValue", [1]),
                ("o", "StructuredValue", {"a": 1}),
                ("z", "None", None),
            ],
        ),
        (
            {"metadata": {"m": {"type": "T", "value": 1, "unitCode": "C62", "metadata": {"n": {"value": 2}}}}},
            [("m", "T", 1), ("m.unitCode", "Text", "C62"), ("m.n", "", 2)],
        ),
        ({"metadata": {"metadata": {"type": "T", "value": 1}}}, [("metadata", "T", 1)]),
        ({"metadata": {"type": "Property", "value": "x"}}, [("metadata", "Property", "x")]),
        (
            {"metadata": {"type": "Property", "value": 1, "n": 2}},
            [("metadata", "Property", 1), ("metadata.n", "Number", 2)],
        ),
        (
            {"metadata": {"type": {"type": "T", "value": 1}, "value": {"value": 2}}},
            [("type", "T", 1), ("value", "", 2)],
        ),
        ({"metadata": {"type": "x"}}, [("type", "Text", "x")]),
        ({"metadata": {"m" * 300: {"value": 1, "n": 2}}}, [("m" * 300, "StructuredValue", {"value": 1, "n": 2})]),
        ({"metadata": "words"}, [("metadata", "Text", "words")]),
        ({"metadata": [1]}, [("metadata", "StructuredValue", [1])]),
        ({"metadata": {"m": {"type": 5, "value": 1}}}, [("m", "StructuredValue", {"type": 5, "value": 1})]),
        ({"sensor": {"type": "Relationship", "value": "urn:x:1"}}, [("sensor", "Relationship", "urn:x:1")]),
        ({"metadata": None}, []),
    ],
)
def test_whatever_stands_beside_a_value_is_kept_as_metadata(
    attribute: Json, expected: list[tuple[str, str, object]]
) -> None:
    assert metadata_of({"type": "Number", "value": 0.33, **attribute}) == expected


def test_what_ngsi_v1_does_not_know_is_kept_as_metadata() -> None:
    metadatas = [{"name": "m", "type": "T", "value": 1, "unit": "si"}]
    attribute = {"name": "x", "type": "Number", "value": 4, "metadatas": metadatas, "observedAt": "now"}
    element = {"id": "a", "type": "T", "attributes": [attribute]}
    body = {"contextResponses": [{"contextElement": element}]}
    [found] = read_notification(json.dumps(body).encode(), {}).entities[0].attributes
    assert [(item.name, item.type, item.value.plain) for item in found.metadata] == [
        ("m", "T", "1"),
        ("m.unit", "Text", "si"),
        ("observedAt", "DateTime", "now"),
    ]


def test_an_array_of_values_is_one_value_in_concise_form() -> None:
    """An array of objects is one of instances."""
    many = [{"value": 1, "datasetId": "urn:a"}, {"value": 2, "datasetId": "urn:b"}]
    data = [{"id": "a", "type": "T", "tags": ["x", "y"], "none": [], "many": many, "p": {"value": 1, "sub": []}}]
    body = json.dumps({**LD, "data": data}).encode()
    [one] = read_notification(body, {}, shape=Shape.NORMALIZED).entities
    assert [(item.name, json.loads(item.value.json)) for item in one.attributes] == [
        ("tags", ["x", "y"]),
        ("none", []),
        ("many", 1),
        ("many", 2),
        ("p", 1),
    ]
    assert [(item.name, item.value.json) for item in one.attributes[-1].metadata] == [("sub", "[]")]


def test_an_entity_that_cannot_be_read_leaves_the_others() -> None:
    found = read(notification(entity(1), {"id": 5}, entity(3)))
    assert [item.index for item in found.entities] == [0, 2]
    assert [(item.index, item.reason) for item in found.broken] == [(1, "id: expected text, got 5")]


def test_one_of_many_entities_is_read_as_if_there_were_no_others() -> None:
    body = json.dumps(notification(entity(1), {"id": 5}, entity(3))).encode()
    headers = {"Fiware-ServicePath": "/a, /b, /c"}
    opened, whole = open_notification(body), read_notification(body, headers)
    assert opened.read(headers, only=2) == replace(whole, entities=(whole.entities[1],), broken=())
    assert opened.read(headers, only=1) == replace(whole, entities=(), broken=whole.broken)
    for missing in (-1, 3):
        with pytest.raises(InvalidInputError, match=f"entity {missing}: expected one of 3"):
            opened.read(headers, only=missing)


@pytest.mark.parametrize(
    ("attribute", "says"),
    [
        ({"type": "Property", "value": 1, "observedAt": {}}, None),
        ({"type": ["Property"], "value": 1}, "x.type: expected text, got"),
        ([1, {"type": "Property", "value": 1}], None),
        ({"type": "Property", "value": 1, "sub": {"type": 5, "value": 1}}, "sub.type: expected text, got 5"),
    ],
)
def test_what_is_wrong_with_linked_data_is_named(attribute: object, says: str | None) -> None:
    body: Json = {**LD, "data": [{"id": "urn:x:1", "type": "T", "x": attribute}]}
    found = read_notification(json.dumps(body).encode(), {}, shape=Shape.NORMALIZED)
    assert [broken.reason.split(" got")[0] for broken in found.broken] == ([says.split(" got")[0]] if says else [])


def test_an_event_says_which_headers_were_missing() -> None:
    [bare] = events_of(notification())
    assert bare.updated_attributes["ngsi.unnamed"] == "ngsi.service,ngsi.service_path"
    [half] = events_of(envelope(notification(), Fiware_Service="parks"))
    assert half.updated_attributes["ngsi.unnamed"] == "ngsi.service_path"
    [whole] = events_of(envelope(notification(), Fiware_Service="parks", Fiware_ServicePath="/north"))
    assert "ngsi.unnamed" not in whole.updated_attributes


_PARTS = st.sampled_from(["id", "type", "value", "metadata", "seats", "wood", "@context", "x"])
_ENTITY_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "Bench", "Text", "é"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_PARTS, inner, max_size=4),
    max_leaves=12,
)
_ATTRIBUTES = st.fixed_dictionaries(
    {"value": _ENTITY_VALUES},
    optional={
        "type": st.none() | st.sampled_from(["", "Number"]) | st.integers(),
        "metadata": st.none()
        | st.dictionaries(_PARTS, st.fixed_dictionaries({"value": _ENTITY_VALUES}))
        | _ENTITY_VALUES,
        "x": _ENTITY_VALUES,
    },
)
_ENTITIES = st.fixed_dictionaries(
    {"id": st.just("Bench1") | _ENTITY_VALUES},
    optional={
        "type": st.just("Bench") | _ENTITY_VALUES,
        "seats": _ATTRIBUTES,
        "wood": _ATTRIBUTES,
        "x": _ENTITY_VALUES,
    },
)


@given(st.lists(_ENTITIES, min_size=1, max_size=4), st.booleans(), st.sampled_from(["data", "contextResponses"]))
def test_what_is_only_checked_is_refused_as_what_is_read(entities: list[Json], is_linked: bool, key: str) -> None:
    document: Json = {"subscriptionId": "s", key: entities}
    if is_linked:
        document["notifiedAt"] = "2026-03-04T05:06:07Z"
    body = json.dumps(document).encode()
    whole, checked = read_notification(body, {}), read_notification(body, {}, without_values=True)
    assert _bare(checked) == _bare(whole)


def _bare(notification: Notification) -> Notification:
    return replace(notification, entities=tuple(replace(one, attributes=()) for one in notification.entities))


def test_values_are_left_out_where_they_were_only_checked() -> None:
    body = json.dumps(notification(entity(1), {**entity(2), "seats": {"value": 1, "type": 7}}, entity(3))).encode()
    checked = read_notification(body, {}, without_values=True)
    assert [(one.index, one.id, one.type, one.attributes) for one in checked.entities] == [
        (0, "Bench1", "Bench", ()),
        (2, "Bench3", "Bench", ()),
    ]
    assert [one.index for one in checked.broken] == [1]
