"""The stories of a FlowFile's life: copies, changes, parts and their union, its end, and work that is undone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from custody.flow.content import ResourceClaim
from custody.flowfile_repository import QueueSession
from custody.model import Event
from custody.repository import Component, FlowFile, Repository
from custody.repository.flow import Flow

STEP = Component(id="dag.step", type="Step")


@pytest.fixture
def flow(repository: Repository) -> Iterator[Flow]:
    with repository.flowfiles() as opened:
        for name in ("received", "matched", "unmatched", "done"):
            opened.connect(name)
        yield opened


def _received(flow: Flow, content: bytes, **attributes: str) -> FlowFile:
    with flow.session(STEP) as session:
        flowfile = session.create(attributes)
        session.receive(flowfile, "https://example.org/a")
        session.write_bytes(flowfile, content)
        session.transfer(flowfile, "received")
        return session.current(flowfile)


def _got(session: QueueSession, queue: str) -> FlowFile:
    flowfile = session.get(queue)
    assert flowfile is not None
    return flowfile


def _events(repository: Repository, flowfile: FlowFile) -> list[Event]:
    """The events of a FlowFile itself, in their order."""
    found = (one.event for one in repository.search(f"flowfile_uuid:{flowfile.uuid}", limit=100).events)
    return sorted((one for one in found if one.flowfile_uuid == flowfile.uuid), key=lambda one: one.event_id)


def _kinds(repository: Repository, flowfile: FlowFile) -> list[str]:
    return [one.event_type for one in _events(repository, flowfile)]


def _file(flowfile: FlowFile) -> str:
    resource = ResourceClaim.of(flowfile.content_claim)
    assert resource is not None
    return resource.text


def test_clone_and_route(repository: Repository, flow: Flow) -> None:
    """A FlowFile goes two ways: the copy is another FlowFile with the same bytes, and each way is told."""
    source = _received(flow, b"both ways")
    with flow.session(STEP) as session:
        session.transfer(_got(session, "received"), "matched", "unmatched", relationship="split")
    with flow.session(STEP) as session:
        one, other = _got(session, "matched"), _got(session, "unmatched")
        assert source.uuid == one.uuid != other.uuid
        assert one.content_claim == other.content_claim
        assert session.read_bytes(other) == b"both ways"
        assert flow.queues.claims() == {_file(one): 2}
        session.terminate(one, "success")
        session.transfer(other, "done")
    assert flow.queues.claims() == {_file(other): 1}, "what the copy refers to stays"
    assert _kinds(repository, source) == ["RECEIVE", "ROUTE", "CLONE", "DROP"]
    clone = _events(repository, source)[2]
    assert (clone.parent_uuids, clone.child_uuids) == ((source.uuid,), (other.uuid,))
    lineage = repository.lineage([other.uuid])
    assert set(lineage.nodes[other.uuid].parents) == {source.uuid}


def test_copy_on_write(repository: Repository, flow: Flow) -> None:
    """New content is written to a new place: a copy keeps what it had, and the event shows both."""
    _received(flow, b"the old one")
    with flow.session(STEP) as session:
        session.transfer(_got(session, "received"), "matched", "unmatched")
    with flow.session(STEP) as session:
        before = _got(session, "matched")
        with session.write(before) as output:
            for piece in session.chunks(before):
                output.write(piece.upper())
        session.transfer(before, "done")
    with flow.session(STEP) as session:
        changed, copy = _got(session, "done"), _got(session, "unmatched")
        assert (session.read_bytes(changed), session.read_bytes(copy)) == (b"THE OLD ONE", b"the old one")
        assert changed.content_claim != copy.content_claim == before.content_claim
        session.terminate(changed, "success")
        session.terminate(copy, "success")
    [event] = [one for one in _events(repository, before) if one.event_type == "CONTENT_MODIFIED"]
    assert (event.previous_content_claim, event.content_claim) == (before.content_claim, changed.content_claim)
    assert repository.content(event, previous=True).read() == b"the old one"
    assert repository.content(event).read() == b"THE OLD ONE"


def test_split_and_merge(repository: Repository, flow: Flow) -> None:
    """Parts share the bytes of the whole, a FORK tells of them; a JOIN tells of what they become together."""
    whole = _received(flow, b"1,2,3;", kind="list")
    with flow.session(STEP) as session:
        taken = _got(session, "received")
        parts = session.split(taken, [(0, 1), (2, 1), (4, 1)])
        assert {_file(part) for part in parts} == {_file(whole)}
        for part in parts:
            session.transfer(part, "matched")
        session.terminate(taken, "original")
    assert flow.queues.claims() == {_file(whole): 3}
    with flow.session(STEP) as session:
        found = session.get_many("matched", 10)
        merged = session.merge(found, {"filename": "sum"}, delimiter=b"+")
        assert session.read_bytes(merged) == b"1+2+3"
        assert session.current(merged).attributes["kind"] == "list"
        session.transfer(merged, "done")
        for part in found:
            session.terminate(part, "merged")
    fork = next(one for one in _events(repository, whole) if one.event_type == "FORK")
    assert set(fork.child_uuids) == {part.uuid for part in parts}
    [join] = _events(repository, merged)
    assert (join.event_type, join.child_uuids) == ("JOIN", (merged.uuid,))
    assert set(join.parent_uuids) == {part.uuid for part in parts}
    lineage = repository.lineage([merged.uuid])
    assert [node.uuid for node in lineage.roots()] == [whole.uuid]
    assert lineage.is_complete


def test_associate(repository: Repository, flow: Flow) -> None:
    """Another name of a FlowFile is told by an ADDINFO, and finds it."""
    flowfile = _received(flow, b"x")
    with flow.session(STEP) as session:
        session.associate(_got(session, "received"), "order", "4711")
        session.transfer(flowfile, "done")
    [found] = repository.search('alternate_identifier_uri:"order:4711"').events
    assert (found.event.event_type, found.event.flowfile_uuid) == ("ADDINFO", flowfile.uuid)


def test_drop_and_delete_after_checkpoint(repository: Repository, flow: Flow) -> None:
    """A content that no FlowFile refers to is released only when no state that could come back refers to it."""
    flowfile = _received(flow, b"x")
    flow.queues.checkpoint()
    assert (flow.queues.claims(), flow.queues.archived()) == ({_file(flowfile): 1}, {})
    with flow.session(STEP) as session:
        session.remove(_got(session, "received"))
    assert (flow.queues.claims(), flow.queues.archived()) == ({}, {})
    flow.queues.checkpoint()
    assert list(flow.queues.archived()) == [_file(flowfile)]
    assert _kinds(repository, flowfile) == ["RECEIVE", "DROP"]
    assert repository.content(_events(repository, flowfile)[-1]).read() == b"x", "for a replay"


def test_an_orphaned_write_is_rolled_back(repository: Repository, flow: Flow) -> None:
    """A step dies while it writes: the FlowFile is as it was, and its old content is untouched."""
    flowfile = _received(flow, b"the old one")
    with pytest.raises(RuntimeError), flow.session(STEP) as session:
        taken = _got(session, "received")
        session.write_bytes(taken, b"written and never committed")
        with session.write(taken) as output:
            output.write(b"half of")
            raise RuntimeError
    with flow.session(STEP) as session:
        again = _got(session, "received")
        assert again == flowfile
        assert session.read_bytes(again) == b"the old one"
        session.put_back(again)
    assert flow.queues.claims() == {_file(flowfile): 1}
    assert _kinds(repository, flowfile) == ["RECEIVE"]
