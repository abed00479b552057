"""A journal with group commit: what each sync policy promises, shared syncs, and no way back after a failure."""

from __future__ import annotations

import time
from pathlib import Path
from threading import Thread

import pytest

from custody.errors import ClosedError, CustodyError, StorageError
from custody.format.names import JournalName
from custody.journal import JournalFile
from custody.journal.encoding import PreparedEvents
from custody.journal.journal_file import JournalHeader
from custody.journal.open_group import GroupCommitFile, JournalAppend, SyncPolicy
from custody.model import to_events
from custody.vfs import PosixFileSystem
from tests.support import event
from tests.unit.journal.watched_disk import WatchedFileSystem, in_threads

HEADER = JournalHeader(writer="main", database="provenance", first_event_id=0, created_ms=0)


def journal_in(folder: Path, fs: WatchedFileSystem, policy: SyncPolicy = SyncPolicy.ALWAYS) -> GroupCommitFile:
    return GroupCommitFile(fs, folder / str(JournalName(0, 0, sealed=False)), HEADER, policy)


def record(number: int) -> JournalAppend:
    return JournalAppend(PreparedEvents([event(number)]).records(number), number, 1)


def ids(path: Path) -> list[int]:
    return [item.event_id for item in to_events(JournalFile.read(PosixFileSystem(), path).table())]


def names(fs: WatchedFileSystem) -> list[str]:
    return [name for name, _ in fs.done]


def test_always_syncs_the_name_and_the_bytes_before_it_returns(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    journal = journal_in(tmp_path, fs)
    journal.append(record(0))
    assert names(fs) == ["create", "write", "sync", "rename", "sync_directory", "write", "sync"]
    journal.append(record(1))
    assert names(fs)[7:] == ["write", "sync"]
    journal.sync()
    assert len(fs.done) == 9, "nothing was left to sync"


@pytest.mark.parametrize("policy", [SyncPolicy.INTERVAL, SyncPolicy.NEVER])
def test_the_other_policies_write_at_once_and_sync_when_told(tmp_path: Path, policy: SyncPolicy) -> None:
    fs = WatchedFileSystem()
    journal = journal_in(tmp_path, fs, policy)
    for number in range(3):
        journal.append(record(number))
        assert ids(journal.path) == list(range(number + 1)), "another process sees it"
    assert names(fs) == ["create", "write", "sync", "rename", "sync_directory", "write", "write", "write"]
    journal.sync()
    assert names(fs)[8:] == ["sync"]
    journal.append(record(3))
    sealed = journal.close()
    assert names(fs)[9:] == ["write", "write", "sync", "rename", "sync_directory"], "the record and the end record"
    assert sealed is not None
    assert ids(sealed) == [0, 1, 2, 3]


def test_a_journal_that_nobody_used_leaves_no_file(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    journal = journal_in(tmp_path, fs)
    journal.sync()
    assert journal.close() is None
    assert fs.done == []


def test_one_sync_serves_all_that_queued_while_it_ran(tmp_path: Path) -> None:
    """While the first append syncs, seven more queue: they share the second sync."""
    fs = WatchedFileSystem(sync_seconds=0.5)
    journal = journal_in(tmp_path, fs)
    first = Thread(target=journal.append, args=(record(0),))
    first.start()
    while fs.count("sync_directory") == 0:
        time.sleep(0.001)
    in_threads(7, lambda number: journal.append(record(1 + number)))
    first.join()
    assert fs.count("sync") == 3, "the header, the first record, the seven others"
    assert fs.count("write") == 3
    assert sorted(ids(journal.path)) == list(range(8))


@pytest.mark.parametrize("operation", ["create", "write", "sync_directory", "sync"])
def test_a_journal_that_failed_is_poisoned_and_the_rest_of_the_disk_working_again_does_not_heal_it(
    tmp_path: Path, operation: str
) -> None:
    fs = WatchedFileSystem()
    fs.broken, fs.broken_operations = [tmp_path], (operation,)
    journal = journal_in(tmp_path, fs)
    with pytest.raises(StorageError, match=f"cannot {operation}"):
        journal.append(record(0))
    fs.broken = []
    done = list(fs.done)
    for number in (1, 2):
        with pytest.raises(ClosedError, match=f"an earlier append failed .cannot {operation}.*nothing more is written"):
            journal.append(record(number))
    journal.sync()
    assert journal.close() is None, "what cannot be trusted is not sealed"
    assert fs.done == done


def test_what_was_acknowledged_before_a_failure_stays(tmp_path: Path) -> None:
    fs = WatchedFileSystem()
    journal = journal_in(tmp_path, fs)
    journal.append(record(0))
    fs.broken = [tmp_path]
    with pytest.raises(StorageError):
        journal.append(record(1))
    assert journal.close() is None
    assert ids(journal.path)[:1] == [0]


def test_every_append_that_shared_a_failed_sync_raises(tmp_path: Path) -> None:
    """None of them may be told that its event is safe, and each is told that the disk refused."""
    fs = WatchedFileSystem(sync_seconds=0.3)
    journal = journal_in(tmp_path, fs)
    first = Thread(target=journal.append, args=(record(0),))
    first.start()
    while fs.count("sync_directory") == 0:
        time.sleep(0.001)
    raised: list[CustodyError] = []

    def work(number: int) -> None:
        try:
            journal.append(record(1 + number))
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
    assert ids(journal.path)[0] == 0
