"""A disk that goes away at any moment of any work, for good or for a moment, and comes back.

In its place is then an empty folder on another disk, as where a disk is not mounted. Whatever was done meanwhile failed
or is right; what was acknowledged is there once when the disk is back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from custody.clock import ManualClock
from custody.errors import CustodyError, StorageError
from custody.maintenance.verification import verify_repository
from custody.recovery import STEPS
from custody.repository import Repository
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFileSystem
from tests.crash.memory_repository import EVERYTHING, NOW_MS, SETTINGS, run_pass
from tests.support import event
from tests.unit.capture.json_documents import document
from tests.unit.ingest.test_ingest import write

DISK = SETTINGS.containers[1]
TWO_SLOTS = SETTINGS.model_copy(update={"repository": SETTINGS.repository.model_copy(update={"writer_slots": 2})})
_BY_PATH = (
    *("create", "append", "read", "view", "exists", "is_directory", "size", "modified_ms", "space", "list", "rename"),
    *("link", "remove", "add_directory", "remove_directory", "cut", "sync_file", "sync_directory", "lock", "is_locked"),
)
SOME = 12
"""In how many moments of each work the disk goes in the quick tests."""


class Unmounting(WrappingFileSystem):
    """A disk is away from one operation on, for some operations; then what is at its place is hidden."""

    def __init__(self, inner: MemoryFileSystem, first: int = -1, length: int = 0) -> None:
        super().__init__(inner)
        self.behind = MemoryFileSystem()
        self.done = 0
        self._first, self._last = first, first + length

    @property
    def is_away(self) -> bool:
        return self._first <= self.done < self._last

    def made_behind(self) -> list[Path]:
        """The files at the place where the disk is mounted."""
        return _files(self.behind, DISK) if self.behind.exists(DISK) else []


def _files(fs: MemoryFileSystem, folder: Path) -> list[Path]:
    paths = [folder / name for name in fs.list(folder)]
    return [f for path in paths for f in (_files(fs, path) if fs.is_directory(path) else [path])]


def _routed(name: str) -> Callable[..., Any]:
    def call(self: Unmounting, path: Path, *more: Any) -> Any:
        self.done += 1
        place = self.behind if self.is_away and path.is_relative_to(DISK) else self.inner
        return getattr(place, name)(path, *more)

    return call


for _name in _BY_PATH:
    setattr(Unmounting, _name, _routed(_name))


def opened(fs: Any, settings: Any = SETTINGS) -> Repository:
    return Repository(settings, fs, ManualClock(NOW_MS))


def moments(work: Callable[[Unmounting], object], start: Callable[[], MemoryFileSystem], *, every: bool) -> list[int]:
    """The operations of some work at which the disk goes: all, or some that are spread over it."""
    fs = Unmounting(start())
    work(fs)
    assert fs.done > SOME
    return list(range(1, fs.done + 1, 1 if every else max(1, fs.done // SOME)))


all_or_some = pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["some moments", "every moment"]
)
for_how_long = pytest.mark.parametrize("length", [1 << 40, 9], ids=["to the end", "for a moment"])


def prepared() -> MemoryFileSystem:
    """Events that are live, and events that wait on both disks."""
    disk = MemoryFileSystem()
    for first in (0, 4):
        with opened(disk).writer() as writer:
            writer.append([event(number) for number in range(first, first + 2)])
            writer.seal()
            writer.append([event(number) for number in range(first + 2, first + 4)])
        if first == 0:
            run_pass(disk)
    return disk


def numbers(fs: Any, settings: Any = SETTINGS) -> list[int]:
    stored = opened(fs, settings).search("", limit=EVERYTHING).events
    assert len({(item.writer, item.event.event_id) for item in stored}) == len(stored), "an id was given out twice"
    return sorted(item.event.source_ordinal or 0 for item in stored)


def check_nothing_hidden(fs: Unmounting) -> None:
    """No acknowledged event, and no writer's state, lies where the disk hides it when it is back."""
    assert not [path for path in fs.made_behind() if path.name == "STATE" or path.parent.name == "journals"]


