"""Several containers: one that fails is taken out and reported, the others carry on, nothing acknowledged is lost."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Lock

import pytest

from custody.clock import ManualClock
from custody.errors import ClosedError, StorageError
from custody.journal import JournalOptions, JournalWriter, SyncPolicy, groups, open_group
from custody.model import Event
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.unit.journal.watched_disk import WatchedFileSystem, in_threads, stored

FAILURES = {
    "all operations": ("create", "write", "sync", "sync_directory", "rename", "list"),
    "writes": ("write",),
    "syncs": ("sync",),
    "new files": ("create",),
}


def open_writer(containers: list[Path], fs: PosixFileSystem | None = None, **options: object) -> JournalWriter:
    chosen = JournalOptions(**options)  # type: ignore[arg-type]
    return JournalWriter(fs or PosixFileSystem(), containers, "main", "provenance", ManualClock(), chosen)


def expect_kept(containers: list[Path], told: dict[int, Event], tried: list[Event]) -> None:
    """Recovery seals what was left; all acknowledged events are there once, and nothing that was never sent."""
    with open_writer(containers):
        pass
    assert all(group.is_sealed for group in groups(PosixFileSystem(), containers, "main"))
    events = stored(containers)
    ids = [item.event_id for item in events]
    assert ids == sorted(set(ids))
    by_id = {item.event_id: item.flowfile_uuid for item in events}
    assert {number: by_id.get(number) for number in told} == {n: item.flowfile_uuid for n, item in told.items()}
    assert set(by_id.values()) <= {item.flowfile_uuid for item in tried}


@pytest.fixture
def containers(tmp_path: Path) -> list[Path]:
    return [tmp_path / name for name in ("disk1", "disk2", "disk3")]


def test_threads_use_all_containers_at_once(containers: list[Path]) -> None:
    fs = WatchedFileSystem(sync_seconds=0.003)
    with open_writer(containers, fs, journals=2) as writer:
        in_threads(6, lambda thread: [writer.append([event(thread * 100 + n)]) for n in range(10)])
        sealed = writer.seal()
    assert {path.parents[2] for path in sealed} == set(containers)
    for root in containers:
        assert sum(path.is_relative_to(root) for path in sealed) <= 2
    assert [item.event_id for item in stored(containers)] == list(range(60))


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("operations", FAILURES.values(), ids=FAILURES)
@pytest.mark.parametrize("failing", [0, 1, 2], ids=["first", "second", "third"])
def test_a_container_that_fails_is_taken_out_and_the_others_carry_on(
    containers: list[Path], failing: int, operations: tuple[str, ...]
) -> None:
    fs = WatchedFileSystem(sync_seconds=0.001)
    guard = Lock()
    told: dict[int, Event] = {}
    tried: list[Event] = []
    failures: list[StorageError] = []
    with open_writer(containers, fs, journals=2, seal_bytes=6000) as writer:

        def work(thread: int) -> None:
            for number in range(40):
                if thread == 0 and number == 10:
                    fs.broken_operations, fs.broken = operations, [containers[failing]]
                appended = event(thread * 1000 + number)
                tried.append(appended)
                try:
                    ids = writer.append([appended])
                except StorageError as error:
                    failures.append(error)
                else:
                    with guard:
                        told[ids.start] = appended

        in_threads(6, work)
        for _ in range(len(containers)):  # each new group begins at another container
            writer.seal()
            told[writer.append([event(9_000_000)]).start] = event(9_000_000)
        assert list(writer.failed_containers) == [containers[failing]]
        assert "injected" in writer.failed_containers[containers[failing]]
        # A seal may meet it first: its group is sealed without the container's journals.
        assert len(failures) <= 6, "each thread meets it once"
        assert all("injected" in str(error) for error in failures)
        after = len(fs.done)
        told[writer.append([event(9_000_001)]).start] = event(9_000_001)
        assert fs.done[after:], "the others carry on"
    assert len(told) + len(failures) == 6 * 40 + 4
    expect_kept(containers, told, [*tried, event(9_000_000), event(9_000_001)])


def test_nothing_more_is_appended_to_other_journals_of_a_failed_container(
    containers: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They work still; what is appended to a disk that begins to fail may not be read again."""
    monkeypatch.setattr(open_group, "SMALL_BYTES_MAX", 0)  # large appends: several journals a disk
    fs = WatchedFileSystem(sync_seconds=0.02)
    roots = containers[:2]
    with open_writer(roots, fs, journals=4) as writer:
        in_threads(8, lambda thread: [writer.append([event(thread * 10 + n)]) for n in range(3)])
        before = {path: path.stat().st_size for path in roots[0].rglob("*.journal")}
        assert len(before) > 1
        fs.broken, fs.broken_operations = [sorted(before)[0]], ("write",)
        with pytest.raises(StorageError):
            for number in range(100, 110):
                writer.append([event(number)])
        in_threads(8, lambda thread: [writer.append([event(1000 + thread * 10 + n)]) for n in range(3)])
        assert list(writer.failed_containers) == [roots[0]]
        assert {path: path.stat().st_size for path in roots[0].rglob("*.journal")} == before


