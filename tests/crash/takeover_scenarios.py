"""A name that is taken over, and journals of the machine that lost it that are brought in: nothing is lost or twice.

All processes of a crash test are one in truth, so that who is gone seems to live: its lease is taken over.
"""

from __future__ import annotations

from pathlib import Path

from custody.clock import ManualClock
from custody.config import Settings
from custody.repository import Repository
from custody.repository.containers import claim_writer_name
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.memory_repository import EVERYTHING, NOW_MS, check_final_names, run_pass
from tests.support import event

STORE = "/store"
ONE, OTHER = (
    Settings.model_validate({"root": Path(f"/{name}"), "repository": {"store": STORE, "containers": ["disk1"]}})
    for name in "ab"
)


class Numbers(set[int]):
    """The numbers of acknowledged events."""


def _opened(fs: FileSystem, settings: Settings) -> Repository:
    return Repository(settings, fs, ManualClock(NOW_MS))


def _append(fs: FileSystem, settings: Settings, record: Numbers, *numbers: int) -> None:
    with _opened(fs, settings).writer() as writer:
        writer.append([event(number) for number in numbers])
        record.update(numbers)


class TakingOver(Scenario[Numbers]):
    """One machine has events live and waiting; another one takes its name over; what waited is brought in."""

    def __init__(self) -> None:
        self._disk = MemoryFileSystem()
        self._numbers = Numbers()
        _append(self._disk, ONE, self._numbers, 0, 1)
        run_pass(self._disk, settings=ONE)
        _append(self._disk, ONE, self._numbers, 2, 3)

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> Numbers:
        return Numbers(self._numbers)

    def copy(self, record: Numbers) -> Numbers:
        return Numbers(record)

    def run(self, fs: FileSystem, record: Numbers) -> None:
        claim_writer_name(OTHER, "main", fs, ManualClock(NOW_MS))
        _append(fs, OTHER, record, 10)
        _opened(fs, ONE).recover(adopt=True, take_over=True)

    def check(self, fs: FileSystem, record: Numbers) -> None:
        for settings in (ONE, OTHER):
            check_final_names(fs, settings.root)
        check_final_names(fs, Path(STORE))

    def use(self, fs: FileSystem, record: Numbers) -> None:
        """Go on after the crash: done again, all is brought in, and each event is there once."""
        claim_writer_name(OTHER, "main", fs, ManualClock(NOW_MS))
        _append(fs, OTHER, record, 11)
        _opened(fs, ONE).recover(adopt=True, take_over=True)
        found = {
            (item.writer, item.event.event_id): item.event.source_ordinal or 0
            for settings in (ONE, OTHER)  # each sees what is live, and what waits on its own containers
            for item in _opened(fs, settings).search("", limit=EVERYTHING).events
        }
        assert len(set(found.values())) == len(found), f"events are there twice: {found}"
        assert set(record) <= set(found.values()), f"lost: {set(record) - set(found.values())}"
