"""Abilities of file systems: which are asked for, and how their absence is reported."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from custody.errors import StorageError
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.vfs.abilities import require_abilities


def _refuse(number: int) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def _without_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(os, "link", _refuse(errno.EPERM))


def _without_locks(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(fcntl, "flock", _refuse(errno.ENOLCK))


def _without_folder_sync(patch: pytest.MonkeyPatch) -> None:
    whole = os.fsync

    def fsync(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            _refuse(errno.EINVAL)()
        whole(descriptor)

    patch.setattr(os, "fsync", fsync)


@pytest.mark.parametrize(
    ("lack", "ability"),
    [(_without_links, "hard links"), (_without_locks, "locks"), (_without_folder_sync, "sync of a folder")],
    ids=["links", "locks", "folder-sync"],
)
def test_a_new_repository_is_refused_by_the_name_of_the_ability_that_its_disk_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lack: Callable[[pytest.MonkeyPatch], None], ability: str
) -> None:
    lack(monkeypatch)
    with pytest.raises(StorageError, match=f"This file system has no {ability}, which custody needs"):
        Repository.create(tmp_path / "below" / "r")
    assert list(tmp_path.iterdir()) == []


def test_a_disk_with_all_abilities_keeps_nothing_of_the_probe(tmp_path: Path) -> None:
    require_abilities(PosixFileSystem(), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_check_of_a_lock_asks_for_what_nfs_grants_a_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's NFS client answers EBADF to an exclusive lock on a descriptor for reading, and the reverse."""
    flock, fs, path = fcntl.flock, PosixFileSystem(), tmp_path / "LOCK"

    def as_nfs(descriptor: int, operation: int) -> None:
        mode = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE
        if (operation & fcntl.LOCK_EX and mode == os.O_RDONLY) or (operation & fcntl.LOCK_SH and mode == os.O_WRONLY):
            _refuse(errno.EBADF)()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", as_nfs)
    with fs.lock(path):
        assert fs.is_locked(path)
    assert not fs.is_locked(path)
