"""Disks that are full, read-only or slow: what is acknowledged stays, the others go on, and who was out comes back."""

from __future__ import annotations

import errno
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from custody.clock import ManualClock
from custody.errors import ClosedError, StorageError
from custody.journal import JournalOptions, JournalWriter, SyncPolicy, groups
from custody.journal.container_health import ContainerHealth
from custody.model import Event
from custody.repository.status import disk_status
from custody.vfs import PosixFileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from tests.support import event
from tests.unit.journal.watched_disk import in_threads, stored, stored_by_group

RETRY_SECONDS = 0.05


def open_writer(roots: list[Path], fs: FaultyFileSystem | PosixFileSystem, **options: object) -> JournalWriter:
    chosen = JournalOptions(retry_seconds=RETRY_SECONDS, **options)  # type: ignore[arg-type]
    return JournalWriter(fs, roots, "main", "provenance", ManualClock(), chosen)


def until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


def append_until_it_works(writer: JournalWriter, appended: Event) -> int:
    """Try again, as a producer does whose disk is full; return the id."""
    deadline = time.monotonic() + 20
    while True:
        try:
            return writer.append([appended]).start
        except StorageError:
            assert time.monotonic() < deadline, "waited in vain"
            time.sleep(0.02)


@pytest.fixture
def roots(tmp_path: Path) -> list[Path]:
    return [tmp_path / "disk1", tmp_path / "disk2"]


REFUSALS = {"full": errno.ENOSPC, "quota": errno.EDQUOT, "read-only": errno.EROFS}
OPERATIONS = {
    "the write of an event": ("write", "*/journals/*", 3),
    "its sync": ("sync", "*/journals/*", 2),
    "a new file": ("create", "*/journals/*", 1),
    "its name": ("rename", "*/journals/*", 1),
}


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("policy", SyncPolicy)
@pytest.mark.parametrize("number", REFUSALS.values(), ids=REFUSALS)
@pytest.mark.parametrize(("kind", "path", "first"), OPERATIONS.values(), ids=OPERATIONS)
def test_the_only_disk_refuses_and_takes_events_again_when_there_is_room(
    roots: list[Path], kind: str, path: str, first: int, number: int, policy: SyncPolicy
) -> None:
    fault = Fault(frozenset({kind}), path, first, 1, number, taken_bytes=7)
    fs = FaultyFileSystem(PosixFileSystem(), fault)
    told: dict[int, Event] = {}
    refused = 0
    with open_writer(roots[:1], fs, sync=policy, sync_interval_ms=20) as writer:
        for turn in range(6):
            appended = event(turn)
            try:
                told[writer.append([appended]).start] = appended
            except StorageError as error:
                assert error.errno == number
                refused += 1
                told[append_until_it_works(writer, appended)] = appended
        until(lambda: not writer.failed_containers)
        # Sealed by the living writer, not left to the next start. Without a sync at each append the seal is the first.
        with suppress(StorageError):
            writer.seal()
        until(lambda: not any(group.open for group in groups(PosixFileSystem(), roots, "main")))
    if fault.met >= first:
        assert refused or policy is not SyncPolicy.ALWAYS
    by_id = {item.event_id: item.flowfile_uuid for item in stored(roots)}
    assert {number: by_id.get(number) for number in told} == {n: item.flowfile_uuid for n, item in told.items()}
    assert list(told) == sorted(told), "ids go up"


def test_one_full_disk_of_two_is_left_out_and_comes_back(roots: list[Path]) -> None:
    fs = FaultyFileSystem(PosixFileSystem())
    told: list[int] = []
    with open_writer(roots, fs, journals=2) as writer:
        told.append(writer.append([event(0)]).start)
        broken = Fault(frozenset({"write", "create"}), "disk1/main/journals/*", count=None, errno=errno.ENOSPC)
        state = Fault(frozenset({"create"}), "disk1/main/*", count=None, errno=errno.ENOSPC)
        fs.faults += [broken, state]
        for number in range(1, 20):
            try:
                told.append(writer.append([event(number)]).start)
            except StorageError as error:
                assert error.errno == errno.ENOSPC
            writer.seal()
        assert list(writer.failed_containers) == [roots[0]]
        time.sleep(4 * RETRY_SECONDS)  # it is tried, and refuses
        assert list(writer.failed_containers) == [roots[0]]
        assert len(told) >= 18
        fs.faults.clear()
        until(lambda: not writer.failed_containers)
        for number in range(20, 26):
            told.append(writer.append([event(number)]).start)
            writer.seal()
        sealed = {path.parents[2] for group in groups(PosixFileSystem(), roots, "main") for path in group.sealed}
        assert sealed == set(roots)
    found = [item.event_id for item in stored(roots)]
    assert set(told) <= set(found)
    assert all(ids == sorted(ids) for ids in ([item.event_id for item in group] for group in stored_by_group(roots)))
    assert told == sorted(told)


def test_all_disks_full_refuse_at_once_and_nothing_is_closed_for_good(roots: list[Path]) -> None:
    fs = FaultyFileSystem(PosixFileSystem())
    with open_writer(roots, fs) as writer:
        first = writer.append([event(0)]).start
        fs.free(0)
        for number in range(5):
            with pytest.raises(StorageError) as caught:
                writer.append([event(1 + number)])
            assert caught.value.errno == errno.ENOSPC
        assert set(writer.failed_containers) == set(roots)
        with pytest.raises(StorageError, match=r"no container can be written now .*goes on by itself"):
            writer.append([event(9)])
        fs.free(1000)  # too little to go on with
        time.sleep(4 * RETRY_SECONDS)
        assert set(writer.failed_containers) == set(roots)
        fs.free()
        second = append_until_it_works(writer, event(10))
        assert second > first
    assert {first, second} <= {item.event_id for item in stored(roots)}


