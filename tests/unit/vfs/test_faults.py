"""Faults: the chosen operation fails with the chosen errno, and the disk holds what it would after that."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from custody.errors import StorageError
from custody.vfs.faults import READS, SYNCS, Fault, FaultyFileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.memory_repository import Promises, repository

FILE = Path("/file")


def test_the_nth_operation_fails_and_those_around_it_do_not() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(first=2))
    with fs.create(FILE) as file:
        with pytest.raises(StorageError, match="/file"):
            file.write(b"lost")
        file.write(b"kept")
    assert fs.read(FILE) == b"kept"


def test_a_fault_meets_only_its_kind_and_path() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(frozenset({"create"}), "*.journal", count=None))
    fs.write_durably(Path("/other"), b"data")
    for _ in range(2):
        with pytest.raises(StorageError) as failed:
            fs.create(Path("/1.journal"))
        assert failed.value.errno == errno.EIO


def test_a_full_disk_takes_what_fits_and_refuses_the_rest_until_there_is_room() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), free_bytes=6)
    with fs.create(FILE) as file:
        assert file.write(b"0123") == 4
        for _ in range(2):
            with pytest.raises(StorageError, match="Free space") as full:
                file.write(b"4567")
            assert full.value.errno == errno.ENOSPC
        assert fs.read(FILE) == b"012345"
        fs.free()
        file.write(b"!")
    assert fs.read(FILE) == b"012345!"


def test_a_short_write_leaves_its_beginning() -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(frozenset({"write"}), taken_bytes=3))
    with fs.create(FILE) as file, pytest.raises(StorageError):
        file.write(b"0123456789")
    assert fs.read(FILE) == b"012"


def test_a_failed_sync_makes_nothing_durable() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk, Fault(SYNCS, count=None))
    with fs.create(FILE) as file, pytest.raises(StorageError):
        file.sync()
    with pytest.raises(StorageError):
        fs.sync_directory(Path("/"))
    assert not disk.crashed(CrashMode.SYNCED_ONLY).exists(FILE)


@pytest.mark.parametrize("kind", sorted(READS))
def test_a_read_error_is_a_storage_error(kind: str) -> None:
    fs = FaultyFileSystem(MemoryFileSystem(), Fault(frozenset({kind})))
    with pytest.raises(StorageError, match="file"):
        getattr(fs, kind)(FILE)


def test_a_full_disk_is_taken_out_and_loses_no_acknowledged_event() -> None:
    disk = MemoryFileSystem()
    fs = FaultyFileSystem(disk)
    promises = Promises()
    with repository(fs).writer() as writer:
        promises.append(writer, 2)
        fs.free(100)
        with pytest.raises(StorageError, match="Free space"):
            promises.append(writer, 1)
        fs.free()
        promises.append(writer, 1)
        assert len(writer.failed_containers) == 1
    ids = {item.event_id for item in repository(disk).events()}
    assert ids >= set(promises.acknowledged)
    with repository(disk).writer() as writer:
        promises.append(writer, 1)
