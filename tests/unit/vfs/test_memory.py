"""The file system in memory: what a crash leaves in each mode, and that the process is dead after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.vfs.memory import CrashMode, InjectedCrash, MemoryFileSystem

POWER_LOSS = [mode for mode in CrashMode if mode is not CrashMode.ALL_KEPT]
RANDOM = [CrashMode.RANDOM_FILES, CrashMode.RANDOM_BLOCKS]
SEEDS = range(60)
FOLDER = Path("/folder")
FILE = FOLDER / "file"


@pytest.fixture
def fs() -> MemoryFileSystem:
    made = MemoryFileSystem()
    made.make_directory(FOLDER)
    return made


def contents(fs: MemoryFileSystem, mode: CrashMode, path: Path = FILE) -> set[bytes | None]:
    """What a name may hold after a crash, None for nothing, over many seeds."""
    disks = [fs.crashed(mode, seed) for seed in SEEDS]
    return {disk.read(path) if disk.exists(path) else None for disk in disks}


@pytest.mark.parametrize("mode", CrashMode)
def test_what_was_synced_survives_every_crash(mode: CrashMode, fs: MemoryFileSystem) -> None:
    fs.write_durably(FILE, b"durable")
    assert contents(fs, mode) == {b"durable"}


def test_a_killed_process_leaves_all_and_nothing_of_it_durable(fs: MemoryFileSystem) -> None:
    fs.create(FILE).write(b"data")
    kept = fs.crashed(CrashMode.ALL_KEPT)
    assert kept.read(FILE) == b"data"
    assert not kept.crashed(CrashMode.SYNCED_ONLY).exists(FILE)
    kept.sync_directory(FOLDER)
    assert kept.crashed(CrashMode.SYNCED_ONLY).read(FILE) == b""
    kept.sync_file(FILE)
    assert kept.crashed(CrashMode.SYNCED_ONLY).read(FILE) == b"data"


@pytest.mark.parametrize("mode", POWER_LOSS)
def test_what_survived_power_loss_is_durable(mode: CrashMode, fs: MemoryFileSystem) -> None:
    fs.create(FILE).write(b"data" * 1000)
    for seed in SEEDS:
        found = fs.crashed(mode, seed)
        assert found.crashed(CrashMode.SYNCED_ONLY).files() == found.files()


def test_a_synced_file_without_its_folder_synced_may_be_gone(fs: MemoryFileSystem) -> None:
    with fs.create(FILE) as file:
        file.write(b"data")
        file.sync()
    assert contents(fs, CrashMode.SYNCED_ONLY) == {None}
    assert contents(fs, CrashMode.RANDOM_FILES) == {None, b"data"}


def test_a_folder_that_is_not_durable_takes_with_it_all_that_is_durable_inside(fs: MemoryFileSystem) -> None:
    fs.add_directory(FOLDER / "new")
    fs.write_durably(FOLDER / "new" / "file", b"data")
    assert contents(fs, CrashMode.SYNCED_ONLY, FOLDER / "new" / "file") == {None}
    fs.sync_directory(FOLDER)
    assert contents(fs, CrashMode.SYNCED_ONLY, FOLDER / "new" / "file") == {b"data"}


@pytest.mark.parametrize("mode", RANDOM)
def test_a_rename_that_is_not_durable_leaves_the_file_under_one_of_its_names(
    mode: CrashMode, fs: MemoryFileSystem
) -> None:
    fs.write_durably(FILE, b"data")
    fs.rename(FILE, FOLDER / "new")
    disks = [fs.crashed(mode, seed) for seed in SEEDS]
    assert {tuple(disk.list(FOLDER)) for disk in disks} == {("file",), ("new",)}
    fs.sync_directory(FOLDER)
    assert all(fs.crashed(mode, seed).list(FOLDER) == ["new"] for seed in SEEDS)


def test_a_move_between_folders_is_durable_where_a_folder_was_synced(fs: MemoryFileSystem) -> None:
    fs.make_directory(Path("/other"))
    fs.write_durably(FILE, b"data")
    fs.rename(FILE, Path("/other/file"))
    for seed in SEEDS:
        found = fs.crashed(CrashMode.RANDOM_FILES, seed)
        assert found.exists(FILE) != found.exists(Path("/other/file"))
    fs.sync_directory(Path("/other"))
    both = fs.crashed(CrashMode.SYNCED_ONLY)
    assert both.exists(FILE)
    assert both.exists(Path("/other/file"))


def test_a_removal_that_is_not_durable_may_come_back(fs: MemoryFileSystem) -> None:
    fs.write_durably(FILE, b"data")
    fs.remove(FILE)
    assert contents(fs, CrashMode.SYNCED_ONLY) == {b"data"}
    assert contents(fs, CrashMode.RANDOM_FILES) == {b"data", None}
    fs.sync_directory(FOLDER)
    assert contents(fs, CrashMode.RANDOM_BLOCKS) == {None}


def test_a_cut_that_is_not_durable_may_come_back(fs: MemoryFileSystem) -> None:
    fs.write_durably(FILE, b"0123456789")
    fs.cut(FILE, 4)
    assert contents(fs, CrashMode.SYNCED_ONLY) == {b"0123456789"}
    assert contents(fs, CrashMode.RANDOM_FILES) == {b"0123456789", b"0123"}
    fs.sync_file(FILE)
    assert contents(fs, CrashMode.RANDOM_BLOCKS) == {b"0123"}


def test_random_files_lose_all_or_nothing_that_is_unsynced_of_a_file(fs: MemoryFileSystem) -> None:
    fs.write_durably(FILE, b"")
    with fs.create(FOLDER / "long") as file:
        file.write(b"a" * 5000)
        file.sync()
        fs.sync_directory(FOLDER)
        file.write(b"b" * 5000)
    found = contents(fs, CrashMode.RANDOM_FILES, FOLDER / "long")
    assert found == {b"a" * 5000, b"a" * 5000 + b"b" * 5000}


def test_random_blocks_leave_gaps_of_zeros_and_shorter_files_but_never_other_bytes(fs: MemoryFileSystem) -> None:
    with fs.create(FILE) as file:
        fs.sync_directory(FOLDER)
        file.write(b"a" * 1000)
        file.sync()
        file.write(b"b" * 9000)
    seen = b"a" * 1000 + b"b" * 9000
    found = {content for content in contents(fs, CrashMode.RANDOM_BLOCKS) if content is not None}
    assert all(content.startswith(b"a" * 1000) for content in found)
    assert all(got in (want, 0) for content in found for got, want in zip(content, seen, strict=False))
    assert any(b"\0b" in content for content in found), "a gap before bytes that survived"
    assert len({len(content) for content in found}) > 5
    starts = {content.index(b"\0") for content in found if b"\0" in content}
    assert {start % 512 for start in starts} <= {0, 1000 % 512}


def test_equal_seeds_leave_equal_disks(fs: MemoryFileSystem) -> None:
    fs.create(FILE).write(b"data" * 5000)
    for mode in CrashMode:
        assert fs.crashed(mode, 7).files() == fs.crashed(mode, 7).files()


def test_the_chosen_operation_is_not_done_and_none_after_it() -> None:
    fs = MemoryFileSystem(crash_at=3)
    fs.add_directory(FOLDER)
    fs.sync_directory(Path("/"))
    for _ in range(2):
        with pytest.raises(InjectedCrash, match="operation 3: create /folder/file"):
            fs.create(FILE)
    assert not fs.exists(FILE)
    assert [done.kind for done in fs.operations] == ["add_directory", "sync_directory", "create"]


def test_a_write_that_the_crash_cuts_short_leaves_a_beginning() -> None:
    fs = MemoryFileSystem(crash_at=2)
    file = fs.create(Path("/file"))
    with pytest.raises(InjectedCrash):
        file.write(b"0123456789")
    found = {content for content in contents(fs, CrashMode.ALL_KEPT, Path("/file")) if content is not None}
    assert {b"0123456789"[: len(content)] for content in found} == found
    assert len(found) > 5


@pytest.mark.parametrize("composed", ["write_durably", "publish_if_absent"])
@pytest.mark.parametrize("mode", CrashMode)
def test_a_composed_write_can_be_cut_anywhere_and_leaves_nothing_or_all(composed: str, mode: CrashMode) -> None:
    crashes = 0
    for crash_at in range(1, 20):
        fs = MemoryFileSystem(crash_at)
        try:
            getattr(fs, composed)(Path("/file"), b"data" * 2000)
        except InjectedCrash:
            crashes += 1
        else:
            assert contents(fs, mode, Path("/file")) == {b"data" * 2000}
            break
        assert contents(fs, mode, Path("/file")) <= {None, b"data" * 2000}
    assert crashes >= 5


@pytest.mark.parametrize("files", [2, 40])
@pytest.mark.parametrize("mode", CrashMode)
def test_a_file_of_a_second_group_is_never_without_the_first_group(files: int, mode: CrashMode) -> None:
    groups = [{f"{group}{number}": b"data" * 500 for number in range(files)} for group in "ab"]
    crash_at = 0
    while True:
        crash_at += 1
        fs = MemoryFileSystem(crash_at)
        try:
            fs.make_directory(FOLDER)
            fs.write_all_durably(FOLDER, groups)
        except InjectedCrash:
            pass
        found = fs.crashed(mode, crash_at)
        whole = [[name for name in group if found.exists(FOLDER / name)] for group in groups]
        for group, names in zip(groups, whole, strict=True):
            assert all(found.read(FOLDER / name) == group[name] for name in names)
        assert not whole[1] or len(whole[0]) == files
        if crash_at > len(fs.operations):
            assert [len(names) for names in whole] == [files, files]
            break


def test_a_crash_releases_the_lock(fs: MemoryFileSystem) -> None:
    fs.crash_at = len(fs.operations) + 2
    with pytest.raises(InjectedCrash), fs.lock(FOLDER / "LOCK"):
        fs.create(FILE)
    assert not fs.crashed(CrashMode.ALL_KEPT).is_locked(FOLDER / "LOCK")


def test_two_names_of_one_file_stay_one_file_after_a_crash(fs: MemoryFileSystem) -> None:
    fs.write_durably(FILE, b"0123")
    fs.link(FILE, FOLDER / "second")
    fs.sync_directory(FOLDER)
    found = fs.crashed(CrashMode.RANDOM_BLOCKS, 1)
    found.truncate(FILE, 2)
    assert found.read(FOLDER / "second") == b"01"


@pytest.mark.parametrize("mode", CrashMode)
def test_a_sync_of_the_disk_makes_names_and_bytes_of_all_folders_durable(mode: CrashMode) -> None:
    fs = MemoryFileSystem()
    fs.add_directory(Path("/a"))
    fs.add_directory(Path("/a/b"))
    with fs.create(Path("/a/b/file")) as file:
        file.write(b"data")
    assert fs.sync_disk(Path("/a"))
    fs.remove(Path("/a/b/file"))  # not durable: may come back, whole
    found = [fs.crashed(mode, seed).files().get(Path("/a/b/file"), b"gone") for seed in range(8)]
    assert set(found) <= {b"data", b"gone"}
    assert fs.crashed(CrashMode.SYNCED_ONLY).read(Path("/a/b/file")) == b"data"
