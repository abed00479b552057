"""Notifications as Orion and Orion-LD send them, in each format: taken, or refused and kept with the reason."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from custody.clock import ManualClock
from custody.config import NgsiSection
from custody.ngsi.http_notification import Accepts, Arrival, Read, judge_head, read_arrival
from custody.repository import Repository
from tests.support import run_steps
from tests.unit.ngsi_sink.sink_repository import NOW_MS, files, persist, receive, settings

ORION = {
    "user-agent": "orion/4.1.0 libcurl/7.88.1",
    "accept": "application/json",
    "content-type": "application/json; charset=utf-8",
    "fiware-service": "parks",
    "fiware-servicepath": "/north",
    "fiware-correlator": "5d8b3f0e-1c9a-11ef-9a0b-0242ac120003; cbnotif=1",
}
ORION_LD = {
    "user-agent": "orionld/1.7.0",
    "content-type": "application/geo+json",
    "link": '<https://uri.etsi.org/ngsi-ld/v1/ngsi-ld-core-context-v1.6.jsonld>; rel="http://www.w3.org/ns/json-ld#context"',
    "ngsild-tenant": "parks",
    "ngsild-attribute-format": "Normalized",
}
POINT = {"type": "Point", "coordinates": [8.54, 47.37]}
KEY_VALUES = {
    "subscriptionId": "665f1c2f0b0a7c3c9d0e4a11",
    "data": [{"id": "Bench1", "type": "Bench", "seats": 4, "wood": "oak", "isFree": True, "size": {"x": 1.50}}],
}
VALUES = {"subscriptionId": "665f1c2f0b0a7c3c9d0e4a11", "data": [[4, "oak", True]]}


def feature(**changes: Any) -> dict[str, Any]:
    properties = {
        "type": "Bench",
        "location": {"type": "GeoProperty", "value": POINT},
        "seats": {"type": "Property", "value": 4, "observedAt": "2026-03-04T05:06:00Z"},
    }
    return {"id": "urn:x:Bench1", "type": "Feature", "geometry": POINT, "properties": properties, **changes}


def geojson(*features: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "urn:ngsi-ld:Notification:5d8b3f0e-1c9a-11ef-9a0b-0242ac120003",
        "type": "Notification",
        "subscriptionId": "urn:ngsi-ld:Subscription:benches",
        "notifiedAt": "2026-03-04T05:06:07.089Z",
        "data": {"type": "FeatureCollection", "features": list(features)},
    }


def arrive(document: object, headers: dict[str, str], *formats: str) -> Read:
    accepts = Accepts.of(NgsiSection.model_validate({"attrs_formats": formats} if formats else {}))
    refusal = judge_head("POST", "/notify", headers, accepts)
    if refusal is not None:
        return Read((), (), refusal)
    return read_arrival(Arrival(json.dumps(document).encode(), headers, "/notify", None, NOW_MS), accepts)


def rows(tmp_path: Path, document: object, headers: dict[str, str], *formats: str) -> list[list[str]]:
    """Store a notification, write it, and return name, type and value of each row."""
    repository = Repository(settings(tmp_path, attrs_formats=formats), clock=ManualClock(NOW_MS))
    receive(repository, [json.dumps(document).encode()], NOW_MS, **headers)
    run_steps(repository.settings)
    persist(repository)
    lines = [json.loads(line) for data in files(repository).values() for line in data.splitlines()]
    return [[line["attrName"], line["attrType"], line["attrValue"]] for line in lines]


@pytest.mark.parametrize("header", [{"ngsiv2-attrsformat": "keyValues"}, {}])
def test_key_values_are_kept_where_they_are_not_listed_and_taken_where_they_are(
    tmp_path: Path, header: dict[str, str]
) -> None:
    read = arrive(KEY_VALUES, {**ORION, **header})
    assert read.refusal is not None
    assert (read.refusal.status, read.refusal.code) == (400, "format")
    [kept] = read.rejected
    assert "ngsi.attrs_formats" in kept.problem.message
    assert json.loads(kept.raw)["body"] == KEY_VALUES
    written = rows(tmp_path, KEY_VALUES, {**ORION, **header}, "normalized", "keyValues")
    types = ["Number", "Text", "Boolean", "StructuredValue"]
    assert written == [
        list(row)
        for row in zip(["seats", "wood", "isFree", "size"], types, ["4", "oak", "true", {"x": 1.5}], strict=True)
    ]


def test_values_alone_are_never_taken_and_say_why() -> None:
    by_header = arrive(VALUES, {**ORION, "ngsiv2-attrsformat": "values"}, "normalized", "keyValues")
    assert by_header.refusal is not None
    assert "name neither entity nor attribute" in by_header.refusal.message
    by_body = arrive(VALUES, ORION, "normalized", "keyValues")
    [kept] = by_body.rejected
    assert kept.problem.code == "bad-value"
    assert "ids, types and names are in the subscription only" in kept.problem.message
    assert "Set the subscription's attrsFormat to normalized" in kept.problem.message


def test_a_feature_gives_the_rows_of_its_entity_and_its_geometry_none(tmp_path: Path) -> None:
    written = rows(tmp_path, geojson(feature()), ORION_LD, "normalized", "geoJson")
    assert written == [["location", "GeoProperty", POINT], ["seats", "Property", "4"]]


def test_simplified_features_and_those_without_a_place_are_taken(tmp_path: Path) -> None:
    simple = feature(properties={"type": "Bench", "location": POINT, "seats": 4})
    bare = feature(id="urn:x:Bench2", geometry=None, properties={"type": "Bench", "wood": "oak"})
    headers = {**ORION_LD, "ngsild-attribute-format": "Simplified"}
    written = rows(tmp_path, geojson(simple, bare), headers, "keyValues", "geoJson")
    assert sorted(written) == [
        ["location", "StructuredValue", POINT],
        ["seats", "Number", "4"],
        ["wood", "Text", "oak"],
    ]


def test_geojson_is_kept_where_it_is_not_listed() -> None:
    refused = arrive(geojson(feature()), ORION_LD).refusal
    assert refused is not None
    assert refused.status == 415
    assert "geoJson in ngsi.attrs_formats" in refused.message
    read = arrive(geojson(feature()), {**ORION_LD, "content-type": "application/json"})
    assert read.refusal is not None
    assert (read.refusal.code, len(read.rejected)) == ("format", 1)


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (
            feature(geometry={"type": "Point", "coordinates": [0, 0]}),
            "geometry: expected the value of one of the properties",
        ),
        (feature(properties=None), "properties: expected an object"),
        ({"type": "Feature", "properties": {"type": "Bench"}, "geometry": None}, "id: expected a value"),
        (
            feature(properties={"id": "urn:x:Other"}, geometry=None),
            "properties.id: expected the id in the feature alone",
        ),
        ({"id": "urn:x:1", "type": "Bench"}, "feature: expected one of GeoJSON"),
    ],
)
def test_a_feature_that_says_two_things_goes_to_the_quarantine_and_the_others_are_taken(
    broken: dict[str, Any], says: str
) -> None:
    read = arrive(geojson(feature(), broken), ORION_LD, "normalized", "geoJson")
    assert [event.updated_attributes["ngsi.entity.id"] for event in read.events] == ["urn:x:Bench1"]
    [kept] = read.rejected
    assert says in kept.problem.message


@pytest.mark.parametrize(
    "data", [{"type": "FeatureCollection"}, {"type": "Point"}, {}, {"type": "FeatureCollection", "features": 5}]
)
def test_data_that_are_no_features_are_refused(data: dict[str, Any]) -> None:
    read = arrive({**geojson(), "data": data}, ORION_LD, "normalized", "geoJson")
    assert read.refusal is not None
    assert read.refusal.code in ("bad-value", "empty")


def test_the_model_by_service_path_is_refused_with_what_contradicts_it() -> None:
    for name in ("db-by-service-path", "dm-by-service-path"):
        with pytest.raises(ValueError, match=r"the same row allows db-by-entity alone.*grouping rule") as raised:
            NgsiSection.model_validate({"data_model": name})
        assert "default of its Data Model" in str(raised.value)