@pytest.mark.in_parts(2)
@all_or_some
@for_how_long
def test_every_step_of_a_pass_survives_a_disk_that_goes(length: int, every: bool) -> None:
    def work(fs: Unmounting) -> None:
        for name in STEPS:
            with suppress(CustodyError):
                run_pass(fs, name)

    for moment in moments(work, prepared, every=every):
        disk = prepared()
        fs = Unmounting(disk, moment, length)
        work(fs)
        check_nothing_hidden(fs)
        run_pass(disk)
        assert numbers(disk) == list(range(8)), moment
        assert not opened(disk).status().notices


@all_or_some
@for_how_long
def test_an_ingest_stores_nothing_twice_and_loses_nothing_when_a_disk_goes(
    tmp_path: Path, length: int, every: bool
) -> None:
    paths = [
        write(tmp_path / f"{name}.json", *(document("SEND", eventOrdinal=number) for number in ordinals))
        for name, ordinals in (("a", range(4)), ("b", range(2, 7)))
    ]

    def work(fs: Any) -> set[int]:
        counted: set[int] = set()
        for path, ordinals in zip(paths, (range(4), range(2, 7)), strict=True):
            with suppress(CustodyError), opened(fs, TWO_SLOTS).ingest() as ingest:
                for _ in range(2):
                    report = ingest.file(path)
                    assert report.stored + report.repeated == len(ordinals)
                    counted |= set(ordinals)
        return counted

    for moment in moments(work, MemoryFileSystem, every=every):
        disk = MemoryFileSystem()
        fs = Unmounting(disk, moment, length)
        counted = work(fs)
        check_nothing_hidden(fs)
        assert counted <= set(numbers(disk, TWO_SLOTS)), moment
        work(disk)
        counts = Counter(numbers(disk, TWO_SLOTS))
        assert counts == Counter(range(7)), moment


@all_or_some
@for_how_long
def test_appends_of_producers_are_kept_or_refused_when_a_disk_goes(length: int, every: bool) -> None:
    def work(fs: Any) -> set[int]:
        told: set[int] = set()
        for number in range(10, 14):
            with suppress(CustodyError), opened(fs, TWO_SLOTS).writer() as writer:
                writer.append([event(number)])
                told.add(number)
                writer.seal()
                writer.append([event(number + 10)])
                told.add(number + 10)
        return told

    for moment in moments(work, MemoryFileSystem, every=every):
        disk = MemoryFileSystem()
        fs = Unmounting(disk, moment, length)
        told = work(fs)
        check_nothing_hidden(fs)
        counts = Counter(numbers(disk, TWO_SLOTS))
        assert told <= set(counts), moment
        assert max(counts.values(), default=1) == 1, moment


@all_or_some
def test_an_answer_is_the_truth_or_says_what_it_may_lack(every: bool) -> None:
    def work(fs: Any) -> list[tuple[int, tuple[str, ...]]]:
        asked = opened(fs)
        answers = []
        with suppress(StorageError):  # a file went while it was opened: no answer is none that is wrong
            result = asked.search("", limit=EVERYTHING)
            answers.append((result.total, result.notices))
        with suppress(StorageError):
            stream = asked.events(0, EVERYTHING)
            answers.append((sum(1 for _ in stream), stream.notices))
        with suppress(StorageError):
            counts, said = asked.facets("")
            answers.append((sum(counts["event_type"].values()), said))
        return answers

    whole = prepared()
    for moment in moments(work, lambda: whole, every=every):
        fs = Unmounting(whole, moment, 1 << 40)
        for total, notices in work(fs):
            assert total == 8 or any("is missing" in notice for notice in notices), (moment, total, notices)
        assert not fs.made_behind()


@all_or_some
def test_verify_ends_with_a_finding_or_saw_all(every: bool) -> None:
    def work(fs: Any) -> list[str]:
        report = verify_repository(opened(fs).workspaces(), SETTINGS, fs)
        return [item.kind for item in report.findings if item.severity == "damage"]

    whole = prepared()
    assert work(whole) == []
    for moment in moments(work, lambda: whole, every=every):
        fs = Unmounting(whole, moment, 1 << 40)
        kinds = work(fs)
        assert kinds or moment > 1
        assert not fs.made_behind()
    assert "container-missing" in work(Unmounting(whole, 0, 1 << 40))
