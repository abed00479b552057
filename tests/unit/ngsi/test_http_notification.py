"""Requests: whatever arrives is a notification or a refusal with a status, never an error."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture.ngsi_notification import Notification
from custody.ngsi.http_notification import Accepts, Refusal, judge_head, judge_request
from custody.ngsi.records import ReceiveTime, Record, Unplaced, records
from tests.unit.ngsi.notification_records import HEADERS, NOW_MS, attribute, body, parameters

USED = parameters(attrs_formats=["normalized", "legacy", "keyValues", "simplifiedNormalized", "simplifiedKeyValues"])
ANY = Accepts.of(USED.values)
STATUSES = {400, 404, 405, 413, 415}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("id", "type", "value", "metadata", "data", "contextResponses", "contextElement", "attributes"),
                    *("name", "metadatas", "object", "subscriptionId", "notifiedAt", "observedAt", "@context", "x"),
                    "alterationType",
                ]
            ),
            inner,
            max_size=5,
        )
    ),
    max_leaves=25,
)


@given(
    st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()),
    st.sampled_from([None, "normalized", "keyValues", "legacy", "x"]),
)
def test_any_body_is_taken_or_refused(data: bytes, said: str | None) -> None:
    headers = {**HEADERS, **({"Ngsiv2-AttrsFormat": said} if said else {})}
    found = judge_request("POST", "/notify", headers, data, ANY)
    if isinstance(found, Refusal):
        assert found.status in STATUSES
        assert found.message
        return
    for record in records(found, ReceiveTime.at(NOW_MS, USED), USED):
        assert isinstance(record, Record | Unplaced)


@given(
    st.dictionaries(
        st.sampled_from(
            ["Fiware-Service", "FIWARE-SERVICEPATH", "content-type", "NGSILD-Tenant", "Ngsiv2-AttrsFormat"]
        ),
        st.text(max_size=60),
    ),
    st.text(max_size=10),
    st.text(max_size=10),
)
def test_any_headers_method_and_target_are_taken_or_refused(headers: dict[str, str], method: str, target: str) -> None:
    data = body({"x": attribute("v")})
    for asked in ((method, target), ("POST", "/notify")):
        found = judge_request(*asked, {**HEADERS, **headers}, data, ANY)
        assert isinstance(found, Notification) or found.status in STATUSES


def test_names_of_headers_may_be_in_any_case() -> None:
    headers = {"CONTENT-TYPE": "application/json", "fiware-SERVICE": "parks", "Fiware-Servicepath": "/a"}
    found = judge_request("post", "/notify", headers, body({"x": attribute("v")}), ANY)
    assert isinstance(found, Notification)
    assert (found.service, found.entities[0].path) == ("parks", "/a")


@pytest.mark.parametrize(
    ("attributes", "says"),
    [
        ({"x": {"type": 5, "value": 1}}, "entity 0: x.type: expected text, got 5"),
        ({"x": 5}, "entity 0: x: expected an object, got 5"),
    ],
)
def test_a_refusal_names_what_and_where(attributes: dict[str, object], says: str) -> None:
    headers = {**HEADERS, "Ngsiv2-AttrsFormat": "normalized"}
    found = judge_request("POST", "/notify", headers, body(attributes), ANY)
    assert found == Refusal(400, "bad-value", says)


@pytest.mark.parametrize("header", ["Ngsiv2-Attrsformat", "Ngsild-Attribute-Format"])
@pytest.mark.parametrize("name", ["concise", "Concise"])
def test_the_concise_form_is_taken_by_either_header(header: str, name: str) -> None:
    data = json.dumps(
        {
            "type": "Notification",
            "subscriptionId": "urn:x:1",
            "notifiedAt": "2026-03-01T10:00:00Z",
            "data": [{"id": "urn:x:2", "type": "Shelf", "most": 50, "has": {"object": "urn:x:3"}, "unitCode": "C62"}],
        }
    ).encode()
    found = judge_request("POST", "/notify", {"Content-Type": "application/json", header: name}, data, ANY)
    assert isinstance(found, Notification), found
    assert [(item.name, item.type, item.value.plain) for item in found.entities[0].attributes] == [
        ("most", "Property", "50"),
        ("has", "Relationship", "urn:x:3"),
        ("unitCode", "Text", "C62"),
    ]


@pytest.mark.parametrize("header", ["Ngsiv2-Attrsformat", "Ngsild-Attribute-Format"])
def test_the_simplified_form_is_key_values_by_either_header(header: str) -> None:
    data = body({"x": {"type": "T", "value": 5}})
    found = judge_request("POST", "/notify", {**HEADERS, header: "simplified"}, data, ANY)
    assert isinstance(found, Notification), found
    assert found.entities[0].attributes[0].value.json == '{"type":"T","value":5}'


def test_a_get_is_told_what_is_allowed() -> None:
    found = judge_request("GET", "/notify", {}, b"", ANY)
    assert isinstance(found, Refusal)
    assert (found.status, found.headers) == (405, {"Allow": "POST"})


def test_the_head_decides_before_the_body_is_read() -> None:
    assert judge_head("POST", "/notify", HEADERS, ANY) is None
    refused = {
        "method": ("GET", "/notify", HEADERS),
        "not-found": ("POST", "/x", HEADERS),
        "content-type": ("POST", "/notify", {}),
        "service": ("POST", "/notify", {**HEADERS, "Fiware-Service": "s" * 51}),
        "service-path": ("POST", "/notify", {**HEADERS, "Fiware-ServicePath": "x"}),
        "format": ("POST", "/notify", {**HEADERS, "Ngsiv2-AttrsFormat": "values"}),
    }
    for code, asked in refused.items():
        found = judge_head(*asked, ANY)
        assert found is not None
        assert found.code == code
