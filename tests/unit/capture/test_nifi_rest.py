"""NiFi's REST events: what a DTO says becomes an event, in every wrapper that the interface uses."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from custody.capture import Accepted, Format, Rejected
from custody.capture.values import format_time, parse_shown
from custody.errors import InvalidInputError
from custody.model import ContentClaim, Event
from tests.unit.capture.sample_inputs import array, dto, lines, read


def event_of(document: object, zone: str | None = None) -> Event:
    [found] = read(json.dumps(document).encode(), Format.NIFI_REST, zone=zone)
    assert isinstance(found, Accepted), found
    assert not found.warnings
    return found.event


def test_relationship_queue_claims_and_sizes_are_taken_over() -> None:
    event = event_of(dto())
    assert (event.event_type, event.relationship, event.source_queue_identifier) == ("ROUTE", "green", "queue-1")
    assert (event.file_size, event.previous_file_size) == (3000, 3000)
    assert event.content_claim == ContentClaim("default", "8", "1772600000001-8", 0, 3000)
    assert event.previous_content_claim == ContentClaim("default", "7", "1772600000000-7", 512, 3000)
    assert (event.source_node, event.source_ordinal, event.source_host) == ("node-a", 41, "nifi-a.example.org:8443")
    assert (event.process_group_id, event.component_name) == ("group-1", "by colour")


def test_attributes_are_split_into_those_before_and_those_that_changed() -> None:
    event = event_of(dto())
    assert event.previous_attributes == {"colour": "blue", "filename": "leaf.csv", "shade": "dark"}
    assert event.updated_attributes == {"colour": "green", "shade": None, "size": "small"}
    assert event.attributes == {"colour": "green", "filename": "leaf.csv", "size": "small"}


def test_the_lineage_starts_as_long_before_as_the_dto_says() -> None:
    event = event_of(dto())
    assert event.event_time == 1_772_600_767_089
    assert event.lineage_start_date == event.event_time - 1089


@pytest.mark.parametrize(
    "shown",
    [
        "03/04/2026 05:06:07.089 UTC",
        "03/04/2026 05:06:07.089 GMT",
        "03/04/2026 05:06:07.089 Z",
        "03/04/2026 07:06:07.089 +02:00",
        "03/04/2026 00:06:07.089 GMT-05:00",
        "2026-03-04T06:06:07.089+01:00",
    ],
)
def test_the_shown_time_is_read_where_there_is_no_timestamp(shown: str) -> None:
    assert event_of(dto(eventTimestamp=None, eventTime=shown)).event_time == 1_772_600_767_089


@pytest.mark.parametrize("shown", ["04.03.2026 05:06", "13/40/2026 05:06:07.089 UTC", "03/04/2026 05:06:07 Z+1", ""])
@pytest.mark.parametrize("zone", [None, "America/Chicago"])
def test_what_is_no_time_is_refused(shown: str, zone: str | None) -> None:
    with pytest.raises(InvalidInputError, match="eventTime: expected a time such as 01/31/2026"):
        parse_shown("eventTime", shown, zone)


@pytest.mark.parametrize(
    ("shown", "zone"),
    [
        ("03/04/2026 06:06:07.089 CET", None),
        ("03/04/2026 07:06:07.089 CEST", None),
        ("03/04/2026 00:06:07.089 EST", None),
        ("03/04/2026 14:06:07.089 JST", None),
        ("03/04/2026 16:06:07.089 AEDT", None),
        ("03/04/2026 14:36:07.089 ACST", "America/Chicago"),
        ("03/03/2026 23:06:07.089 CST", "America/Chicago"),
        ("03/04/2026 13:06:07.089 CST", "Asia/Shanghai"),
        ("03/04/2026 10:36:07.089 IST", "Asia/Kolkata"),
        ("03/04/2026 07:06:07.089 IST", "Asia/Jerusalem"),
        ("03/04/2026 09:06:07.089 GST", "Asia/Dubai"),
    ],
)
def test_letters_of_a_zone_are_read_and_the_setting_decides_what_stands_for_several(
    shown: str, zone: str | None
) -> None:
    event = event_of(dto(eventTimestamp=None, eventTime=shown), zone)
    assert event.event_time == 1_772_600_767_089


@pytest.mark.parametrize(("letters", "hour"), [("PDT", 8), ("PST", 9)])
def test_an_hour_that_the_clock_shows_twice_is_told_by_its_letters(letters: str, hour: int) -> None:
    shown = parse_shown("eventTime", f"11/01/2026 01:30:00.000 {letters}", "America/Los_Angeles")
    assert format_time(shown) == f"2026-11-01T{hour:02d}:30:00.000Z"


@pytest.mark.parametrize(
    ("letters", "zone", "says"),
    [
        ("CST", None, "Name the zone of the server's clock by capture.nifi_zone; got '03/04/2026 05:06:07.089 CST'"),
        ("XYZ", None, "Name the zone of the server's clock by capture.nifi_zone"),
        ("IST", "America/Chicago", r"expected letters of America/Chicago \(capture.nifi_zone\) at that time"),
        ("CDT", "America/Chicago", r"expected letters of America/Chicago \(capture.nifi_zone\) at that time"),
    ],
)
def test_letters_that_stand_for_several_zones_are_refused_with_what_to_do(
    letters: str, zone: str | None, says: str
) -> None:
    with pytest.raises(InvalidInputError, match=says):
        parse_shown("eventTime", f"03/04/2026 05:06:07.089 {letters}", zone)


@pytest.mark.parametrize(
    "wrap",
    [
        array,
        lines,
        lambda dtos: lines({"provenanceEvent": found} for found in dtos),
        lambda dtos: json.dumps({"provenanceEvents": dtos}).encode(),
        lambda dtos: json.dumps({"provenance": {"results": {"provenanceEvents": dtos}}}, indent=2).encode(),
        lambda dtos: array(
            [{"provenanceEvents": dtos[:1]}, {"provenance": {"results": {"provenanceEvents": dtos[1:]}}}]
        ),
    ],
)
def test_events_are_found_in_every_wrapper(wrap: Callable[[list[object]], bytes]) -> None:
    found = read(wrap([dto(1), dto(2), dto(3)]))
    assert [outcome.event.source_ordinal for outcome in found if isinstance(outcome, Accepted)] == [1, 2, 3]


def test_what_nifi_only_knows_now_is_not_kept() -> None:
    now = event_of(dto(replayAvailable=True, connectorId="k"))
    later = event_of(dto(connectorId="k", replayAvailable=False, replayExplanation="gone", inputContentAvailable=False))
    assert now == later
    assert json.loads(now.extra or "") == {"contentEqual": True, "connectorId": "k"}


def test_an_event_without_content_has_no_claim() -> None:
    claims = {key: None for key in dto() if "ContentClaim" in key}
    event = event_of(dto(**claims))
    assert (event.content_claim, event.previous_content_claim, event.previous_file_size) == (None, None, None)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"fileSizeBytes": None}, "fileSizeBytes: expected a value, got no key"),
        ({"eventId": "x"}, 'eventId: expected a whole number, got "x"'),
        ({"attributes": None, "parentUuids": None}, "got a summary. Query with summarize=false"),
        ({"attributes": [{"value": "v"}]}, "attributes.name: expected text, got null"),
        ({"outputContentClaimOffset": -1}, "content_claim: expected offset and size from 0"),
        ({"outputContentClaimOffset": 1 << 70}, "content_claim: expected offset and size from 0"),
        ({"lineageDuration": 1 << 60}, "lineage_start_date: expected ms since the epoch"),
        ({"eventTimestamp": 5}, "eventTimestamp: expected text, got 5"),
    ],
)
def test_a_wrong_value_is_named_with_its_key(changes: dict[str, object], says: str) -> None:
    [found] = read(array([dto(**changes)]), Format.NIFI_REST)
    assert isinstance(found, Rejected)
    assert says in found.problem.message


def test_a_node_of_the_caller_names_an_instance_that_is_no_cluster() -> None:
    [found] = read(array([dto(clusterNodeId=None)]), node="nifi:8080")
    assert isinstance(found, Accepted)
    assert found.event.source_node == "nifi:8080"
