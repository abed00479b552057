"""Sessions: which events a commit stores, what they show, what a rollback leaves, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from custody.clock import ManualClock
from custody.errors import (
    BackpressureError,
    ClosedError,
    CustodyError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from custody.flow import Component, FlowFile, Session
from custody.model import Acknowledged, ContentClaim, Event, check_event
from tests.unit.flow.sessions import COMPONENT, NOW, Kept, Work, existing, kinds, only

URI = "s3://lake/orders"


def after(act: Callable[[Work, FlowFile], object], *, new: bool = False, queue: str | None = None) -> list[Event]:
    """The events of a session that does one thing with one FlowFile."""
    work = Work()
    act(work, work.create() if new else work.take(existing(), queue=queue))
    return work.done()


RULES: list[tuple[str, Callable[[Work, FlowFile], object], list[str], list[str]]] = [
    # what is done, the events of a FlowFile that was there, the events of one that was made in the session
    ("nothing", lambda w, f: None, [], ["CREATE"]),
    ("receive", lambda w, f: w.receive(f, URI), ["RECEIVE"], ["RECEIVE"]),
    ("fetch", lambda w, f: w.fetch(f, URI), ["FETCH"], ["FETCH"]),
    ("send", lambda w, f: w.send(f, URI), ["SEND"], ["SEND", "CREATE"]),
    ("send at the commit", lambda w, f: w.send(f, URI, force=False), ["SEND"], ["SEND", "CREATE"]),
    ("upload", lambda w, f: w.upload(f, URI, 7, force=False), ["UPLOAD"], ["UPLOAD", "CREATE"]),
    ("remote", lambda w, f: w.remote_invocation(f, URI), ["REMOTE_INVOCATION"], ["REMOTE_INVOCATION", "CREATE"]),
    ("route", lambda w, f: w.route(f, "success"), ["ROUTE"], ["ROUTE", "CREATE"]),
    ("addinfo", lambda w, f: w.addinfo(f, "order", "7"), ["ADDINFO"], ["ADDINFO", "CREATE"]),
    ("content", lambda w, f: w.modify_content(f, size=5), ["CONTENT_MODIFIED"], ["CREATE"]),
    (
        "content, reported",
        lambda w, f: w.modify_content(f, size=5, details="zipped"),
        ["CONTENT_MODIFIED"],
        ["CONTENT_MODIFIED", "CREATE"],
    ),
    ("attributes", lambda w, f: w.modify_attributes(f, {"a": "1"}), ["ATTRIBUTES_MODIFIED"], ["CREATE"]),
    (
        "attributes, reported",
        lambda w, f: w.modify_attributes(f, {"a": "1"}, details="by hand"),
        ["ATTRIBUTES_MODIFIED"],
        ["ATTRIBUTES_MODIFIED", "CREATE"],
    ),
    ("same attributes", lambda w, f: w.modify_attributes(f, {"filename": f.attributes["filename"]}), [], ["CREATE"]),
    ("clone", lambda w, f: w.clone(f), ["CLONE"], ["CLONE", "CREATE"]),
    ("fork", lambda w, f: w.fork(f), ["FORK"], ["FORK", "CREATE"]),
    ("join", lambda w, f: w.join([f]), ["JOIN"], ["JOIN", "CREATE"]),
    ("drop", lambda w, f: w.drop(f), ["DROP"], []),
    ("terminate", lambda w, f: w.terminate(f, "done"), ["DROP"], ["CREATE", "DROP"]),
]


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


def test_all_events_of_a_session_are_one_append_and_their_ids_are_returned() -> None:
    work = Work()
    work.kept.append([])
    for _ in range(3):
        work.receive(work.create(), URI)
    assert work.commit() == Acknowledged("main", range(3))
    assert [len(events) for events in work.kept.appends] == [0, 3]


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


def test_what_was_sent_by_force_survives_a_rollback_and_nothing_else_does() -> None:
    work = Work()
    flowfile = work.create()
    work.send(flowfile, URI)
    work.send(flowfile, URI, force=False)
    work.upload(flowfile, URI, 0)
    work.route(flowfile, "success")
    work.rollback()
    assert kinds(work.kept.events) == ["SEND", "UPLOAD"]


def test_children_of_a_parent_are_one_fork_and_those_that_were_dropped_are_left_out() -> None:
    work = Work()
    parent = work.take(existing(kept="yes", **{"alternate.identifier": "x", "discard.reason": "y"}))
    children = [work.fork(parent, {"index": str(number)}, size=number) for number in range(3)]
    work.drop(children[1])
    lonely = work.fork(work.take(existing("other")))
    work.drop(lonely)
    [fork] = work.done()
    assert fork.child_uuids == (children[0].uuid, children[2].uuid)
    assert children[2].attributes == {
        "uuid": children[2].uuid,
        "filename": "old.csv",
        "path": "./",
        "kept": "yes",
        "index": "2",
    }
    assert (children[2].lineage_start_date, children[2].entry_date) == (NOW - 90_000, NOW)


def test_a_joined_flowfile_has_what_its_parents_share_and_the_oldest_beginning() -> None:
    work = Work()
    one, two = existing("one", a="1", b="2"), existing("two", a="1", b="3")
    for parent in (one, two):
        work.take(parent)
    child = work.join([one, two, one], {"count": "2"}, size=200)
    assert child.attributes == {"uuid": "new-0", "filename": "new-0", "path": "./", "a": "1", "count": "2"}
    assert child.lineage_start_date == NOW - 90_000
    work.modify_attributes(child, {"late": "yes"})
    [join] = work.done()
    assert join.parent_uuids == ("one", "two")
    assert join.updated_attributes["late"] == "yes"
    assert (join.file_size, join.previous_file_size) == (200, None)


def test_a_joined_flowfile_that_is_dropped_never_was() -> None:
    work = Work()
    work.drop(work.join([work.take(existing())]))
    assert work.done() == []


def test_a_whole_copy_is_a_clone_and_a_part_is_a_child() -> None:
    work = Work()
    parent = work.take(existing())
    whole, part, rest = work.clone(parent), work.clone(parent, offset=10, size=5), work.clone(parent, offset=90)
    work.modify_attributes(parent, {"later": "yes"})
    fork, clone = work.done()
    assert (fork.event_type, fork.child_uuids) == ("FORK", (part.uuid, rest.uuid))
    assert (clone.event_type, clone.child_uuids, clone.flowfile_uuid) == ("CLONE", (whole.uuid,), "old")
    assert clone.updated_attributes == {}
    assert fork.updated_attributes == {"later": "yes"}
    assert part.content_claim is not None
    assert (part.size, part.content_claim.offset, part.content_claim.size) == (5, 20, 5)
    assert (rest.size, whole.size) == (10, 100)
    assert whole.attributes == {**parent.attributes, "uuid": whole.uuid}
    assert whole.entry_date == parent.entry_date


@pytest.mark.parametrize(("offset", "size"), [(-1, 5), (0, 101), (96, 5), (0, -1), (101, None)])
def test_a_part_has_to_lie_in_its_flowfile(offset: int, size: int | None) -> None:
    work = Work()
    with pytest.raises(InvalidInputError, match="expected a part of its 100 bytes"):
        work.clone(work.take(existing()), offset=offset, size=size)


def test_a_new_flowfile_that_is_dropped_ends_if_events_tell_of_it() -> None:
    work = Work()
    received, sent, copied = work.create(), work.create(), work.take(existing())
    work.receive(received, URI)
    work.send(sent, URI)
    copy = work.clone(copied)
    for flowfile in (received, sent, copy):
        work.drop(flowfile, "not needed")
    found = [(event.event_type, event.flowfile_uuid) for event in work.done()]
    assert found == [
        ("SEND", sent.uuid),
        ("RECEIVE", received.uuid),
        ("CLONE", "old"),
        ("DROP", received.uuid),
        ("DROP", sent.uuid),
        ("DROP", copy.uuid),
    ]
    assert work.kept.events[-1].details == "Discard reason: not needed"


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


@pytest.mark.parametrize(
    "act",
    [
        lambda w, f: w.modify_attributes(f, {"a": "1"}),
        lambda w, f: w.send(f, URI),
        lambda w, f: w.route(f, "success"),
        lambda w, f: w.fork(f),
        lambda w, f: w.join([f]),
        lambda w, f: w.clone(f),
    ],
)
def test_only_a_flowfile_that_nothing_was_done_with_expires(act: Callable[[Work, FlowFile], object]) -> None:
    work = Work()
    flowfile = work.take(existing())
    act(work, flowfile)
    with pytest.raises(InvalidInputError, match="nothing was done with"):
        work.expire(flowfile, "30 sec")
    with pytest.raises(InvalidInputError, match="nothing was done with"):
        work.expire(work.create(), "30 sec")


def test_an_older_value_stands_for_the_flowfile_as_it_is_now() -> None:
    work = Work()
    first = work.take(existing())
    second = work.modify_attributes(first, {"a": "1"})
    work.modify_attributes(first, {"b": "2"})
    assert first.attributes == existing().attributes
    assert "b" not in second.attributes
    assert work.current(first).attributes == {**existing().attributes, "a": "1", "b": "2"}


WRONG: list[tuple[str, Callable[[Work, FlowFile], object], str]] = [
    ("no transit URI", lambda w, f: w.receive(f, ""), "RECEIVE of FlowFile old: .*transit URI"),
    ("no URI of a fetch", lambda w, f: w.fetch(f, ""), "transit URI"),
    ("no URI of a send", lambda w, f: w.send(f, ""), "transit URI"),
    ("no URI of an upload", lambda w, f: w.upload(f, "", 1), "transit URI"),
    ("no URI of an invocation", lambda w, f: w.remote_invocation(f, ""), "transit_uri"),
    ("no relationship", lambda w, f: w.route(f, ""), "relationship"),
    ("no identifier", lambda w, f: w.addinfo(f, "order", " : "), "expected a namespace and an identifier"),
    ("no namespace", lambda w, f: w.addinfo(f, ":", "7"), "expected a namespace and an identifier"),
    ("a duration", lambda w, f: w.receive(f, URI, duration_ms=-2), "event_duration"),
    ("uploaded bytes", lambda w, f: w.upload(f, URI, -1), "uploaded_bytes"),
    ("a size", lambda w, f: w.modify_content(f, size=-1), "size: expected 0 bytes or more, got -1"),
    ("a new size", lambda w, f: w.create(size=-1), "size"),
    ("the uuid", lambda w, f: w.modify_attributes(f, {"uuid": "x"}), "keeps its uuid"),
    ("the new uuid", lambda w, f: w.create({"uuid": "x"}), "keeps its uuid"),
    ("a value", lambda w, f: w.modify_attributes(f, {"a": 1}), "expected text, got 1"),  # type: ignore[dict-item]
    ("no value", lambda w, f: w.create({"a": None}), "expected text, got None"),  # type: ignore[dict-item]
    ("a name", lambda w, f: w.modify_attributes(f, {"": "x"}), "expected a name"),
    ("no parents", lambda w, f: w.join([]), "expected at least one FlowFile"),
    ("taken twice", lambda w, f: w.take(f), "has it already"),
]


@pytest.mark.parametrize(("act", "message"), [case[1:] for case in WRONG], ids=[case[0] for case in WRONG])
def test_wrong_use_is_refused_and_leaves_no_trace(act: Callable[[Work, FlowFile], object], message: str) -> None:
    work = Work()
    flowfile = work.take(existing())
    with pytest.raises(InvalidInputError, match=message):
        act(work, flowfile)
    assert work.current(flowfile) == existing()
    assert work.done() == []


USES: list[Callable[[Work, FlowFile], object]] = [
    *(rule[1] for rule in RULES if rule[0] != "nothing"),
    lambda w, f: w.expire(f, "1 sec"),
    lambda w, f: w.current(f),
]


@pytest.mark.parametrize("act", USES)
def test_every_method_refuses_unknown_and_ended_flowfiles_and_ended_sessions(
    act: Callable[[Work, FlowFile], object],
) -> None:
    work = Work()
    with pytest.raises(NotFoundError, match="does not know it"):
        act(work, existing("stranger"))
    ends: list[Callable[[FlowFile], object]] = [
        work.drop,
        lambda f: work.terminate(f, "x"),
        lambda f: work.expire(f, "1"),
    ]
    for name, end in zip("abc", ends, strict=True):
        flowfile = work.take(existing(name))
        end(flowfile)
        with pytest.raises(NotFoundError, match="has ended in this session"):
            act(work, flowfile)
    last = work.take(existing("last"))
    work.commit()
    with pytest.raises(ClosedError, match="LoadOrders was committed"):
        act(work, last)
    rolled = Work()
    flowfile = rolled.take(existing())
    rolled.rollback()
    with pytest.raises(ClosedError, match="was rolled back"):
        act(rolled, flowfile)


def test_an_ended_session_does_nothing_more() -> None:
    work = Work()
    work.commit()
    take = partial(work.take, existing())
    for act in (work.commit, work.rollback, work.create, work.__enter__, take):
        with pytest.raises(ClosedError, match="was committed"):
            act()


@pytest.mark.parametrize("error", [BackpressureError("full"), ClosedError("closed"), InvalidInputError("bad")])
def test_a_commit_that_was_refused_can_be_tried_again(error: CustodyError) -> None:
    work = Work()
    work.create()
    work.kept.error = error
    with pytest.raises(type(error)):
        work.commit()
    work.kept.error = None
    assert work.commit().event_ids == range(1)


@pytest.mark.parametrize("error", [StorageError("cannot sync"), KeyboardInterrupt()])
def test_a_commit_that_failed_says_what_is_unknown_and_can_only_be_rolled_back(error: BaseException) -> None:
    work = Work()
    flowfile = work.create()
    work.kept.error = error
    with pytest.raises(type(error)) as caught:
        work.commit()
    if isinstance(error, StorageError):
        assert "writer 'main': the commit of 1 events of LoadOrders failed: cannot sync" in str(caught.value)
        assert "It is unknown whether they are stored" in str(caught.value)
        assert caught.value.__cause__ is error
    work.kept.error = None
    acts: list[Callable[[], object]] = [work.commit, lambda: work.route(flowfile, "x")]
    for act in acts:
        with pytest.raises(ClosedError, match="can only be rolled back"):
            act()
    work.rollback()
    assert work.kept.events == []


def test_the_block_commits_at_its_end_and_rolls_back_when_it_raises() -> None:
    with Work() as work:
        work.create()
    assert kinds(work.kept.events) == ["CREATE"]
    with pytest.raises(RuntimeError), Work() as failed:
        failed.create()
        raise RuntimeError
    assert failed.kept.events == []
    with pytest.raises(ClosedError, match="was rolled back"):
        failed.commit()
    with Work() as ended:
        ended.create()
        ended.commit()
    assert kinds(ended.kept.events) == ["CREATE"]
    with Work() as left:
        left.create()
        left.rollback()
    assert left.kept.events == []


def test_a_block_whose_commit_fails_raises_and_is_rolled_back() -> None:
    kept = Kept()
    kept.error = StorageError("cannot sync")
    with pytest.raises(StorageError, match="unknown"), Work(kept) as work:
        work.create()
    with pytest.raises(ClosedError, match="was rolled back"):
        work.create()


@pytest.mark.parametrize(("id", "type"), [("", "T"), ("i", "")])
def test_a_component_has_an_id_and_a_type(id: str, type: str) -> None:
    with pytest.raises(InvalidInputError, match="expected an id and a type"):
        Session(Component(id=id, type=type), Kept(), ManualClock())
