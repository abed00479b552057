"""NiFi's Site-to-Site JSON: the fast way in gives what the plain one gives, and an event goes out as it came in."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.capture import Accepted, event_to_json
from custody.capture.nifi_json import KEYS, event_from_bytes, event_from_json
from custody.errors import InvalidInputError
from custody.sample import SampleOptions, sample_events
from tests.unit.capture.sample_inputs import Json, array, payloads, read

EVENTS = payloads(30)
VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=6)
    | st.lists(st.text(max_size=3) | st.none(), max_size=2)
    | st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.none(), max_size=2)
    | st.sampled_from(
        ["http://[", "https://h:1/x?clusterNodeId=a%20b", "x?clusterNodeId=", "nifi://n/?a=1", 1e300, 2.0]
    )
)


def outcome(document: Json, *, fast: bool) -> object:
    raw = json.dumps(document).encode()
    try:
        return event_from_bytes(raw, "n") if fast else event_from_json(msgspec.json.decode(raw), "n")
    except InvalidInputError as error:
        return str(error)


@given(
    st.sampled_from(EVENTS), st.dictionaries(st.sampled_from([*sorted(KEYS), "timestamp", "new"]), VALUES, max_size=3)
)
def test_the_fast_reader_gives_what_the_plain_one_gives(event: Json, changes: Json) -> None:
    changed = {**event, **changes}
    assert outcome(changed, fast=True) == outcome(changed, fast=False)


@pytest.mark.parametrize("include_nulls", [True, False])
def test_an_event_goes_out_as_it_came_in(include_nulls: bool) -> None:
    for event in sample_events(SampleOptions(events=60, include_nulls=include_nulls)):
        [found] = read(array([event]))
        assert isinstance(found, Accepted)
        assert event_to_json(found.event) == {key: value for key, value in event.items() if value is not None}


@pytest.mark.parametrize(
    ("uri", "node"),
    [
        ("https://h.example.org:8443/nifi-api/provenance-events/7/content/output?clusterNodeId=a-1", "a-1"),
        ("http://h:8080/nifi-api/provenance-events/7/content/output", "h:8080"),
        ("http://h:8080/x?size=1&clusterNodeId=b%2F2", "b/2"),
        ("http://h:8080/x?size=1", "h:8080"),
        ("not a uri", "host"),
        ("http://[", "host"),
    ],
)
def test_the_node_comes_from_the_content_uri(uri: str, node: str) -> None:
    event = {**EVENTS[0], "contentURI": uri, "previousContentURI": None, "actorHostname": "host"}
    assert event_from_bytes(json.dumps(event).encode()).source_node == node


def test_a_whole_number_may_be_written_with_a_point() -> None:
    for extra in ({}, {"new": 1}):
        event = event_from_bytes(json.dumps({**EVENTS[0], "entitySize": 4096.0, **extra}).encode())
        assert event.file_size == 4096
        assert isinstance(event.file_size, int)
