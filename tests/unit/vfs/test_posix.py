"""The real file system: what is published is whole, a name is won once, a lock is held by one process."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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


def test_a_file_holds_all_that_was_written(fs: PosixFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with fs.create(path) as file:
        assert file.write(b"one") == 3
        assert file.write(b"two") == 3
        file.sync()
        assert file.tell() == 6
    assert file.closed
    assert fs.read(path) == b"onetwo"
    assert fs.size(path) == 6


def test_a_name_that_is_taken_is_not_created_again(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    with pytest.raises(StorageError, match="file"):
        fs.create(tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"old"


def test_write_durably_replaces_the_whole_file_and_leaves_nothing_beside_it(
    fs: PosixFileSystem, tmp_path: Path
) -> None:
    for content in (b"a longer first content", b"second"):
        fs.write_durably(tmp_path / "file", content)
        assert fs.read(tmp_path / "file") == content
    assert fs.list(tmp_path) == ["file"]


def test_of_many_that_publish_one_name_one_wins_and_its_content_stays(fs: PosixFileSystem, tmp_path: Path) -> None:
    contents = [f"writer {number}".encode() for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda content: fs.publish_if_absent(tmp_path / "name", content), contents))
    assert won.count(True) == 1
    assert fs.read(tmp_path / "name") == contents[won.index(True)]
    assert fs.list(tmp_path) == ["name"]


def test_removal_can_be_repeated(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "tree" / "inner").mkdir(parents=True)
    (tmp_path / "tree" / "inner" / "file").touch()
    (tmp_path / "file").touch()
    for _ in range(2):
        fs.remove(tmp_path / "file")
        fs.remove_tree(tmp_path / "tree")
    assert fs.list(tmp_path) == []


def test_an_absent_folder_lists_as_empty(fs: PosixFileSystem, tmp_path: Path) -> None:
    assert fs.list(tmp_path / "absent") == []


def test_make_directory_makes_parents_and_can_be_repeated(fs: PosixFileSystem, tmp_path: Path) -> None:
    for _ in range(2):
        fs.make_directory(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "a" / "b" / "c").is_dir()


@pytest.mark.parametrize("action", ["read", "size", "truncate", "sync_file", "sync_directory"])
def test_a_refusal_of_the_system_names_the_path(action: str, fs: PosixFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "absent"
    arguments = (path, 0) if action == "truncate" else (path,)
    with pytest.raises(StorageError, match="absent"):
        getattr(fs, action)(*arguments)


def test_truncate_cuts_to_the_length(fs: PosixFileSystem, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"0123456789")
    fs.truncate(tmp_path / "file", 4)
    assert fs.read(tmp_path / "file") == b"0123"


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


def test_a_lock_ends_with_a_killed_process(fs: PosixFileSystem, tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    with python(HOLD, path) as other:
        assert other.stdout is not None
        other.stdout.readline()
        other.kill()
        other.wait(10)
        with fs.lock(path):
            assert path.exists()
