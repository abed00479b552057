"""Forks, joins and clones: who is whose child, what children inherit, and when nobody tells of them."""

from __future__ import annotations

import pytest

from custody.errors import (
    InvalidInputError,
)
from tests.unit.flow.event_rules import URI
from tests.unit.flow.session_fixtures import NOW, Work, existing


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


DIGEST = "content.sha256"


def test_a_digest_goes_with_the_content_and_never_to_another_one() -> None:
    work = Work()
    parent, other = work.take(existing("one", **{DIGEST: "d"})), work.take(existing("two", **{DIGEST: "d"}))
    assert DIGEST not in work.fork(parent, size=1).attributes
    assert work.fork(parent, {DIGEST: "own"}).attributes[DIGEST] == "own"
    assert DIGEST not in work.join([parent, other]).attributes
    assert work.clone(parent).attributes[DIGEST] == "d"
    assert DIGEST not in work.clone(parent, size=5).attributes
    assert DIGEST not in work.modify_content(parent, size=100).attributes
    assert work.modify_content(other, size=3, sha256="e").attributes[DIGEST] == "e"
    events = {(event.flowfile_uuid, event.event_type): event for event in work.done()}
    assert events["one", "CONTENT_MODIFIED"].updated_attributes == {DIGEST: None}
    assert events["two", "CONTENT_MODIFIED"].updated_attributes == {DIGEST: "e"}
    assert events["one", "CLONE"].updated_attributes == {}


def test_what_is_changed_later_is_told_with_its_own_digest() -> None:
    work = Work()
    made = work.create({DIGEST: "first", "a": "1"}, size=5)
    work.send(made, URI)
    work.modify_content(made, size=6)
    work.receive(made, URI)
    sent, received = work.done()
    assert (sent.updated_attributes[DIGEST], sent.file_size) == ("first", 5)
    assert (DIGEST in received.updated_attributes, received.file_size) == (False, 6)


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
