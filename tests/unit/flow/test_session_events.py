"""What a session tells of a FlowFile: which events, in which order, and what they show."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from custody.flow import FlowFile
from custody.model import ContentClaim, check_event
from tests.unit.flow.event_rules import RULES, URI, after
from tests.unit.flow.session_fixtures import COMPONENT, NOW, Work, existing, kinds, only


@pytest.mark.parametrize(("act", "old", "new"), [rule[1:] for rule in RULES], ids=[rule[0] for rule in RULES])
def test_what_happens_to_a_flowfile_is_told_once(
    act: Callable[[Work, FlowFile], object], old: list[str], new: list[str]
) -> None:
    found_old, found_new = after(act), after(act, new=True)
    assert kinds(found_old) == old
    assert kinds(found_new) == new
    for event in [*found_old, *found_new]:
        assert check_event(event) == []
        assert (event.component_id, event.component_type) == (COMPONENT.id, COMPONENT.type)
        assert (event.component_name, event.process_group_id) == (COMPONENT.name, COMPONENT.process_group_id)


def test_events_come_as_forks_joins_reports_changes_and_ends() -> None:
    work = Work()
    changed, parent, other = (work.take(existing(name)) for name in ("changed", "parent", "other"))
    work.send(work.create(), URI, force=False)
    work.modify_attributes(changed, {"a": "1"})
    work.terminate(parent, "original")
    joined = work.join([other, changed])
    work.drop(other)
    work.route(joined, "merged")
    child = work.fork(changed)
    assert kinds(work.done()) == ["FORK", "JOIN", "SEND", "DROP", "ROUTE", "CREATE", "DROP"]
    [fork, join, send, drop, route, create, end] = work.kept.events
    assert (fork.flowfile_uuid, fork.parent_uuids, fork.child_uuids) == ("changed", ("changed",), (child.uuid,))
    assert (join.flowfile_uuid, join.parent_uuids, join.child_uuids) == (
        joined.uuid,
        ("other", "changed"),
        (joined.uuid,),
    )
    assert (drop.flowfile_uuid, end.flowfile_uuid) == ("other", "parent")
    assert send.flowfile_uuid == create.flowfile_uuid
    assert route.relationship == "merged"
    assert end.details == "Auto-Terminated by original Relationship"


def test_an_event_shows_its_flowfile_as_it_is_at_the_commit() -> None:
    work = Work()
    flowfile = work.take(existing(a="1", b="2"), queue="queue-9")
    work.route(flowfile, "success")
    work.modify_attributes(flowfile, {"a": "x", "b": None, "c": "3"})
    work.modify_attributes(flowfile, {"c": "4", "a": "1"})  # set back: no difference is left
    work.modify_content(flowfile, size=7, content_claim=ContentClaim(container="default", identifier="new"))
    work.clock.advance(250)
    route, modified = work.done()
    assert (route.event_type, modified.event_type) == ("ROUTE", "CONTENT_MODIFIED")
    for event in (route, modified):
        assert event.previous_attributes == existing(a="1", b="2").attributes
        assert event.updated_attributes == {"b": None, "c": "4"}
        assert (event.previous_file_size, event.file_size) == (100, 7)
        assert event.content_claim == ContentClaim(container="default", identifier="new", size=7)
        assert event.previous_content_claim == ContentClaim(
            container="default", section="1", identifier="claim-old", offset=10, size=100
        )
        assert event.source_queue_identifier == "queue-9"
        assert event.event_duration == 250
        assert (event.flowfile_entry_date, event.lineage_start_date) == (NOW - 60_000, NOW - 90_000)
    assert (route.event_time, modified.event_time) == (NOW, NOW + 250)


def test_a_new_flowfile_has_no_before() -> None:
    work = Work()
    flowfile = work.create({"a": "1", "filename": "orders.csv"}, size=3)
    work.clock.advance(5)
    [event] = work.done()
    assert (event.previous_attributes, event.previous_file_size, event.previous_content_claim) == ({}, None, None)
    assert event.updated_attributes == {"uuid": "new-0", "filename": "orders.csv", "path": "./", "a": "1"}
    assert (event.flowfile_uuid, event.file_size) == ("new-0", 3)
    assert flowfile.entry_date == flowfile.lineage_start_date == event.flowfile_entry_date == NOW


@pytest.mark.parametrize("force", [True, False])
def test_what_was_sent_shows_the_flowfile_as_it_was_sent(force: bool) -> None:
    work = Work()
    flowfile = work.take(existing(), queue="queue-9")
    work.modify_attributes(flowfile, {"state": "before"})
    work.clock.advance(10)
    first = work.send(flowfile, URI, force=force)
    work.upload(flowfile, URI, 12, force=force, details="manifest", duration_ms=3)
    assert first == (0 if force else None)
    assert len(work.kept.appends) == (2 if force else 0)
    work.clock.advance(10)
    work.modify_attributes(flowfile, {"state": "after"})
    work.modify_content(flowfile, size=1)
    events = work.done()
    send, upload = only(events, "SEND"), only(events, "UPLOAD")
    for event in (send, upload):
        assert event.updated_attributes == {"state": "before"}
        assert (event.file_size, event.source_queue_identifier) == (100, "queue-9")
        assert event.content_claim is not None
    assert (send.event_duration, upload.event_duration) == (10, 3)
    assert upload.details == "manifest 12 bytes"
    modified = only(events, "CONTENT_MODIFIED")
    assert (modified.updated_attributes, modified.file_size) == ({"state": "after"}, 1)


def test_a_route_back_into_its_own_queue_leads_nowhere() -> None:
    def route(*queues: str) -> Callable[[Work, FlowFile], object]:
        return lambda w, f: w.route(f, "retry", destinations=queues)

    assert kinds(after(route("q"), queue="q")) == []
    assert kinds(after(route("q", "r"), queue="q")) == ["ROUTE"]
    assert kinds(after(route("r"), queue="q")) == ["ROUTE"]
    assert kinds(after(route(), queue="q")) == ["ROUTE"]
    assert kinds(after(route("q"))) == ["ROUTE"]


def test_the_same_report_again_is_stored_once_and_a_second_delivery_twice() -> None:
    work = Work()
    flowfile = work.take(existing())
    for _ in range(2):
        work.route(flowfile, "success")
        work.addinfo(flowfile, "order:", ":7")
        work.addinfo(flowfile, "invoice", "7")
        work.send(flowfile, URI, force=False)
    work.route(flowfile, "failure")
    events = work.done()
    assert kinds(events) == ["ROUTE", "ADDINFO", "ADDINFO", "SEND", "SEND", "ROUTE"]
    assert [event.alternate_identifier_uri for event in events[1:3]] == ["order:7", "invoice:7"]


def test_an_expired_flowfile_shows_all_as_it_was() -> None:
    work = Work()
    work.clock.advance(5)
    flowfile = work.take(existing(), queue="queue-9")
    work.clock.advance(5)
    work.expire(flowfile, "30 sec")
    [event] = work.done()
    assert event.event_type == "EXPIRE"
    assert event.details == "Expiration Threshold = 30 sec"
    assert (event.previous_attributes, event.updated_attributes) == (flowfile.attributes, {})
    assert event.content_claim == event.previous_content_claim
    assert event.content_claim is not None
    assert event.content_claim.size == event.file_size == event.previous_file_size == 100
    assert (event.event_duration, event.source_queue_identifier) == (-1, "queue-9")


def test_an_older_value_stands_for_the_flowfile_as_it_is_now() -> None:
    work = Work()
    first = work.take(existing())
    second = work.modify_attributes(first, {"a": "1"})
    work.modify_attributes(first, {"b": "2"})
    assert first.attributes == existing().attributes
    assert "b" not in second.attributes
    assert work.current(first).attributes == {**existing().attributes, "a": "1", "b": "2"}


NAMED = {"alternate.identifier": "erp:batch-17"}


def test_an_alternate_identifier_that_becomes_an_attribute_is_reported_by_itself() -> None:
    work = Work()
    old = work.take(existing())
    work.modify_attributes(old, NAMED)
    new = work.create(NAMED)
    assert [(item.event_type, item.flowfile_uuid, item.alternate_identifier_uri) for item in work.done()] == [
        ("CREATE", new.uuid, None),
        ("ADDINFO", "old", "erp:batch-17"),
        ("ADDINFO", new.uuid, "erp:batch-17"),
    ]
    for item in work.kept.events:
        assert check_event(item) == []
        assert item.updated_attributes["alternate.identifier"] == "erp:batch-17"


@pytest.mark.parametrize(
    ("before", "changes", "expected"),
    [
        ({}, [NAMED, {"alternate.identifier": "erp:18"}], ["erp:18"]),  # as it is at the commit
        (NAMED, [{"alternate.identifier": "erp:18"}], ["erp:18"]),
        (NAMED, [{"a": "1"}], []),
        (NAMED, [{"alternate.identifier": "x"}, NAMED], []),  # set back: no difference is left
        (NAMED, [{"alternate.identifier": None}], []),
        ({}, [{"alternate.identifier": " "}], []),
        ({}, [{"alternate.identifier": " urn:x "}], ["urn:x"]),
    ],
    ids=str,
)
def test_only_an_identifier_that_the_flowfile_did_not_have_is_reported(
    before: dict[str, str], changes: list[dict[str, str | None]], expected: list[str]
) -> None:
    work = Work()
    flowfile = work.take(existing(**before))
    for change in changes:
        work.modify_attributes(flowfile, change)
    work.terminate(flowfile, "success")
    events = work.done()
    assert [item.alternate_identifier_uri for item in events if item.event_type == "ADDINFO"] == expected
    assert [item.event_type for item in events][-1] == "DROP", "the end of a FlowFile is its last event"


def test_an_identifier_that_was_reported_or_whose_flowfile_was_dropped_is_not_reported_again() -> None:
    work = Work()
    reported, dropped = work.take(existing("reported")), work.take(existing("dropped"))
    work.modify_attributes(reported, NAMED)
    work.addinfo(reported, "erp", "batch-17", details="from the form")
    work.addinfo(reported, "crm", "9")
    work.modify_attributes(dropped, NAMED)
    work.drop(dropped)
    assert [(item.event_type, item.alternate_identifier_uri) for item in work.done()] == [
        ("ADDINFO", "erp:batch-17"),
        ("ADDINFO", "crm:9"),
        ("DROP", None),
    ]


def test_a_child_has_no_identifier_of_its_parent() -> None:
    work = Work()
    work.fork(work.take(existing(**NAMED)))
    assert kinds(work.done()) == ["FORK"]
