"""A lane: what each sync policy promises, one sync for all that queued meanwhile, and no way back after a failure."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest

from custody.errors import ClosedError, CustodyError, StorageError
from custody.format.names import JournalName
from custody.journal import JournalFile
from custody.journal.encoding import Prepared
from custody.journal.file import JournalHeader
from custody.journal.group_commit import Appended, Lane, SyncPolicy
from custody.model import to_events
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.unit.journal.disks import WatchedFileSystem, in_threads

HEADER = JournalHeader(writer="main", database="provenance", first_event_id=0, created_ms=0)


def lane_in(folder: Path, fs: WatchedFileSystem, policy: SyncPolicy = SyncPolicy.ALWAYS) -> Lane:
    return Lane(fs, folder / str(JournalName(0, 0, sealed=False)), HEADER, policy)


def record(number: int) -> Appended:
    return Appended(Prepared([event(number)]).records(number), number, 1)


def ids(path: Path) -> list[int]:
    return [item.event_id for item in to_events(JournalFile.read(PosixFileSystem(), path).table())]


def names(fs: WatchedFileSystem) -> list[str]:
    return [name for name, _ in fs.done]


def test_always_syncs_the_name_and_the_bytes_before_it_returns(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    lane = lane_in(tmp_path, fs)
    lane.append(record(0))
    assert names(fs) == ["create", "write", "sync", "rename", "sync_directory", "write", "sync"]
    lane.append(record(1))
    assert names(fs)[7:] == ["write", "sync"]
    lane.sync()
    assert len(fs.done) == 9, "nothing was left to sync"


@pytest.mark.parametrize("policy", [SyncPolicy.INTERVAL, SyncPolicy.NEVER])
def test_the_other_policies_write_at_once_and_sync_when_told(tmp_path: Path, policy: SyncPolicy) -> None:
    fs = WatchedFileSystem()
    lane = lane_in(tmp_path, fs, policy)
    for number in range(3):
        lane.append(record(number))
        assert ids(lane.path) == list(range(number + 1)), "another process sees it"
    assert names(fs) == ["create", "write", "sync", "rename", "sync_directory", "write", "write", "write"]
    lane.sync()
    assert names(fs)[8:] == ["sync"]
    lane.append(record(3))
    sealed = lane.close()
    assert names(fs)[9:] == ["write", "write", "sync", "rename", "sync_directory"], "the record and the end record"
    assert sealed is not None
    assert ids(sealed) == [0, 1, 2, 3]


def test_a_lane_that_nobody_used_leaves_no_file(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    lane = lane_in(tmp_path, fs)
    lane.sync()
    assert lane.close() is None
    assert fs.done == []


def test_one_sync_serves_all_that_queued_while_it_ran(tmp_path: Path) -> None:
    """While the first append syncs, seven more queue: they share the second sync."""
    fs = WatchedFileSystem(sync_seconds=0.5)
    lane = lane_in(tmp_path, fs)
    first = Thread(target=lane.append, args=(record(0),))
    first.start()
    while fs.count("sync_directory") == 0:
        time.sleep(0.001)
    in_threads(7, lambda number: lane.append(record(1 + number)))
    first.join()
    assert fs.count("sync") == 3, "the header, the first record, the seven others"
    assert fs.count("write") == 3
    assert sorted(ids(lane.path)) == list(range(8))


@pytest.mark.parametrize("operation", ["create", "write", "sync_directory", "sync"])
def test_a_lane_that_failed_is_poisoned_and_the_rest_of_the_disk_working_again_does_not_heal_it(
    tmp_path: Path, operation: str
) -> None:
    fs = WatchedFileSystem()
    fs.broken, fs.broken_operations = [tmp_path], (operation,)
    lane = lane_in(tmp_path, fs)
    with pytest.raises(StorageError, match=f"cannot {operation}"):
        lane.append(record(0))
    fs.broken = []
    done = list(fs.done)
    for number in (1, 2):
        with pytest.raises(ClosedError, match=f"an earlier append failed .cannot {operation}.*nothing more is written"):
            lane.append(record(number))
    lane.sync()
    assert lane.close() is None, "what cannot be trusted is not sealed"
    assert fs.done == done


def test_what_was_acknowledged_before_a_failure_stays(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    lane = lane_in(tmp_path, fs)
    lane.append(record(0))
    fs.broken = [tmp_path]
    with pytest.raises(StorageError):
        lane.append(record(1))
    assert lane.close() is None
    assert ids(lane.path)[:1] == [0]


def test_every_append_that_shared_a_failed_sync_raises(tmp_path: Path) -> None:
    """None of them may be told that its event is safe, and each is told that the disk refused."""
    fs = WatchedFileSystem(sync_seconds=0.3)
    lane = lane_in(tmp_path, fs)
    first = Thread(target=lane.append, args=(record(0),))
    first.start()
    while fs.count("sync_directory") == 0:
        time.sleep(0.001)
    raised: list[CustodyError] = []

    def work(number: int) -> None:
        try:
            lane.append(record(1 + number))
        except CustodyError as error:
            raised.append(error)

    others = Thread(target=in_threads, args=(5, work))
    others.start()
    while fs.count("sync") < 2:
        time.sleep(0.001)
    fs.broken, fs.broken_operations = [tmp_path], ("sync",)
    others.join()
    first.join()
    assert len(raised) == 5
    assert all(isinstance(error, StorageError) for error in raised)
    assert ids(lane.path)[0] == 0
