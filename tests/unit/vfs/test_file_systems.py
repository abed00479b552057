"""One behaviour of all file systems: the real one, the one in memory, and one with faults that never strike."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from custody.errors import LockedError, StorageError
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.faults import FaultyFileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem


@pytest.fixture(params=["posix", "memory", "wrapped"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[FileSystem]:
    """A file system on which `tmp_path` exists and is empty."""
    made: FileSystem = PosixFileSystem() if request.param == "posix" else MemoryFileSystem()
    made.make_directory(tmp_path)
    yield FaultyFileSystem(made) if request.param == "wrapped" else made


def write(fs: FileSystem, path: Path, data: bytes) -> None:
    with fs.create(path) as file:
        file.write(data)
        file.sync()


def test_a_file_holds_all_that_was_written(disk: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "file"
    with disk.create(path) as file:
        assert file.write(b"one") == 3
        assert file.write(b"two") == 3
        file.flush()
        file.sync()
        assert file.tell() == 6
        assert not file.closed
    assert file.closed
    assert disk.read(path) == b"onetwo"
    assert disk.size(path) == 6


def test_a_view_shows_the_content_and_cannot_be_written(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"0123456789")
    view = disk.view(tmp_path / "file")
    assert view.readonly
    assert bytes(view[2:5]) == b"234"
    assert len(view) == 10


def test_a_view_outlives_the_name(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"still here")
    view = disk.view(tmp_path / "file")
    disk.remove(tmp_path / "file")
    assert bytes(view) == b"still here"


def test_an_empty_file_has_an_empty_view(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"")
    assert bytes(disk.view(tmp_path / "file")) == b""


def test_a_name_that_is_taken_is_not_created_again(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"old")
    with pytest.raises(StorageError, match="file"):
        disk.create(tmp_path / "file")
    assert disk.read(tmp_path / "file") == b"old"


@pytest.mark.parametrize(
    "action",
    ["create", "read", "view", "size", "truncate", "sync_file", "sync_directory", "add_directory", "rename", "link"],
)
def test_a_refusal_names_the_path(action: str, disk: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "absent" / "name"
    more = {"truncate": (0,), "rename": (tmp_path / "other",), "link": (tmp_path / "other",)}
    with pytest.raises(StorageError, match="absent") as refused:
        getattr(disk, action)(path, *more.get(action, ()))
    assert isinstance(refused.value, OSError)
    assert refused.value.errno == 2


def test_an_absent_folder_lists_as_empty_and_a_file_does_not(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"")
    assert disk.list(tmp_path / "absent") == []
    with pytest.raises(StorageError, match="file"):
        disk.list(tmp_path / "file")


def test_names_are_listed_in_order(disk: FileSystem, tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        write(disk, tmp_path / name, b"")
    assert disk.list(tmp_path) == ["a", "b", "c"]


def test_folders_are_told_from_files(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"")
    for name in ("a", "b.c"):
        disk.make_directory(tmp_path / name)
    assert disk.folders(tmp_path) == {"a", "b.c"}
    assert disk.folders(tmp_path / "a") == disk.folders(tmp_path / "absent") == set()


def test_make_directory_makes_parents_and_can_be_repeated(disk: FileSystem, tmp_path: Path) -> None:
    for _ in range(2):
        disk.make_directory(tmp_path / "a" / "b" / "c")
    assert disk.is_directory(tmp_path / "a" / "b" / "c")
    assert disk.exists(tmp_path / "a" / "b" / "c")
    assert not disk.exists(tmp_path / "a" / "x")


def test_a_folder_does_not_take_a_files_name(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"data")
    with pytest.raises(StorageError, match="file"):
        disk.add_directory(tmp_path / "file")
    assert not disk.is_directory(tmp_path / "file")


def test_rename_replaces_a_file(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "old", b"new content")
    write(disk, tmp_path / "name", b"old content")
    disk.rename(tmp_path / "old", tmp_path / "name")
    assert disk.list(tmp_path) == ["name"]
    assert disk.read(tmp_path / "name") == b"new content"


def test_an_open_file_is_written_on_under_its_new_name(disk: FileSystem, tmp_path: Path) -> None:
    with disk.create(tmp_path / "old") as file:
        file.write(b"one")
        disk.rename(tmp_path / "old", tmp_path / "new")
        file.write(b"two")
        file.sync()
    assert disk.read(tmp_path / "new") == b"onetwo"


def test_a_folder_is_renamed_with_all_in_it_but_not_over_a_full_one(disk: FileSystem, tmp_path: Path) -> None:
    for name in ("attempt", "taken"):
        disk.make_directory(tmp_path / name)
        write(disk, tmp_path / name / "file", name.encode())
    with pytest.raises(StorageError):
        disk.rename(tmp_path / "attempt", tmp_path / "taken")
    disk.rename(tmp_path / "attempt", tmp_path / "published")
    assert disk.read(tmp_path / "published" / "file") == b"attempt"
    assert disk.list(tmp_path) == ["published", "taken"]


def test_a_link_is_a_second_name_and_takes_none_that_is_taken(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "one", b"data")
    assert disk.link(tmp_path / "one", tmp_path / "two")
    assert not disk.link(tmp_path / "one", tmp_path / "two")
    disk.remove(tmp_path / "one")
    assert disk.read(tmp_path / "two") == b"data"


def test_removal_can_be_repeated(disk: FileSystem, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "tree" / "inner")
    write(disk, tmp_path / "tree" / "inner" / "file", b"")
    write(disk, tmp_path / "file", b"")
    with pytest.raises(StorageError):
        disk.remove_directory(tmp_path / "tree")
    for _ in range(2):
        disk.remove(tmp_path / "file")
        disk.remove_tree(tmp_path / "tree")
        disk.remove_directory(tmp_path / "tree")
    assert disk.list(tmp_path) == []


def test_truncate_cuts_to_the_length(disk: FileSystem, tmp_path: Path) -> None:
    write(disk, tmp_path / "file", b"0123456789")
    disk.truncate(tmp_path / "file", 4)
    assert disk.read(tmp_path / "file") == b"0123"


def test_write_durably_replaces_the_whole_file_and_leaves_nothing_beside_it(disk: FileSystem, tmp_path: Path) -> None:
    for content in (b"a longer first content", b"second"):
        disk.write_durably(tmp_path / "file", content)
        assert disk.read(tmp_path / "file") == content
    assert disk.list(tmp_path) == ["file"]


@pytest.mark.parametrize("files", [1, 100])
def test_files_that_are_written_together_replace_what_is_there_and_leave_nothing_beside_them(
    disk: FileSystem, tmp_path: Path, files: int
) -> None:
    write(disk, tmp_path / "a0", b"a longer first content")
    groups = [{f"{group}{number}": f"{group} {number}".encode() for number in range(files)} for group in "ab"]
    disk.write_all_durably(tmp_path, groups)
    assert {name: disk.read(tmp_path / name) for name in disk.list(tmp_path)} == {**groups[0], **groups[1]}


def test_files_are_synced_one_by_one_where_the_disk_cannot_be_synced_as_a_whole() -> None:
    class WithoutSyncOfAll(MemoryFileSystem):
        def sync_disk(self, folder: Path) -> bool:
            return False

    fs, names = WithoutSyncOfAll(), [str(number) for number in range(100)]
    fs.make_directory(Path("/folder"))
    fs.write_all_durably(Path("/folder"), [dict.fromkeys(names, b"data")])
    found = fs.crashed(CrashMode.SYNCED_ONLY)
    assert {name: found.read(Path("/folder") / name) for name in names} == dict.fromkeys(names, b"data")


def test_of_many_that_publish_one_name_one_wins_and_its_content_stays(disk: FileSystem, tmp_path: Path) -> None:
    contents = [f"writer {number}".encode() for number in range(16)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda content: disk.publish_if_absent(tmp_path / "name", content), contents))
    assert won.count(True) == 1
    assert disk.read(tmp_path / "name") == contents[won.index(True)]
    assert disk.list(tmp_path) == ["name"]


def test_a_lock_is_held_once_and_can_be_held_again_after_its_end(disk: FileSystem, tmp_path: Path) -> None:
    path = tmp_path / "LOCK"
    assert not disk.is_locked(path)
    for _ in range(2):
        with disk.lock(path):
            assert disk.is_locked(path)
            with pytest.raises(LockedError, match="LOCK"), disk.lock(path):
                pytest.fail("held twice")
        assert not disk.is_locked(path)
        assert disk.exists(path)


def test_a_disk_is_synced_by_a_folder_on_it(disk: FileSystem, tmp_path: Path) -> None:
    with disk.create(tmp_path / "file") as file:
        file.write(b"data")
    disk.sync_disk(tmp_path)
    assert disk.read(tmp_path / "file") == b"data"
    with pytest.raises(StorageError, match="absent"):
        disk.sync_disk(tmp_path / "absent")


def test_what_lies_below_a_folder_is_what_its_paths_give(disk: FileSystem, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "a" / "inner")
    write(disk, tmp_path / "a" / "small", b"one")
    write(disk, tmp_path / "a" / "large", b"x" * (1 << 20))
    below = disk.below(tmp_path)
    assert (below.read("a/small"), below.read("a/large")) == (b"one", b"x" * (1 << 20))
    assert below.list("a") == below.list("a/") == ["inner", "large", "small"]
    assert below.folders("a/") == {"inner"}
    assert (below.list(""), below.folders("")) == (["a"], {"a"})
    assert (below.list("none"), below.folders("none/")) == ([], set())


def test_the_entries_of_a_folder_say_what_each_name_says(disk: FileSystem, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "a" / "inner.d")
    write(disk, tmp_path / "a" / "small", b"one")
    write(disk, tmp_path / "a" / "large", b"x" * 5000)
    below = disk.below(tmp_path)
    assert below.entries("a") == below.entries("a/")
    assert [(entry.name, entry.is_folder) for entry in below.entries("a")] == [
        ("inner.d", True),
        ("large", False),
        ("small", False),
    ]
    for entry in below.entries("a")[1:]:
        path = tmp_path / "a" / entry.name
        assert (entry.size_bytes, entry.modified_ms) == (disk.size(path), disk.modified_ms(path))
        assert entry.is_readable
    assert [entry.name for entry in below.entries("")] == ["a"]
    assert below.entries("none") == []
    with pytest.raises(StorageError) as listed:
        disk.list(tmp_path / "a" / "small")
    with pytest.raises(StorageError) as entered:
        below.entries("a/small")
    assert entered.value.errno == listed.value.errno


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_link_is_the_entry_of_what_it_leads_to_and_no_folder(wrapped: bool, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "file").write_bytes(b"12345")
    (tmp_path / "a" / "to-file").symlink_to(tmp_path / "b" / "file")
    (tmp_path / "a" / "to-folder").symlink_to(tmp_path / "b")
    (tmp_path / "a" / "to-nothing").symlink_to(tmp_path / "none")
    (tmp_path / "a" / "to-itself").symlink_to(tmp_path / "a" / "to-itself")
    fs: FileSystem = FaultyFileSystem(PosixFileSystem()) if wrapped else PosixFileSystem()
    found = {entry.name: entry for entry in fs.below(tmp_path).entries("a")}
    assert found.keys() == {"to-file", "to-folder", "to-itself"}
    assert (found["to-file"].size_bytes, found["to-file"].is_readable) == (5, True)
    assert not found["to-folder"].is_folder
    assert (found["to-itself"].size_bytes, found["to-itself"].is_readable) == (0, False)


def test_new_files_below_a_folder_are_those_of_their_paths(disk: FileSystem, tmp_path: Path) -> None:
    disk.make_directory(tmp_path / "a")
    below = disk.below(tmp_path)
    assert below.is_absent("a/inner") and below.is_absent("none/inner")
    below.add_directory("a/inner")
    below.add_directory("a/inner")  # one that is there is fine
    below.create_with("a/inner/file", memoryview(b"data"))
    assert not (below.is_absent("a/inner") or below.is_absent("a/inner/file"))
    assert disk.read(tmp_path / "a" / "inner" / "file") == b"data"
    for name in ("a/inner/file", "none/file", "a/inner"):
        with pytest.raises(StorageError) as by_path:
            disk.create(tmp_path / name)
        with pytest.raises(StorageError) as by_text:
            below.create_with(name, b"other")
        assert (str(by_text.value), by_text.value.errno) == (str(by_path.value), by_path.value.errno)
    for name in ("a/inner/file", "none/folder"):
        with pytest.raises(StorageError) as by_path:
            disk.add_directory(tmp_path / name)
        with pytest.raises(StorageError) as by_text:
            below.add_directory(name)
        assert (str(by_text.value), by_text.value.errno) == (str(by_path.value), by_path.value.errno)
    assert disk.read(tmp_path / "a" / "inner" / "file") == b"data"


@pytest.mark.parametrize("name", ["a/none", "none/a", "file/a", "folder"])
def test_what_is_refused_below_a_folder_says_what_its_path_says(disk: FileSystem, tmp_path: Path, name: str) -> None:
    disk.make_directory(tmp_path / "folder")
    write(disk, tmp_path / "file", b"")
    below = disk.below(tmp_path)
    with pytest.raises(StorageError) as by_path:
        disk.read(tmp_path / name)
    with pytest.raises(StorageError) as by_text:
        below.read(name)
    assert (str(by_text.value), by_text.value.errno) == (str(by_path.value), by_path.value.errno)
    if name == "file/a":
        with pytest.raises(StorageError) as listed:
            disk.list(tmp_path / "file")
        with pytest.raises(StorageError) as listed_below:
            below.list("file")
        assert (str(listed_below.value), listed_below.value.errno) == (str(listed.value), listed.value.errno)


def test_a_disk_that_changes_a_call_is_asked_for_each(tmp_path: Path) -> None:
    class Shouting(PosixFileSystem):
        def read(self, path: Path) -> bytes:
            return super().read(path).upper()

    write(Shouting(), tmp_path / "file", b"one")
    assert Shouting().below(tmp_path).read("file") == b"ONE"