def test_a_failed_container_that_cannot_be_listed_disturbs_no_seal(containers: list[Path]) -> None:
    fs = WatchedFileSystem()
    roots = containers[:2]
    with open_writer(roots, fs) as writer:
        writer.append([event(0)])
        writer.seal()
        fs.broken = [roots[0]]
        writer.append([event(1)])
        assert len(writer.seal()) == 1
        assert list(writer.failed_containers) == [roots[0]]
        assert writer.append([event(2)]) == range(2, 3)
    fs.broken = []
    assert [item.event_id for item in stored(roots)] == [0, 1, 2]


def test_the_failing_append_takes_its_ids_with_it(containers: list[Path]) -> None:
    fs = WatchedFileSystem()
    roots = containers[:2]
    with open_writer(roots, fs) as writer:
        assert writer.append([event(0)]) == range(1)
        fs.broken = [roots[0]]
        with pytest.raises(StorageError, match="injected"):
            writer.append([event(1), event(2)])
        assert writer.append([event(3)]) == range(3, 4)
        fs.broken = []
    assert {0, 3} <= {item.event_id for item in stored(roots)}


def test_when_all_containers_failed_the_writer_says_so_for_ever(containers: list[Path]) -> None:
    fs = WatchedFileSystem()
    told = {}
    writer = open_writer(containers, fs)
    told[writer.append([event(0)]).start] = event(0)
    fs.broken = list(containers)
    for number in range(3):
        with pytest.raises(StorageError, match="injected"):
            writer.append([event(number + 1)])
    assert set(writer.failed_containers) == set(containers)
    fs.broken = []
    for _ in range(2):
        with pytest.raises(ClosedError, match=r"failed to write .*injected.*Open the repository again"):
            writer.append([event(9)])
    writer.close()
    expect_kept(containers, told, [event(number) for number in range(4)])


def test_a_container_that_fails_between_two_syncs_of_the_interval_is_taken_out(containers: list[Path]) -> None:
    fs = WatchedFileSystem()
    roots = containers[:2]
    with open_writer(roots, fs, sync=SyncPolicy.INTERVAL, sync_interval_ms=50) as writer:
        writer.append([event(0)])
        fs.broken, fs.broken_operations = [roots[0]], ("sync", "sync_directory")
        writer.append([event(1)])
        deadline = time.monotonic() + 5
        while not writer.failed_containers and time.monotonic() < deadline:
            time.sleep(0.01)
        assert list(writer.failed_containers) == [roots[0]]
        assert writer.append([event(2)]) == range(2, 3)
        fs.broken = []
    assert [item.event_id for item in stored(roots)] == [0, 1, 2]


def test_a_journal_that_cannot_be_sealed_is_left_to_recovery(containers: list[Path]) -> None:
    fs = WatchedFileSystem(sync_seconds=0.005)
    told: dict[int, Event] = {}
    roots = containers[:2]
    with open_writer(roots, fs, journals=1) as writer:

        def work(thread: int) -> None:
            for number in range(5):
                appended = event(thread * 10 + number)
                told[writer.append([appended]).start] = appended

        in_threads(4, work)
        fs.broken, fs.broken_operations = [roots[1]], ("rename",)
        assert [path.parents[2] for path in writer.seal()] == [roots[0]]
        assert list(writer.failed_containers) == [roots[1]]
        told[writer.append([event(99)]).start] = event(99)
    [left] = roots[1].rglob("*.journal")
    fs.broken = []
    expect_kept(roots, told, list(told.values()))
    assert not left.exists()
