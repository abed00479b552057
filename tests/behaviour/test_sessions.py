"""Sessions on a repository: many threads find a commit at once, and a failed commit says so."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from custody.clock import ManualClock
from custody.errors import ClosedError, LockedError, NotFoundError, StorageError
from custody.repository import Acknowledged, Component, FlowFile, Repository, SlotWriter
from tests.support import FailingFileSystem, run_steps

LOAD = Component(id="dag.load", type="LoadOrders")
SPLIT = Component(id="dag.split", type="SplitOrders")
NOW = 1_772_409_600_000


def test_what_is_committed_is_found_at_once_and_stays_found(repository: Repository) -> None:
    with repository.session(LOAD) as session:
        order = session.create({"filename": "orders.csv", "region": "north"}, size=500)
        session.receive(order, "sftp://shop.example/orders.csv")
    with repository.session(SPLIT) as session:
        session.take(order, queue="load-split")
        rows = [session.fork(order, {"row": str(number)}, size=100) for number in range(3)]
        session.route(rows[0], "express")
        session.send(rows[1], "kafka://broker:9092/orders")
        session.terminate(order, "original")
        merged = session.join(rows[1:], size=200)
        with pytest.raises(NotFoundError):
            repository.lineage([merged.uuid])
    for live in (False, True):
        if live:
            run_steps(repository.settings)
        events = [item.event for item in repository.search("", limit=20).events]
        assert [item.event_type for item in sorted(events, key=lambda item: item.event_id)] == [
            "RECEIVE",
            "SEND",
            "FORK",
            "JOIN",
            "ROUTE",
            "DROP",
        ]
        sent = repository.search("event_type:SEND AND transit_uri:kafka*")
        assert (sent.total, sent.events[0].event.flowfile_uuid) == (1, rows[1].uuid)
        assert repository.get(sent.events[0].event.event_id) == sent.events[0].event
        lineage = repository.lineage([merged.uuid])
        assert (lineage.is_complete, lineage.events) == (True, 6)
        assert [node.uuid for node in lineage.roots()] == [order.uuid]
        assert set(lineage.nodes[order.uuid].children) == {row.uuid for row in rows}
        assert set(lineage.nodes[merged.uuid].parents) == {row.uuid for row in rows[1:]}


def test_sessions_of_many_threads_share_a_writer(repository: Repository) -> None:
    def work(writer: SlotWriter, thread: int) -> list[Acknowledged]:
        told = []
        for number in range(25):
            with repository.session(LOAD, writer) as session:
                parent = session.create({"thread": str(thread), "number": str(number)})
                session.receive(parent, "x:y")
                session.fork(parent)
                session.fork(parent)
                told.append(session.commit())
        return told

    with repository.writer() as writer, ThreadPoolExecutor(8) as pool:
        told = [item for found in pool.map(lambda thread: work(writer, thread), range(8)) for item in found]
    ids = sorted(event_id for item in told for event_id in item.event_ids)
    assert ids == list(range(8 * 25 * 2))
    events = {item.event_id: item for item in repository.events(count=10_000)}
    for item in told:
        fork, receive = (events[event_id] for event_id in item.event_ids)
        assert (fork.event_type, receive.event_type) == ("FORK", "RECEIVE")
        assert fork.flowfile_uuid == receive.flowfile_uuid
        assert fork.updated_attributes == receive.updated_attributes


def test_a_session_holds_a_slot_only_if_none_is_given(repository: Repository) -> None:
    with repository.writer() as writer:
        with pytest.raises(LockedError), repository.session(LOAD):
            pytest.fail("the only slot is taken")
        with repository.session(LOAD, writer) as session:
            session.create()
    with repository.session(LOAD) as session:
        session.create()
        assert session.commit() == Acknowledged("main", range(1, 2))


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_commit_that_the_disk_refuses_is_unknown_and_the_next_session_goes_on(
    repository: Repository, operation: str
) -> None:
    disk = FailingFileSystem()
    broken = Repository(repository.settings, disk, ManualClock(NOW))
    with broken.writer() as writer, broken.session(LOAD, writer) as first:
        first.create({"name": "kept"})
        first.commit()
        unknown = pytest.raises(StorageError, match="It is unknown whether they are stored")
        with unknown, broken.session(LOAD, writer) as second:
            lost: FlowFile = second.create({"name": "unknown"})
            disk.fail_at = len(disk.operations) + {"write": 1, "sync": 2}[operation]
        with pytest.raises(ClosedError):
            second.send(lost, "x:y")
    names = [item.attributes.get("name") for item in repository.events()]
    assert names in (["kept"], ["kept", "unknown"])
    with repository.session(LOAD) as session:
        session.create({"name": "next"})
    assert [item.attributes.get("name") for item in repository.events()][-1] == "next"


def test_what_was_sent_is_kept_whatever_becomes_of_the_session(repository: Repository) -> None:
    with pytest.raises(RuntimeError), repository.session(LOAD) as session:
        order = session.create({"filename": "orders.csv"})
        event_id = session.send(order, "kafka://broker:9092/orders")
        assert event_id is not None
        assert repository.get(event_id).event_type == "SEND"
        raise RuntimeError
    assert [item.event_type for item in repository.events()] == ["SEND"]
