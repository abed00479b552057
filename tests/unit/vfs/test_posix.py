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
from custody.vfs import PosixFileSystem, write_durably
from custody.vfs.file_system_type import EXT
from custody.vfs.posix import PosixFile
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


class Calls:
    """The calls of the system that write and sync, in their order; what is written in pieces of some bytes."""

    def __init__(self, patch: pytest.MonkeyPatch, piece: int = 1 << 30) -> None:
        self.made: list[str] = []
        write, pwritev, fdatasync = os.write, os.pwritev, os.fdatasync

        def counted_write(descriptor: int, data: bytes) -> int:
            self.made.append("write")
            return write(descriptor, memoryview(data)[:piece])

        def counted_pwritev(descriptor: int, buffers: list[bytes], offset: int, flags: int) -> int:
            assert (offset, flags) == (-1, os.RWF_DSYNC)
            self.made.append("write and sync")
            return pwritev(descriptor, [memoryview(b"".join(buffers))[:piece]], offset, flags)

        def counted_fdatasync(descriptor: int) -> None:
            self.made.append("sync")
            fdatasync(descriptor)

        patch.setattr(os, "write", counted_write)
        patch.setattr(os, "pwritev", counted_pwritev)
        patch.setattr(os, "fdatasync", counted_fdatasync)


@pytest.fixture
def ext4(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the disk of the tests is."""
    monkeypatch.setattr("custody.vfs.file_system_type.type_of_open", lambda _: EXT)


@pytest.mark.usefixtures("ext4")
@pytest.mark.parametrize("piece", [1, 3, 1 << 30])
def test_a_write_that_is_durable_is_one_call_and_the_same_file(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int
) -> None:
    path = tmp_path / "file"
    with fs.create(path) as file:
        file.write(b"head,")
        file.sync()
        calls = Calls(monkeypatch, piece)
        write_durably(file, b"first,")
        write_durably(file, b"second"[:1], memoryview(b"second")[1:], b",")
        assert set(calls.made) == {"write and sync"}
        assert len(calls.made) == -(-6 // piece) + -(-7 // piece)
        # Bytes before it that nothing has synced: the one call would leave them out.
        calls.made.clear()
        file.write(b"third,")
        write_durably(file, b"fourth", memoryview(b","))
        assert calls.made[-1] == "sync"
        assert "write and sync" not in calls.made
        write_durably(file, b"")
        assert calls.made[-1] == "sync"
        write_durably(file, b"fifth,")
        file.write(b"end")
        assert file.tell() == len(b"head,first,second,third,fourth,fifth,end")
    assert path.read_bytes() == b"head,first,second,third,fourth,fifth,end"
    with fs.append(path) as file:
        # What others wrote may not be durable.
        calls.made.clear()
        write_durably(file, b"!")
        assert calls.made == ["write", "sync"]
        write_durably(file, b"?")
        assert calls.made[2:] == ["write and sync"]
    assert path.read_bytes() == b"head,first,second,third,fourth,fifth,end!?"


@pytest.mark.usefixtures("ext4")
def test_a_durable_write_that_fails_says_so_and_proves_nothing(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with fs.create(tmp_path / "file") as file:
        write_durably(file, b"head")
        calls = Calls(monkeypatch)
        with monkeypatch.context() as broken, pytest.raises(StorageError, match=r"file: No space left") as failure:
            broken.setattr(os, "pwritev", full)
            write_durably(file, b"more")
        assert failure.value.errno == errno.ENOSPC
        assert file.tell() == 4
        # Whoever goes on all the same gets no sync of a part.
        write_durably(file, b"rest")
        assert calls.made == ["write", "sync"]


@pytest.mark.usefixtures("ext4")
@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM])
def test_where_the_system_does_not_make_the_call_there_are_two_others(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    calls, refused = Calls(monkeypatch), []

    def refuse(*_: object) -> int:
        refused.append(number)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "pwritev", refuse)
    with fs.create(tmp_path / "file") as file:
        for text in (b"a", b"b", b"c"):
            write_durably(file, text)
    assert (tmp_path / "file").read_bytes() == b"abc"
    assert calls.made == ["write", "sync"] * 3
    assert len(refused) == 1, "it is asked once"


def test_elsewhere_a_durable_write_is_a_write_and_a_sync(
    fs: PosixFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FUSE and others may take the flag and do nothing about it; a file that changes a call is asked for both."""
    calls = Calls(monkeypatch)
    with monkeypatch.context() as patch, fs.create(tmp_path / "file") as file:
        patch.setattr("custody.vfs.file_system_type.type_of_open", lambda _: 0x65735546)
        for _ in range(3):
            write_durably(file, b"x")
    assert calls.made == ["write", "sync"] * 3

    class Own(PosixFile):
        pass

    calls.made.clear()
    with Own(tmp_path / "own", os.open(tmp_path / "own", os.O_WRONLY | os.O_CREAT, 0o600)) as own:
        for _ in range(3):
            write_durably(own, b"x")
    assert calls.made == ["write", "sync"] * 3
