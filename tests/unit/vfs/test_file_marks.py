"""Marks: every change behind settled marks gives other ones, also in the same tick, and while a clock is set."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from custody.vfs import FileSystem, Marks, PosixFileSystem
from custody.vfs.faults import FaultyFileSystem
from custody.vfs.file_marks import MARGIN_NS, Mark, marks_of
from custody.vfs.file_system_type import keeps_times
from custody.vfs.memory import MemoryFileSystem

SECOND = 1_000_000_000
NOW = 1_772_409_600 * SECOND + 123_456_789
OF_NOTHING: Mark = (0, 0, 1, 2, 3)


def marks(*changed_ns: int | None, clock_ns: int = NOW, distance_ns: int = 0) -> Marks:
    files = tuple(None if each is None else (each, each, *OF_NOTHING[2:]) for each in changed_ns)
    return Marks(files, clock_ns, distance_ns)


@pytest.mark.parametrize(
    ("changed_ns", "is_settled"),
    [
        (NOW - MARGIN_NS - 1, True),
        (NOW - MARGIN_NS, False),
        (NOW - 1, False),
        (NOW + SECOND, False),
        (None, True),
        # Of a disk that keeps whole seconds the next change may have the same time a second later.
        ((NOW // SECOND - 1) * SECOND, False),
        ((NOW // SECOND - 2) * SECOND, True),
    ],
)
def test_a_change_of_a_moment_ago_is_not_settled(changed_ns: int | None, is_settled: bool) -> None:
    assert marks(changed_ns).are_settled is is_settled
    assert marks(NOW - 9 * SECOND, changed_ns).are_settled is is_settled, "the youngest change decides"


def test_the_content_changes_what_the_inode_does_not_tell_and_the_other_way_round() -> None:
    young, old = NOW - 1, NOW - 9 * SECOND
    for one in ((young, old, 1, 2, 3), (old, young, 1, 2, 3)):
        assert not Marks((one,), NOW, 0).are_settled


def test_marks_of_two_clocks_say_nothing_about_each_other() -> None:
    former = marks(NOW - SECOND)
    assert marks(NOW - SECOND, clock_ns=NOW + SECOND).is_unchanged_since(former)
    # A second back, or forward: whatever was changed since may have the time of the former marks.
    for step in (-SECOND, SECOND, -MARGIN_NS):
        assert not marks(NOW - SECOND, clock_ns=NOW + step, distance_ns=step).is_unchanged_since(former)
    # Two clocks that are read one after the other: less than a change must be older by.
    assert marks(NOW - SECOND, distance_ns=1_000_000).is_unchanged_since(former)


def marks_now(paths: list[str]) -> Marks:
    found = PosixFileSystem().marks(paths)
    assert found is not None
    return found


def change_names(folder: Path) -> list[Callable[[], object]]:
    return [
        lambda: (folder / "new").write_bytes(b""),
        lambda: (folder / "new").rename(folder / "renamed"),
        lambda: os.link(folder / "renamed", folder / "linked"),
        lambda: (folder / "linked").unlink(),
        lambda: (folder / "made").mkdir(),
        lambda: (folder / "made").rmdir(),
    ]


def test_every_change_behind_settled_marks_gives_others(tmp_path: Path) -> None:
    folder = tmp_path / "watched"
    folder.mkdir()
    file = folder / "file"
    file.write_bytes(b"old")
    paths = [str(folder), str(file), str(folder / "absent" / "more")]
    others: list[Callable[[], object]] = [
        lambda: file.write_bytes(b"new"),
        lambda: (folder / "absent").mkdir(),
        lambda: (folder / "absent" / "more").write_bytes(b""),
    ]
    former = marks_now(paths)
    for change in [*change_names(folder), *others]:
        while not former.are_settled:
            time.sleep(MARGIN_NS / SECOND)
            former = marks_now(paths)
        change()
        after = marks_now(paths)
        assert not after.is_unchanged_since(former)
        assert not after.are_settled
        assert marks_now(paths).is_unchanged_since(after)
        former = after
    (folder / "absent" / "more").unlink()
    assert not marks_now(paths).is_unchanged_since(former)


def test_the_clock_is_read_before_the_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    stat, clock = os.stat, time.time_ns

    def noted_stat(path: str) -> os.stat_result:
        asked.append("times")
        return stat(path)

    def noted_clock() -> int:
        asked.append("clock")
        return clock()

    monkeypatch.setattr(os, "stat", noted_stat)
    monkeypatch.setattr(time, "time_ns", noted_clock)
    marks_of([str(tmp_path)])
    assert asked == ["clock", "times"]


@pytest.mark.parametrize("made", [MemoryFileSystem, lambda: FaultyFileSystem(PosixFileSystem())])
def test_disks_without_times_and_with_faults_have_no_marks(made: Callable[[], FileSystem], tmp_path: Path) -> None:
    assert made().marks([str(tmp_path)]) is None


def test_a_path_that_cannot_be_looked_at_has_no_marks(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    assert PosixFileSystem().marks([str(tmp_path / "loop")]) is None


def test_only_file_systems_that_are_known_are_relied_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of the kernel's own files the times are those of nothing.
    assert not keeps_times(Path("/proc/self"))
    known = keeps_times(tmp_path)
    assert keeps_times(tmp_path / "not" / "there") == known, "the file system of the folder where it would be"
    monkeypatch.setattr("custody.vfs.file_system_type.KEEP_TIMES", frozenset())
    assert not keeps_times(tmp_path)
