"""The outbox: events reach the journal once, whoever delivers them, and no acknowledged one is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from custody.errors import BackpressureError, StorageError
from custody.flowfile_repository import (
    Connection,
    FlowFileOptions,
    FlowFileRepository,
    Placed,
    Work,
)
from custody.flowfile_repository.outbox import with_keys
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.repository.flow import JournalProvenance
from tests.support import event, run_steps
from tests.unit.flowfile_repository.queue_fixtures import HOME, Machine, flowfile, put


@pytest.fixture
def machine() -> Machine:
    return Machine()


def _connected(machine: Machine) -> FlowFileRepository:
    flowfiles = machine.open()
    flowfiles.connect(Connection(name="q"))
    return flowfiles


def test_events_get_keys_that_follow_one_another() -> None:
    keyed = with_keys([event(7), event(8)], "r", 40)
    assert [(one.source_node, one.source_ordinal) for one in keyed] == [("flowfiles:r", 40), ("flowfiles:r", 41)]


def test_a_commit_brings_its_events_into_the_journal(machine: Machine) -> None:
    with _connected(machine) as flowfiles:
        assert put(flowfiles, "q", [flowfile("a")], events=2) == range(2)
        assert put(flowfiles, "q", [flowfile("b")], events=1) == range(2, 3)
        assert put(flowfiles, "q", [flowfile("c")]) == range(0)
    assert [one.source_ordinal for one in machine.journal.events] == [0, 1, 2]


@pytest.mark.parametrize("is_after_append", [False, True])
def test_events_that_the_journal_refused_wait_and_come_once(
    machine: Machine, is_after_append: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with _connected(machine) as flowfiles:
        machine.journal.refuse(is_after_append=is_after_append)
        with caplog.at_level(logging.WARNING):
            assert put(flowfiles, "q", [flowfile("a")], events=2) == range(0), "the commit stands"
        assert "wait to be delivered" in caplog.text
        machine.journal.is_error_after_append = False
        assert flowfiles.size("q").count == 1
        with pytest.raises(BackpressureError, match=r"earlier commit could not be delivered.*Nothing was done"):
            put(flowfiles, "q", [flowfile("b")], events=1)
        assert flowfiles.size("q").count == 1
        machine.journal.error = None
        put(flowfiles, "q", [flowfile("b")], events=1)
        flowfiles.tick()
    assert [one.source_ordinal for one in machine.journal.events] == [0, 1, 2]


def test_only_commits_wait_for_events_that_cannot_be_delivered(machine: Machine) -> None:
    with _connected(machine) as flowfiles:
        put(flowfiles, "q", [flowfile("a")])
        assert flowfiles.take("q", "s").items
        machine.journal.refuse()
        put(flowfiles, "q", [flowfile("b")], events=1)
        flowfiles.give_back("s", ["a"])
        assert flowfiles.size("q").taken == 0
        assert [item.uuid for item in flowfiles.take("q", "s", count=2).items] == ["a", "b"]
        with pytest.raises(BackpressureError):
            flowfiles.commit(Work("s", leaves=["a"]))
        machine.journal.error = None
        flowfiles.commit(Work("s", leaves=["a", "b"]))
        assert len(machine.journal.events) == 1


def test_a_tick_delivers_what_waits(machine: Machine) -> None:
    with _connected(machine) as flowfiles:
        machine.journal.refuse()
        put(flowfiles, "q", [flowfile("a")], events=1)
        machine.journal.error = None
        flowfiles.tick()
        assert len(machine.journal.events) == 1


@pytest.mark.parametrize("is_known", [False, True], ids=["lacks", "has"])
@pytest.mark.parametrize("is_forgotten", [False, True], ids=["kept", "forgotten"])
def test_another_member_delivers_what_a_dead_one_left(machine: Machine, is_known: bool, is_forgotten: bool) -> None:
    flowfiles = _connected(machine)
    machine.journal.refuse(is_after_append=is_known)
    put(flowfiles, "q", [flowfile("a")], events=2)
    machine.journal.error = None
    if is_forgotten:
        machine.journal.forgotten = {(one.source_node, one.source_ordinal) for one in machine.journal.events}
        machine.journal.events = []
    machine.die()
    for _ in range(2):
        with machine.open():
            pass
    assert len(machine.journal.events) == (0 if is_known and is_forgotten else 2)
    assert len({one.source_ordinal for one in machine.journal.events}) == len(machine.journal.events)


def test_a_living_member_s_events_are_its_own_to_deliver(machine: Machine) -> None:
    with _connected(machine) as first:
        machine.journal.refuse()
        put(first, "q", [flowfile("a")], events=1)
        machine.journal.error = None
        with machine.open() as second:
            second.tick()
            second.checkpoint()
            assert machine.journal.events == []
        first.tick()
        assert len(machine.journal.events) == 1


def test_events_wait_through_snapshots_and_a_close_that_cannot_deliver(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    flowfiles = _connected(machine)
    machine.journal.refuse()
    put(flowfiles, "q", [flowfile("a")], events=1)
    with pytest.raises(BackpressureError):
        flowfiles.checkpoint()
    flowfiles.close()
    assert "events of 1 commits wait to be delivered" in caplog.text
    machine.journal.error = None
    with machine.open() as other:
        assert len(machine.journal.events) == 1
        other.checkpoint()
    with machine.open():
        assert len(machine.journal.events) == 1


def test_the_log_learns_of_a_delivery_also_when_nothing_is_taken_in_between(machine: Machine) -> None:
    def undelivered(flowfiles: FlowFileRepository) -> int:
        return flowfiles._read(lambda state: len(state.undelivered))

    with _connected(machine) as flowfiles:
        put(flowfiles, "q", [], events=1)
        assert flowfiles.take("q", "s").items == ()
        with pytest.raises(Exception, match="no queue"):
            flowfiles.take("other", "s")
        put(flowfiles, "q", [flowfile("a")])
        assert undelivered(flowfiles) == 0


def test_a_commit_without_provenance_needs_none(machine: Machine) -> None:
    with FlowFileRepository(machine.fs, HOME, machine.clock) as flowfiles:
        flowfiles.connect(Connection(name="q"))
        assert put(flowfiles, "q", [flowfile("a")], events=1) == range(0)
        assert put(flowfiles, "q", [flowfile("b")], events=1) == range(0)
        assert flowfiles.size("q").count == 2


def _forgotten(repository: Repository) -> None:
    run_steps(repository.settings)
    repository.forget(EventSelection(to_ms=1 << 50), reason="asked for")


def _erased(repository: Repository) -> None:
    _forgotten(repository)
    repository.compact()


@pytest.mark.parametrize(
    ("meanwhile", "count"),
    [(lambda _: None, 2), (lambda repository: run_steps(repository.settings), 2), (_forgotten, 0), (_erased, 0)],
    ids=["in the journal", "live", "forgotten", "erased"],
)
def test_a_real_repository_knows_what_it_has(
    repository: Repository, meanwhile: Callable[[Repository], object], count: int, machine: Machine
) -> None:
    class Failing(JournalProvenance):
        """A journal whose answer is lost."""

        def append(self, events: Sequence[Event]) -> range:
            super().append(events)
            raise StorageError("the answer is lost")

    with repository.writer() as writer:
        flowfiles = FlowFileRepository(
            machine.fs, HOME, machine.clock, Failing(writer, repository.workspaces), FlowFileOptions()
        )
        flowfiles.connect(Connection(name="q"))
        flowfiles.commit(Work("s", [Placed(flowfile("a"), "q")], events=[event(1), event(2)]))
    meanwhile(repository)
    machine.die()
    with (
        repository.writer() as writer,
        FlowFileRepository(machine.fs, HOME, machine.clock, JournalProvenance(writer, repository.workspaces)),
    ):
        pass
    run_steps(repository.settings)
    assert repository.search("", limit=10).total == count
