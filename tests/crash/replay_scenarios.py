"""The scenario of replay: a plan is run, and run again by the next process, one event a transaction."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from unittest.mock import patch

from custody.flow import Component
from custody.replay import ReplayPlan, replay_run
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.memory_repository import EVERYTHING, repository

STEP = Component(id="dag.step", type="Step")
FLOWFILES = 3


@dataclass
class Progress:
    """How many events of the plan were said to be done."""

    done: int = 0


@cache
def planned() -> tuple[MemoryFileSystem, ReplayPlan]:
    """A disk whose flow sent FlowFiles through, and the plan to send them again."""
    fs = MemoryFileSystem()
    at = repository(fs)
    with at.flowfiles() as flow:
        flow.connect("orders")
        with flow.session(STEP) as session:
            for number in range(FLOWFILES):
                order = session.create({"filename": f"{number}.csv"})
                session.transfer(session.write_bytes(order, f"order {number}".encode()), "orders")
        with flow.session(STEP) as session:
            for order in session.get_many("orders", FLOWFILES):
                session.remove(order)
    ids = [event.event_id for event in at.events(0, EVERYTHING) if event.event_type == "DROP"]
    return fs, at.plan_replay(event_ids=ids)


class Replaying(Scenario[Progress]):
    """A plan is run; whoever comes next runs it again, and each event has sent its FlowFile once."""

    def new_record(self) -> Progress:
        return Progress()

    def copy(self, record: Progress) -> Progress:
        return Progress(record.done)

    def start(self) -> MemoryFileSystem:
        return planned()[0].crashed(CrashMode.ALL_KEPT)

    def run(self, fs: FileSystem, record: Progress) -> None:
        def progress(done: int, _total: int) -> None:
            record.done = done

        with patch.object(replay_run, "BATCH_EVENTS", 1):
            repository(fs).replay(planned()[1], user="alice", on_progress=progress)

    def check(self, fs: FileSystem, record: Progress) -> None:
        plan = planned()[1]
        at = repository(fs)
        with at.flowfiles() as flow:
            done = flow.queues.replayed(plan.id)
            waiting = flow.queues.waiting("orders")
            with flow.session(STEP) as session:
                for number, order in enumerate(session.get_many("orders", EVERYTHING)):
                    assert session.read_bytes(order) == f"order {number}".encode()
                    session.put_back(order)
        assert done >= record.done, f"{record.done} events were done, the log says {done}"
        wanted = [plan.flowfile_uuid(item) for item in plan.events[:done]]
        assert [item.uuid for item in waiting] == wanted
        assert _children(at) == Counter(wanted)

    def use(self, fs: FileSystem, record: Progress) -> None:
        self.run(fs, record)
        assert record.done == FLOWFILES


def _children(at: Repository) -> Counter[str]:
    return Counter(
        child for event in at.events(0, EVERYTHING) if event.event_type == "REPLAY" for child in event.child_uuids
    )
