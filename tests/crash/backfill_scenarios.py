"""Scenario of a back-fill: more fields are indexed than before, and live shards are rebuilt in place."""

from __future__ import annotations

from custody.clock import ManualClock
from custody.config import Settings
from custody.repository import Repository
from custody.vfs import FileSystem
from custody.vfs.memory import MemoryFileSystem
from tests.crash.memory_repository import SETTINGS, Promises, check_events, check_final_names, run_pass
from tests.crash.rollover_scenarios import Prepared

BEFORE = Settings.model_validate(
    {**SETTINGS.model_dump(), "root": SETTINGS.root, "index": {"fields": ["flowfile_uuid"]}}
)


class BackFilling(Prepared):
    """A live shard that knows one field; the step index makes it anew with all of them."""

    always_at = frozenset({"remove", "remove_directory", "rename"})

    def __init__(self) -> None:
        disk = MemoryFileSystem()
        self._promises = Promises()
        with opened(disk, BEFORE).writer() as writer:
            self._promises.append(writer, 2)
        run_pass(disk, settings=BEFORE)
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs, "index")

    def check(self, fs: FileSystem, record: Promises) -> None:
        check_final_names(fs)
        check_events(fs, record)
        check_search(fs, record, is_done=False)

    def use(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs, "index")
        check_search(fs, record, is_done=True)
        super().use(fs, record)
        run_pass(fs)
        check_search(fs, record, is_done=True)


def opened(fs: FileSystem, settings: Settings) -> Repository:
    return Repository(settings, fs, ManualClock(1_772_409_600_000))


def check_search(fs: FileSystem, record: Promises, *, is_done: bool) -> None:
    """Every event is found by a field that the shards of before do not know; when all is done, without a notice."""
    result = opened(fs, SETTINGS).search("event_type:CREATE AND component_type:generate*")
    assert result.total == len(record.acknowledged), result.notices
    assert {stored.event.event_id for stored in result.events} == set(record.acknowledged)
    assert not is_done or not result.notices, result.notices
