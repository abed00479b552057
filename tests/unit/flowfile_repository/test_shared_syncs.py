"""Threads that commit at the same time share syncs: of the log, of the file of contents, of the journal."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Signal
from unittest.mock import patch

import pytest

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import BackpressureError
from custody.flow import Component
from custody.flowfile_repository import Connection, FlowFileRepository
from custody.flowfile_repository.outbox import Outbox
from custody.model import Event
from custody.repository import Repository
from custody.repository.flow import Flow
from custody.vfs import WritableFile
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem
from tests.crash.flowfile_ledger import stored_events
from tests.unit.flowfile_repository.queue_fixtures import Journal, Machine, flowfile, put

WORKER = Component(id="worker", type="Worker")
SETTINGS = Settings.model_validate({"root": Path("/repository"), "repository": {"containers": ["disk1"]}})
THREADS = 16
FLOWFILES = 6
"""Of each thread; each of them is committed three times."""
COMMITS = THREADS * FLOWFILES * 3


@pytest.fixture
def machine() -> Machine:
    return Machine()


class SlowDisk(WrappingFileSystem):
    """A disk whose syncs take ten milliseconds, and are counted by the kind of the file while it counts."""

    def __init__(self) -> None:
        super().__init__(MemoryFileSystem())
        self.syncs: Counter[str] = Counter()
        self.is_counting = False

    def create(self, path: Path) -> WritableFile:
        return SlowFile(super().create(path), path, self)

    def append(self, path: Path) -> WritableFile:
        return SlowFile(super().append(path), path, self)

    def sync_file(self, path: Path) -> None:
        self.wait(path)
        super().sync_file(path)

    def wait(self, path: Path) -> None:
        if self.is_counting:
            text = str(path)
            kinds = [kind for kind in ("flowfiles/log", "journals", "content") if kind in text]
            self.syncs[kinds[0] if kinds else text] += 1
            time.sleep(0.01)

    @contextmanager
    def counting(self) -> Iterator[None]:
        self.is_counting = True
        yield
        self.is_counting = False


class SlowFile(WrappingFile):
    def __init__(self, inner: WritableFile, path: Path, disk: SlowDisk) -> None:
        super().__init__(inner, path)
        self.disk = disk

    def sync(self) -> None:
        self.disk.wait(self.path)
        super().sync()


def work(flow: Flow, number: int) -> None:
    """Receive FlowFiles, give each an attribute, send it on: a commit each."""
    for _ in range(FLOWFILES):
        with flow.session(WORKER) as session:
            received = session.write_bytes(session.create(), b"content")
            session.receive(received, "http://localhost/")
            session.transfer(received, f"received{number}")
        with flow.session(WORKER) as session:
            taken = session.get(f"received{number}")
            assert taken is not None
            session.transfer(session.put_attribute(taken, "checked", "yes"), f"checked{number}")
        with flow.session(WORKER) as session:
            taken = session.get(f"checked{number}")
            assert taken is not None
            session.transfer(taken, "done", relationship="success")


def test_sixteen_threads_need_less_than_half_a_sync_a_commit() -> None:
    disk = SlowDisk()
    repository = Repository(SETTINGS, disk, ManualClock(1_772_409_600_000))
    with repository.flowfiles(is_ticking=False) as flow:
        flow.connect("done")
        for number in range(THREADS):
            flow.connect(f"received{number}")
            flow.connect(f"checked{number}")
        with disk.counting(), ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(lambda number: work(flow, number), range(THREADS)))
        assert flow.queues.size("done").count == THREADS * FLOWFILES
    # Alone, a commit needs one sync of the log, one of the journal, and a third of one of the contents.
    assert disk.syncs["flowfiles/log"] <= COMMITS / 4, disk.syncs
    assert disk.syncs["journals"] <= COMMITS / 4, disk.syncs
    assert disk.syncs["content"] <= COMMITS / 3 / 2, disk.syncs
    assert sum(disk.syncs.values()) < COMMITS / 2, disk.syncs
    keys = stored_events(disk, SETTINGS)
    assert len(keys) == len(set(keys)) >= COMMITS, "each event is in the journal once"


def test_a_thread_alone_waits_for_nobody() -> None:
    disk = SlowDisk()
    with Repository(SETTINGS, disk, ManualClock(0)).flowfiles(is_ticking=False) as flow:
        for name in ("done", "received0", "checked0"):
            flow.connect(name)
        with disk.counting():
            work(flow, 0)
        assert flow.queues._requests._companions == 1
    assert disk.syncs["flowfiles/log"] == 3 * FLOWFILES


class HeldJournal(Journal):
    """A journal whose first append begins, and then waits to be let go."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = Signal(), Signal()
        self.appends: list[int] = []

    def append(self, events: Sequence[Event]) -> range:
        self.appends.append(len(events))
        if len(self.appends) == 1:
            self.begun.set()
            assert self.go.wait(20)
        return super().append(events)


