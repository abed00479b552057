"""Validation: an error for what cannot be stored, a warning for what breaks a rule of its type."""

from __future__ import annotations

import pytest

from custody.model import EventType, Severity, check_event
from tests.support import event, sample

LAST_MS = 253_402_300_799_999
INT64_MAX = (1 << 63) - 1


def problems(**values: object) -> list[tuple[Severity, str]]:
    return [(problem.severity, problem.code) for problem in check_event(event(**values))]


def test_a_good_event_has_no_problem() -> None:
    assert problems() == []


def test_sample_events_have_no_problem() -> None:
    assert [check_event(item, relationship_exported=False) for item in sample(300)] == [[]] * 300


@pytest.mark.parametrize("name", ["event_type", "flowfile_uuid", "component_id", "component_type"])
def test_an_empty_text_is_an_error_that_names_the_field(name: str) -> None:
    [problem, *_] = check_event(event(**{name: ""}))
    assert (problem.severity, problem.code) == (Severity.ERROR, "empty-text")
    assert problem.message.startswith(f"{name}: ")


@pytest.mark.parametrize("name", ["file_size", "previous_file_size", "source_ordinal"])
def test_a_size_is_from_0_to_the_greatest_64_bit_number(name: str) -> None:
    for good in (0, INT64_MAX):
        assert problems(**{name: good}) == []
    for bad in (-1, INT64_MAX + 1):
        [problem] = check_event(event(**{name: bad}))
        assert (problem.severity, problem.code) == (Severity.ERROR, "number-range")
        assert name in problem.message
        assert str(bad) in problem.message


@pytest.mark.parametrize("name", ["event_time", "flowfile_entry_date", "lineage_start_date"])
def test_a_time_is_between_the_epoch_and_the_year_10000(name: str) -> None:
    for good in (0, LAST_MS):
        assert problems(**{name: good}) == []
    for bad in (-1, LAST_MS + 1):
        [problem] = check_event(event(**{name: bad}))
        assert (problem.severity, problem.code) == (Severity.ERROR, "time-range")
        assert name in problem.message


def test_a_duration_may_be_unset_but_not_less() -> None:
    assert problems(event_duration=-1) == []
    assert problems(event_duration=INT64_MAX) == []
    assert problems(event_duration=-2) == [(Severity.ERROR, "number-range")]
    assert problems(event_duration=INT64_MAX + 1) == [(Severity.ERROR, "number-range")]


def test_an_unknown_type_is_a_warning_with_a_bounded_text() -> None:
    [problem] = check_event(event(event_type="X" * 10_000))
    assert (problem.severity, problem.code) == (Severity.WARNING, "unknown-type")
    assert len(problem.message) < 200


@pytest.mark.parametrize("kind", ["RECEIVE", "FETCH", "SEND", "UPLOAD"])
def test_a_transfer_should_name_its_transit_uri(kind: str) -> None:
    assert problems(event_type=kind) == [(Severity.WARNING, "no-transit-uri")]
    assert problems(event_type=kind, transit_uri="sftp://host") == []


@pytest.mark.parametrize("kind", ["FORK", "JOIN", "CLONE"])
def test_a_family_event_should_name_relatives(kind: str) -> None:
    assert problems(event_type=kind) == [(Severity.WARNING, "no-relatives")]
    assert problems(event_type=kind, parent_uuids=("p",)) == []
    assert problems(event_type=kind, child_uuids=("c",)) == []


def test_addinfo_should_name_the_other_identifier() -> None:
    assert problems(event_type="ADDINFO") == [(Severity.WARNING, "no-alternate-identifier")]
    assert problems(event_type="ADDINFO", alternate_identifier_uri="urn:x") == []


def test_a_route_should_name_its_relationship_where_the_format_carries_it() -> None:
    routed = event(event_type="ROUTE")
    assert [problem.code for problem in check_event(routed)] == ["no-relationship"]
    assert check_event(routed, relationship_exported=False) == []
    assert problems(event_type="ROUTE", relationship="success") == []


def test_the_types_that_need_nothing_more_have_no_problem() -> None:
    needy = {"RECEIVE", "FETCH", "SEND", "UPLOAD", "FORK", "JOIN", "CLONE", "ADDINFO", "ROUTE"}
    assert len(EventType) == 18
    for kind in set(EventType) - needy:
        assert problems(event_type=kind) == []


def test_all_problems_of_an_event_are_named() -> None:
    assert len(problems(event_type="SEND", file_size=-1, event_time=-1, component_id="")) == 4
