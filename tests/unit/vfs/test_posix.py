"""The real file system beside other processes: a lock is held by one of them.

What it has in common with the other file systems is in test_file_systems.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from custody.errors import LockedError, StorageError
from custody.vfs import PosixFileSystem
from tests.support import python

HOLD = """
import sys
from pathlib import Path
from custody.vfs import PosixFileSystem
with PosixFileSystem().lock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_a_lock_is_held_against_another_process_and_names_it(fs: PosixFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    assert not fs.is_locked(path)
    with python(HOLD, path) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == "held\n"
        assert fs.is_locked(path)
        with pytest.raises(LockedError, match=f"live process {other.pid}"), fs.lock(path):
            pytest.fail("two processes held one lock")
        other.stdin.close()
        other.wait(10)
    assert not fs.is_locked(path)
    with fs.lock(path):
        assert fs.is_locked(path)


def test_a_lock_that_is_taken_again_is_not_written_again(fs: PosixFileSystem, tmp_path: Path) -> None:
    """Some file systems write a file that was cut to the disk when it is closed: each commit would wait for that."""
    path = tmp_path / "LOCK"
    path.write_text("123456789123\n")
    with fs.lock(path):
        assert path.read_text() == f"{os.getpid()}\n", "the number of another process is cut"
    os.utime(path, (0, 0))
    for _ in range(2):
        with fs.lock(path):
            assert path.stat().st_mtime == 0


def test_a_lock_ends_with_a_killed_process(fs: PosixFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    with python(HOLD, path) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
        other.wait(10)
        with fs.lock(path):
            assert path.exists()


def test_a_link_to_a_folder_is_no_folder(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    assert fs.folders(tmp_path) == {"folder"}


def test_a_file_is_read_whole_whatever_the_system_says_of_its_size(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert fs.read(Path("/proc/self/cmdline")) == Path("/proc/self/cmdline").read_bytes() != b""
    path = tmp_path / "file"
    content = os.urandom(100_000)
    path.write_bytes(content)
    assert fs.read(path) == content
    path.write_bytes(b"")
    assert fs.read(path) == b""
    with pytest.raises(StorageError, match="cannot read") as refused:
        fs.read(tmp_path)
    assert refused.value.errno == errno.EISDIR
    # It grows between the look at its size and the reading, and the system gives less than was asked for.
    path.write_bytes(content)
    size, read = os.fstat, os.read
    monkeypatch.setattr(os, "fstat", lambda file: os.stat_result([*size(file)[:6], 60_000, *size(file)[7:]]))
    monkeypatch.setattr(os, "read", lambda file, length: read(file, min(length, 1000)))
    assert fs.read(path) == content


def test_a_disk_is_synced_at_once_only_where_that_can_be_relied_on(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not fs.sync_disk(Path("/proc"))
    monkeypatch.setattr("custody.vfs.whole_disk.KNOWN_FILE_SYSTEMS", frozenset({_type_of(tmp_path)}))
    assert fs.sync_disk(tmp_path)
    monkeypatch.setattr("custody.vfs.whole_disk.KNOWN_FILE_SYSTEMS", frozenset())
    assert not fs.sync_disk(tmp_path)
    monkeypatch.undo()
    monkeypatch.setattr("custody.vfs.whole_disk._reports_errors", lambda: False)
    assert not fs.sync_disk(tmp_path)


def _type_of(folder: Path) -> int:
    """The type of a file system as `stat` tells it."""
    return int(subprocess.run(["stat", "-f", "-c", "%t", folder], capture_output=True, check=True).stdout, 16)