@pytest.fixture
def held() -> Iterator[tuple[FlowFileRepository, HeldJournal, ThreadPoolExecutor]]:
    """An open repository with a queue, whose journal is being written by a commit of another thread."""
    machine = Machine()
    machine.journal = journal = HeldJournal()
    with machine.open() as flowfiles, ThreadPoolExecutor(4) as pool:
        flowfiles.connect(Connection(name="q"))
        pool.submit(put, flowfiles, "q", [flowfile("first")], events=1)
        assert journal.begun.wait(20)
        try:
            yield flowfiles, journal, pool
        finally:
            journal.go.set()


def committed(flowfiles: FlowFileRepository, pool: ThreadPoolExecutor, *names: str) -> list[Future[range]]:
    """Commit from threads; return when the log has it."""
    before = flowfiles.size("q").count
    commits = [pool.submit(put, flowfiles, "q", [flowfile(name)], events=1) for name in names]
    deadline = time.monotonic() + 20
    while flowfiles.size("q").count < before + len(names):
        assert time.monotonic() < deadline
        time.sleep(0.001)
    return commits


def test_the_log_is_written_while_the_journal_is_and_one_append_brings_all_that_came(
    held: tuple[FlowFileRepository, HeldJournal, ThreadPoolExecutor],
) -> None:
    flowfiles, journal, pool = held
    commits = committed(flowfiles, pool, "second", "third", "fourth")
    assert not any(commit.done() for commit in commits), "acknowledged with their ids when the journal has them"
    assert flowfiles.take("q", "s", count=2).items, "nor does taking wait for the journal"
    journal.go.set()
    assert sorted(commit.result(20).start for commit in commits) == [1, 2, 3]
    assert journal.appends == [1, 3]
    assert [event.source_ordinal for event in journal.events] == [0, 1, 2, 3]


def test_behind_events_that_the_journal_refused_others_wait_in_the_order_of_the_log(
    held: tuple[FlowFileRepository, HeldJournal, ThreadPoolExecutor],
) -> None:
    flowfiles, journal, pool = held
    journal.refuse()
    commits = committed(flowfiles, pool, "second", "third")
    journal.go.set()
    assert [commit.result(20) for commit in commits] == [range(0), range(0)], "the commits stand"
    assert journal.appends == [1], "the journal was not asked for what comes behind"
    with pytest.raises(BackpressureError, match="earlier commit could not be delivered"):
        put(flowfiles, "q", [flowfile("fourth")], events=1)
    journal.error = None
    put(flowfiles, "q", [flowfile("fourth")], events=1)
    assert [event.source_ordinal for event in journal.events] == [0, 1, 2, 3]


def test_closing_waits_for_events_on_their_way(
    held: tuple[FlowFileRepository, HeldJournal, ThreadPoolExecutor],
) -> None:
    flowfiles, journal, pool = held
    commits = committed(flowfiles, pool, "second")
    closing = pool.submit(flowfiles.close)
    assert not wait([closing], 0.05).done
    journal.go.set()
    closing.result(20)
    assert [commit.result(20) for commit in commits] == [range(1, 2)]
    assert len(journal.events) == 2


def test_events_whose_thread_was_interrupted_are_delivered_by_the_next_commit(machine: Machine) -> None:
    with machine.open() as flowfiles:
        flowfiles.connect(Connection(name="q"))
        machine.journal.error = KeyboardInterrupt()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            put(flowfiles, "q", [flowfile("a")], events=1)
        machine.journal.error = None
        put(flowfiles, "q", [flowfile("b")], events=1)
        assert [event.source_ordinal for event in machine.journal.events] == [0, 1]


def test_what_was_added_and_never_asked_for_is_delivered_at_the_end(machine: Machine) -> None:
    """As when a thread was interrupted between the log and the journal."""
    flowfiles = machine.open()
    flowfiles.connect(Connection(name="q"))
    with patch.object(Outbox, "deliver", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        put(flowfiles, "q", [flowfile("a")], events=1)
    assert machine.journal.events == []
    flowfiles.close()
    assert len(machine.journal.events) == 1
