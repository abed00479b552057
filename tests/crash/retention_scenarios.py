"""Scenario of retention: an old log goes; a held one and one that is not swept yet stay.

Whatever a crash leaves: a revision that is not pruned has all its files, held and active events are there, and once
the pass has ended the old events are given out no more and lie nowhere on the disk.
"""

from __future__ import annotations

from dataclasses import dataclass

from custody.clock import ManualClock
from custody.config.sections import RetentionSection
from custody.repository import EventSelection
from custody.repository.retention_api import apply_retention
from custody.rollover import STEPS
from custody.vfs import FileSystem
from tests.crash.machine_with_bucket import new_disk, settings_on
from tests.crash.memory_repository import (
    SETTINGS,
    Promises,
    check_catalog,
    repository,
    run_pass,
    workspace,
)
from tests.crash.rollover_scenarios import Prepared
from tests.support import event

OLD, HELD, ACTIVE = (0, 1), (2, 3), (4, 5)
"""The events of the three logs. All of them are older than ten seconds when retention runs."""
RETENTION = SETTINGS.model_copy(update={"retention": RetentionSection(age_max="10 seconds", grace="0 seconds")})
NOW_MS = event(6).event_time + 9_900


@dataclass
class Expired(Promises):
    """Besides the events: whether a pass of retention came to its end."""

    is_done: bool = False

    def copy(self) -> Expired:
        return Expired(self.tried, dict(self.acknowledged), self.is_done)


class Retaining(Prepared):
    """One pass: mark, delete, prune, collect."""

    def __init__(self) -> None:
        disk = new_disk()
        self._promises = Expired()
        for events in (OLD, HELD, ACTIVE):
            with repository(disk).writer() as writer:
                self._promises.append(writer, len(events))
            run_pass(disk, *[name for name in STEPS if name != "sweep" or events != ACTIVE])
        repository(disk).hold(
            "case", EventSelection(flowfile_uuids=[event(HELD[0]).flowfile_uuid]), "asked for", "legal"
        )
        for event_id in OLD:
            del self._promises.acknowledged[event_id]
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Expired)
        apply_retention(settings_on(fs, RETENTION), fs, ManualClock(NOW_MS))
        record.is_done = True

    def check(self, fs: FileSystem, record: Promises) -> None:
        assert isinstance(record, Expired)
        super().check(fs, record)
        catalog = workspace(fs).catalog
        state = catalog.load()
        for revision in range(state.floor, state.revision + 1):
            catalog.at(revision, check_files=True)
        if record.is_done:
            assert not any(state.file_of(event_id) for event_id in OLD), "an expired log is live"
            check_gone(fs)

    def use(self, fs: FileSystem, record: Promises) -> None:
        self.run(fs, record)
        check_catalog(fs)
        super().use(fs, record)


def check_gone(fs: FileSystem) -> None:
    """Raise if a log, a table of contents or a shard of the old events is on the disk, or a mark says so."""
    objects = workspace(fs).catalog.objects
    name = f"{OLD[0]:020d}"
    left = [key for key in objects.store.keys(objects.home) if f"events/{name}" in key]
    for container in SETTINGS.containers:
        left += [shard for shard in fs.list(container / "main/index") if shard.endswith(name)]
    assert not left, f"expired, and still there: {left}"
    assert not any(mark.paths or mark.shards for mark in workspace(fs).catalog.load().marks.values())
