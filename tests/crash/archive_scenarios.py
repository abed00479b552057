"""A machine is declared dead: its writer is retired and absorbed, and then it comes back with journals of its own.

All processes of a crash test are one in truth, so that who is gone seems to live: its lease is taken over.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

from custody.catalog import SealedError
from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import ConfigurationError, NotFoundError
from custody.repository import EventSelection, Repository
from custody.repository.containers import claim_writer_name
from custody.repository.writers import absorb_retired, list_writers, retire_writer
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import new_disk, settings_on
from tests.crash.memory_repository import (
    EVERYTHING,
    NOW_MS,
    check_final_names,
    copied_segments,
    require_done,
    run_pass,
)
from tests.support import event

STORE, ARCHIVE = "/store", "archive"
FORGOTTEN = 1
DEAD, OTHER = (
    Settings.model_validate(
        {"root": Path(f"/{name}"), "repository": {"store": STORE, "containers": ["disk1"], "writer": writer}}
    )
    for name, writer in (("a", "old"), ("b", "main"))
)


class Numbers(set[int]):
    """The numbers of acknowledged events."""


def opened(fs: FileSystem, settings: Settings) -> Repository:
    return Repository(settings_on(fs, settings), fs, ManualClock(NOW_MS))


def append(fs: FileSystem, settings: Settings, record: Numbers, *numbers: int) -> None:
    with opened(fs, settings).writer() as writer:
        writer.append([event(number) for number in numbers])
        record.update(numbers)


def retire_and_absorb(fs: FileSystem) -> None:
    clock, settings = ManualClock(NOW_MS), settings_on(fs, OTHER)
    with copied_segments():
        retire_writer(settings, "old", "dead", fs, clock, is_machine_dead=True)
        report = absorb_retired(settings, ARCHIVE, take_over=True, fs=fs, clock=clock)
    require_done(report, is_done=not report.failed)


def counted(fs: FileSystem, settings: Settings) -> Counter[int]:
    page = opened(fs, settings).search("", limit=EVERYTHING)
    assert page.total == len(page.events), page.notices
    return Counter(item.event.source_ordinal or 0 for item in page.events)


class Archiving(Scenario[Numbers]):
    """A dead machine's writer has live events, one of them forgotten, and events that wait on its disk."""

    def __init__(self) -> None:
        self._disk = new_disk()
        self._numbers = Numbers()
        append(self._disk, DEAD, self._numbers, 0, FORGOTTEN)
        run_pass(self._disk, settings=DEAD)
        append(self._disk, DEAD, self._numbers, 2)
        run_pass(self._disk, settings=DEAD)
        opened(self._disk, DEAD).forget(EventSelection(event_ids=(FORGOTTEN,)), "asked for")
        self._numbers.discard(FORGOTTEN)
        append(self._disk, OTHER, self._numbers, 10)
        run_pass(self._disk, settings=OTHER)
        self._live = frozenset(self._numbers)
        append(self._disk, DEAD, self._numbers, 3, 4)

    def start(self) -> MemoryFileSystem:
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> Numbers:
        return Numbers(self._numbers)

    def copy(self, record: Numbers) -> Numbers:
        return Numbers(record)

    def run(self, fs: FileSystem, record: Numbers) -> None:
        retire_and_absorb(fs)

    def check(self, fs: FileSystem, record: Numbers) -> None:
        for settings in (DEAD, OTHER):
            check_final_names(fs, settings.root)
        check_final_names(fs, Path(STORE))
        # What is live is in every answer once, at every moment of the work.
        numbers = counted(fs, OTHER)
        assert set(numbers) >= self._live, f"lost: {self._live.difference(numbers)}"
        assert set(numbers.values()) == {1}, f"events are there twice: {numbers}"
        assert FORGOTTEN not in numbers, "a forgotten event is given out"

    def use(self, fs: FileSystem, record: Numbers) -> None:
        """Done again, all is absorbed. The machine comes back: its name is refused, its journals are brought in."""
        retire_and_absorb(fs)
        assert {item.writer: item.kind for item in list_writers(settings_on(fs, OTHER), fs)}["old"] == "absorbed"
        with suppress(SealedError):
            claim_writer_name(settings_on(fs, DEAD), "old", fs, ManualClock(NOW_MS))
        with suppress(ConfigurationError):
            append(fs, DEAD, record, max(record) + 1)
        with suppress(SealedError):
            run_pass(fs, settings=DEAD)
        opened(fs, DEAD).recover(adopt=True, take_over=True)
        run_pass(fs, settings=DEAD)
        numbers = counted(fs, OTHER)
        assert set(numbers) == record, f"expected {sorted(record)}, got {sorted(numbers)}"
        assert set(numbers.values()) == {1}, f"events are there twice: {numbers}"
        try:
            opened(fs, OTHER).get(0, "old")
        except NotFoundError as error:
            assert ARCHIVE in str(error), error
        else:
            raise AssertionError("an absorbed writer is read")
