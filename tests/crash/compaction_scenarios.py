"""Scenario of a compaction: forgotten events go, the rest of two logs becomes one log, a third log is erased."""

from __future__ import annotations

from custody.clock import ManualClock
from custody.maintenance import compact_unit, waiting_compactions
from custody.repository import EventSelection
from custody.vfs import FileSystem
from custody.workspace import Workspace
from tests.crash.machine_with_bucket import new_disk, settings_on
from tests.crash.memory_repository import (
    SETTINGS,
    WRITER,
    Promises,
    check_catalog,
    check_events,
    repository,
    run_pass,
)
from tests.crash.rollover_scenarios import Prepared

FORGOTTEN = (1, 70, 71)


class Compacting(Prepared):
    """Three logs, of which the last one is erased as a whole; tombstones and old shards go in the end."""

    def __init__(self) -> None:
        disk = new_disk()
        self._promises = Promises()
        for count in (2, 68, 2):
            with repository(disk).writer() as writer:
                self._promises.append(writer, count)
            run_pass(disk)
        repository(disk).forget(EventSelection(event_ids=FORGOTTEN), "asked for")
        for event_id in FORGOTTEN:
            del self._promises.acknowledged[event_id]
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        compact(fs)

    def check(self, fs: FileSystem, record: Promises) -> None:
        super().check(fs, record)
        ids = {item.event_id for item in repository(fs).events(0, 1000)}
        assert not ids.intersection(FORGOTTEN), "a forgotten event is given out"

    def use(self, fs: FileSystem, record: Promises) -> None:
        compact(fs)
        state = check_catalog(fs)
        assert not any(
            file.first_event_id <= event <= file.last_event_id
            for file in state.files.values()
            for event in FORGOTTEN[1:]
        ), "a log of forgotten events is live"
        super().use(fs, record)
        run_pass(fs)
        check_events(fs, record)


def compact(fs: FileSystem) -> None:
    """Do all units, each with a workspace of its own; a clock that stands still calls nothing old."""
    clock, settings = ManualClock(1_772_409_600_000), settings_on(fs, SETTINGS)
    for _ in range(2):  # the second time is for what the first one made possible
        for unit in list(waiting_compactions(Workspace(settings, WRITER, fs, clock))):
            compact_unit(Workspace(settings, WRITER, fs, clock), unit)