def test_a_failed_sync_that_is_no_lack_of_room_stays_final(roots: list[Path]) -> None:
    fs = FaultyFileSystem(PosixFileSystem(), Fault(frozenset({"sync"}), "*/journals/*", 2, 1, errno.EIO))
    with open_writer(roots[:1], fs) as writer:
        with pytest.raises(StorageError):
            writer.append([event(0)])
        time.sleep(3 * RETRY_SECONDS)
        with pytest.raises(ClosedError):
            writer.append([event(1)])


def test_a_disk_that_fills_up_again_is_tried_less_and_less_often(roots: list[Path]) -> None:
    health = ContainerHealth(PosixFileSystem(), roots, 1.0)
    full = StorageError("full")
    full.errno = errno.ENOSPC
    pauses = []
    for _ in range(8):
        health.take_out(roots[0], full)
        pauses.append(health._failed[roots[0]].pause_seconds)
        health.bring_back(roots[0])
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60]
    assert health.working == tuple(roots)
    health.take_out(roots[0], full)
    health.take_out(roots[0], StorageError("and then it broke"))
    assert not health.can_recover


def test_ids_that_were_reserved_while_a_disk_was_out_are_known_to_it_when_it_is_back(
    roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from custody.journal import writer_state

    monkeypatch.setattr(writer_state, "RESERVED_IDS", 4)
    fault = Fault(frozenset({"create"}), "disk1/main/*", first=2, count=None, errno=errno.ENOSPC)
    journal = Fault(frozenset({"create"}), "disk1/main/journals/*", count=None, errno=errno.ENOSPC)
    fs = FaultyFileSystem(PosixFileSystem(), journal)
    with open_writer(roots, fs) as writer:
        fs.faults.append(fault)
        for number in range(12):
            try:
                writer.append([event(number)])
            except StorageError:
                continue
            writer.seal()
        assert list(writer.failed_containers) == [roots[0]]
        fs.faults.clear()
        until(lambda: not writer.failed_containers)
        reserved = writer_state.writer_states(PosixFileSystem(), roots, "main")
        assert reserved[roots[0]].reserved == reserved[roots[1]].reserved


def test_a_slow_disk_holds_up_only_the_appends_that_wait_for_it(roots: list[Path]) -> None:
    slow = Fault(frozenset({"sync"}), "disk1/main/journals/*", count=None, errno=0, delay_seconds=0.2)
    fs = FaultyFileSystem(PosixFileSystem(), slow)
    seconds: list[float] = []
    with open_writer(roots, fs, journals=2) as writer:

        def work(thread: int) -> None:
            for number in range(10):
                begun = time.monotonic()
                writer.append([event(thread * 100 + number)])
                seconds.append(time.monotonic() - begun)

        in_threads(6, work)
        assert writer.failed_containers == {}
    assert len(stored(roots)) == 60
    assert slow.met > 3
    # Two journals of four lie on the slow disk; the others answer as if there were none.
    assert sorted(seconds)[len(seconds) // 4] < 0.1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(folder)], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)


def test_a_real_disk_that_is_full_is_used_again_when_room_was_made(small_disk: Path, tmp_path: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(2 << 20))
    root = small_disk / "container"
    told: dict[int, Event] = {}
    with open_writer([root], PosixFileSystem()) as writer:
        number = 0
        with pytest.raises(StorageError) as caught:
            while True:
                appended = event(number, details="x" * 20_000)
                told[writer.append([appended]).start] = appended
                number += 1
        assert caught.value.errno == errno.ENOSPC
        assert disk_status(PosixFileSystem(), root).state == "full"
        ballast.unlink()
        appended = event(number + 1)
        told[append_until_it_works(writer, appended)] = appended
        assert disk_status(PosixFileSystem(), root).state in ("ok", "full")
    by_id = {item.event_id: item for item in stored([root])}
    assert len(told) > 50
    assert {number: by_id[number].flowfile_uuid for number in told} == {n: e.flowfile_uuid for n, e in told.items()}


def test_a_real_disk_that_is_mounted_read_only_is_left_out_until_it_is_writable(
    small_disk: Path, tmp_path: Path
) -> None:
    roots = [tmp_path / "disk1", small_disk / "container"]  # the lock, which is held open, lies on the first
    told = []
    with open_writer(roots, PosixFileSystem()) as writer:
        told.append(writer.append([event(0)]).start)
        writer.seal()
        subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
        for number in range(1, 4):
            try:
                told.append(writer.append([event(number)]).start)
            except StorageError as error:
                assert error.errno == errno.EROFS
            writer.seal()
        assert list(writer.failed_containers) == [roots[1]]
        assert disk_status(PosixFileSystem(), roots[1]).state == "read-only"
        subprocess.run(["mount", "-o", "remount,rw", str(small_disk)], check=True)
        until(lambda: not writer.failed_containers)
        for number in range(4, 6):
            told.append(writer.append([event(number)]).start)
            writer.seal()
    assert len(told) >= 5
    assert [item.event_id for item in stored(roots)] == told
    assert any(path.name.endswith(".sealed") for path in (roots[1] / "main/journals").iterdir())
