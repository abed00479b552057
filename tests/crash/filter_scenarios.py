"""Scenario of the filters of many shards: files of them are written, taken up and forgotten, beside a growing index."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from custody.clock import ManualClock
from custody.format.names import parse_filters
from custody.index import FilterFile
from custody.repository import Repository
from custody.rollover import keeping_filters, rebuild_shard
from custody.vfs import FileSystem
from tests.crash.machine_with_bucket import new_disk
from tests.crash.memory_repository import (
    NOW_MS,
    SETTINGS,
    Promises,
    check_events,
    check_final_names,
    repository,
    run_pass,
    workspace,
)
from tests.crash.rollover_scenarios import Prepared


class KeepingFilters(Prepared):
    """Two logs have files of filters; a third one's file takes them up, and a shard is built anew."""

    def __init__(self) -> None:
        disk = new_disk()
        self._promises = Promises()
        for _ in range(2):
            _grow(disk, self._promises)
        assert _files(disk)
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        _grow(fs, record)
        with worth_a_file():
            at = workspace(fs)
            state = at.catalog.load()
            rebuild_shard(at, state.shards[min(state.shards)])
            keeping_filters.keep_filters(at)

    def check(self, fs: FileSystem, record: Promises) -> None:
        at = workspace(fs)
        if all(fs.exists(at.shard_path(shard)) for shard in at.catalog.load().shards.values()):
            super().check(fs, record)
        else:
            # A shard that is built anew is gone for a moment: its logs answer, and the next pass makes it.
            check_final_names(fs)
            check_events(fs, record)
        for file in _files(fs):
            file.require_all()
        # A process that has asked nothing yet: what it opens is chosen by the files.
        fresh = Repository(SETTINGS, fs, ManualClock(NOW_MS))
        for acknowledged in record.acknowledged.values():
            page = fresh.search(f"flowfile_uuid:{acknowledged.flowfile_uuid}")
            assert [found.event for found in page.events] == [acknowledged], "an acknowledged event is not found"

    def use(self, fs: FileSystem, record: Promises) -> None:
        _grow(fs, record)
        told = {name for file in _files(fs) for name in file.names}
        assert told == set(workspace(fs).catalog.load().shards), "a pass left shards without a file"
        super().use(fs, record)


@contextmanager
def worth_a_file() -> Iterator[None]:
    """Let a single shard be worth a file."""
    with patch.object(keeping_filters, "SHARDS_MIN", 1):
        yield


def _grow(fs: FileSystem, promises: Promises) -> None:
    with repository(fs).writer() as writer:
        promises.append(writer, 2)
    with worth_a_file():
        run_pass(fs)


def _files(fs: FileSystem) -> list[FilterFile]:
    """Open every file that has its final name: each must be whole."""
    return [
        FilterFile(fs, folder / name)
        for folder in workspace(fs).filter_folders()
        for name in fs.list(folder)
        if parse_filters(name) is not None
    ]
