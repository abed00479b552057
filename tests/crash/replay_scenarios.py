"""Scenarios of replay: a plan is kept, run, stopped by a full queue, and run again by the next process.

Each event is a transaction of its own, and each content a file of its own. Consumers take what was sent, so that its
queue does not show how far a plan is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from unittest.mock import patch

from custody.clock import ManualClock
from custody.errors import ConflictError
from custody.flow import Component
from custody.flow.content import ResourceClaim
from custody.flowfile_repository import claimed_contents
from custody.replay import ReplayPlan, read_plan, replay_run, save_plan
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.flowfile_ledger import SMALL
from tests.crash.memory_repository import EVERYTHING, NOW_MS

STEP = Component(id="dag.step", type="Step")
FLOWFILES = 2
ROOM = 1
"""So many FlowFiles fill the queue."""
ERASED = 0
"""The place in the plan of the event whose content goes."""
PLAN = SMALL.root / "replays" / "orders.plan"


@dataclass
class Progress:
    """What was said of a plan: that it is kept, how many events are done, how many FlowFiles were consumed."""

    is_saved: bool = False
    done: int = 0
    consumed: int = 0
    consuming: int = 0
    """So many more a commit takes out of the flow that was tried and not acknowledged."""
    is_erased: bool = False
    """Whether the deletion of a content was tried."""


def opened(fs: FileSystem) -> Repository:
    return Repository(SMALL, fs, ManualClock(NOW_MS))


def body(number: int) -> bytes:
    """The content of an order; larger than what fits beside another one into a file."""
    return f"{number:04d}".encode() * 1250


@cache
def planned() -> tuple[MemoryFileSystem, ReplayPlan]:
    """A disk whose flow sent FlowFiles through, and the plan to send them again."""
    fs = MemoryFileSystem()
    at = opened(fs)
    with at.flowfiles(is_ticking=False) as flow:
        flow.connect("orders", count_max=ROOM)
        for number in range(FLOWFILES):
            with flow.session(STEP) as session:
                order = session.create({"filename": f"{number}.csv"})
                session.transfer(session.write_bytes(order, body(number)), "orders")
            with flow.session(STEP) as session:
                session.remove(session.get_many("orders", 1)[0])
        # The contents are in the archive from now on.
        flow.queues.checkpoint()
    fs.make_directory(PLAN.parent)
    return fs, at.plan_replay("event_type:DROP")


def sent_uuids() -> list[str]:
    """The uuids of the FlowFiles that the plan sends, in order."""
    plan = planned()[1]
    return [plan.flowfile_uuid(item) for item in plan.events]


class Replaying(Scenario[Progress]):
    """A plan is kept and run until its queue is full; a consumer makes room, and the plan is run again to its end."""

    def new_record(self) -> Progress:
        return Progress()

    def copy(self, record: Progress) -> Progress:
        return replace(record)

    def start(self) -> MemoryFileSystem:
        return planned()[0].crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: Progress) -> None:
        at = opened(fs)
        if not fs.exists(PLAN):
            save_plan(fs, PLAN, planned()[1])
        record.is_saved = True
        for _ in range(FLOWFILES):
            self.replay(at, record)
            consume(at, record)
        assert record.done == FLOWFILES, f"{record.done} events are done"

    def replay(self, at: Repository, record: Progress) -> None:
        """Run the plan as far as its queue has room."""
        run_once(at, record)

    def check(self, fs: FileSystem, record: Progress) -> None:
        plan = planned()[1]
        if record.is_saved:
            assert read_plan(fs, PLAN) == plan
        at = opened(fs)
        with at.flowfiles(is_ticking=False) as flow:
            done = flow.queues.replayed(plan.id)
            waiting = flow.queues.waiting("orders")
            with flow.session(STEP) as session:
                for order in session.get_many("orders", EVERYTHING):
                    assert session.read_bytes(order) == body(sent_uuids().index(order.uuid))
                    session.put_back(order)
        assert done >= record.done, f"{record.done} events were done, the log says {done}"
        sent = self.sent(at, record, done)
        consumed = len(sent) - len(waiting)
        assert consumed in (record.consumed, record.consumed + record.consuming), f"{consumed} consumed, {record}"
        assert [item.uuid for item in waiting] == sent[consumed:]
        dropped = Counter(event.flowfile_uuid for event in events(at, "DROP"))
        assert {uuid: count for uuid, count in dropped.items() if uuid in sent} == dict.fromkeys(sent[:consumed], 1)
        record.done, record.consumed, record.consuming = done, consumed, 0

    def sent(self, at: Repository, record: Progress, done: int) -> list[str]:
        """Return the uuids that were sent, by the REPLAY events; raise unless they are those of the done events."""
        sent = sent_uuids()[:done]
        assert children(at) == Counter(sent)
        return sent

    def use(self, fs: FileSystem, record: Progress) -> None:
        self.run(fs, record)


def run_once(at: Repository, record: Progress, *, skip_changed: bool = False) -> None:
    def progress(done: int, _total: int) -> None:
        record.done = done

    with patch.object(replay_run, "BATCH_EVENTS", 1):
        at.replay(PLAN, user="alice", skip_changed=skip_changed, on_progress=progress)


def consume(at: Repository, record: Progress) -> None:
    """Take what waits out of the flow; a snapshot then holds all that is known of it."""
    with at.flowfiles(is_ticking=False) as flow:
        with flow.session(STEP) as session:
            orders = session.get_many("orders", EVERYTHING)
            for order in orders:
                session.remove(order)
            record.consuming = len(orders)
        record.consumed, record.consuming = record.consumed + len(orders), 0
        flow.queues.checkpoint()


class Overtaken(Replaying):
    """Between the look at an event and its transaction another process runs the plan, and consumers take all of it."""

    def run(self, fs: FileSystem, record: Progress) -> None:
        def overtake() -> None:
            Replaying.run(self, fs, record)

        if not fs.exists(PLAN):
            save_plan(fs, PLAN, planned()[1])
        record.is_saved = True
        with meanwhile(0, overtake):
            try:
                run_once(opened(fs), Progress())
            except ConflictError as error:
                assert "another process runs it" in str(error)

    def use(self, fs: FileSystem, record: Progress) -> None:
        Replaying.run(self, fs, record)


class Losing(Replaying):
    """Between the look at an event and its transaction its content goes; the user lets the plan pass over it."""

    def replay(self, at: Repository, record: Progress) -> None:
        fs = at._fs

        def erase() -> None:
            resource = claim_of(at, planned()[1].events[ERASED].event_id)
            path = resource.path(SMALL.content_store)
            with claimed_contents(fs, SMALL.flowfiles_home) as claimed:
                if resource.text not in claimed and fs.exists(path):
                    record.is_erased = True
                    fs.remove(path)
                    fs.sync_directory(path.parent)

        with meanwhile(ERASED, erase):
            try:
                run_once(at, record)
            except ConflictError as error:
                assert "[content-gone]" in str(error), error
                run_once(at, record, skip_changed=True)

    def sent(self, at: Repository, record: Progress, done: int) -> list[str]:
        every = sent_uuids()[:done]
        without = [uuid for number, uuid in enumerate(every) if number != ERASED]
        found = children(at)
        if record.is_erased and found == Counter(without):
            return without
        assert found == Counter(every)
        return every


def meanwhile(place: int, work: Callable[[], object]) -> AbstractContextManager[object]:
    """Let something happen once, behind the look at the event of a place and before its transaction."""
    right = replay_run._send
    waiting = [work]

    def send(flowfiles: Any, replays: Any, user: str, now_ms: int, progress: Any) -> Any:
        if progress.first == place and waiting:
            waiting.pop()()
        return right(flowfiles, replays, user, now_ms, progress)

    return patch.object(replay_run, "_send", send)


def claim_of(at: Repository, event_id: int) -> ResourceClaim:
    """Return the file of the content that an event of the flow was given."""
    [event] = at.get_many([event_id], SMALL.repository.slots[0])
    resource = ResourceClaim.of(event.previous_content_claim)
    assert resource is not None
    return resource


def events(at: Repository, event_type: str) -> Iterator[Any]:
    for name in SMALL.repository.slots:
        yield from (event for event in at.events(0, EVERYTHING, name) if event.event_type == event_type)


def children(at: Repository) -> Counter[str]:
    return Counter(child for event in events(at, "REPLAY") for child in event.child_uuids)
