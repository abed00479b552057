"""Scenario of the whole chain: journals become live and are swept, and an old log expires in the same run.

Wherever it is cut off, searches find what a sequential read gives; and the next run of the chain ends where a run that
nobody disturbed ends: the same events, the same answers, the same live files, nothing left over.
"""

from __future__ import annotations

from functools import lru_cache

from custody.clock import ManualClock
from custody.repository import EventSelection, Repository
from custody.repository.retention_api import apply_retention
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.chain import Answers, answers
from tests.crash.memory_repository import EVERYTHING, Promises, repository, run_pass
from tests.crash.retention_scenarios import HELD, OLD, RETENTION
from tests.crash.rollover_scenarios import Prepared
from tests.support import event

NOW_MS = event(max(HELD) + 1).event_time + 9_900
"""The first two logs are older than ten seconds, the group that is rolled over is not."""


class WholeChain(Prepared):
    """An old log, a held one, and a sealed group; then a pass of the rollover and one of retention."""

    def __init__(self) -> None:
        disk = MemoryFileSystem()
        self._promises = Promises()
        for events in (OLD, HELD):
            with repository(disk).writer() as writer:
                self._promises.append(writer, len(events))
            run_pass(disk)
        repository(disk).hold(
            "case", EventSelection(flowfile_uuids=[event(HELD[0]).flowfile_uuid]), "asked for", "legal"
        )
        with repository(disk).writer() as writer:
            self._promises.append(writer, 2)
        for event_id in OLD:
            del self._promises.acknowledged[event_id]
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs)
        apply_retention(RETENTION, fs, ManualClock(NOW_MS))

    def check(self, fs: FileSystem, record: Promises) -> None:
        super().check(fs, record)
        opened = repository(fs)
        read = sorted((item.event_id for item in opened.events(0, EVERYTHING)), reverse=True)
        result = opened.search("", limit=EVERYTHING)
        assert [stored.event.event_id for stored in result.events] == read, "a search finds other events than are read"
        assert result.total == len(read)

    def use(self, fs: FileSystem, record: Promises) -> None:
        self.run(fs, record)
        assert answered(fs) == undisturbed(), "the chain did not end where it ends undisturbed"
        super().use(fs, record)


def answered(fs: FileSystem) -> Answers:
    """Ask everything of a disk."""
    return answers(Repository(RETENTION, fs, ManualClock(NOW_MS)))


@lru_cache(maxsize=1)
def undisturbed() -> Answers:
    """Return the answers of a disk on which nothing was cut off."""
    scenario = WholeChain()
    disk = scenario.start()
    scenario.run(disk, scenario.new_record())
    scenario.run(disk, scenario.new_record())  # a pass more changes no answer
    return answered(disk)
