"""Many new files at once are those of one by one, whatever is in the way; what is refused is done by itself."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.errors import SupersededError
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.target import TOGETHER_FROM, FilesTarget
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem

ROOT = Path("/hdfs")
COUNT = TOGETHER_FROM + 10
DATA = {f"/user/warden/parks/Car{number}/Car{number}.txt": b"line %d\n" % number for number in range(COUNT)}


def applied(disk: MemoryFileSystem, *faults: Fault) -> set[str]:
    """Apply all; return the paths that were done together."""
    fs = FaultyFileSystem(disk, *faults)
    target = FilesTarget(LocalFiles(fs, ROOT))
    parts = [FileAppend.of(path, 0, data) for path, data in DATA.items()]
    views = [memoryview(data) for data in DATA.values()]
    done = target.apply_together(parts, views, lambda: None)
    for place, part in enumerate(parts):
        if place not in done:
            target.apply(part, views[place])
    return {parts[place].path for place in done}


def held(disk: MemoryFileSystem) -> dict[str, bytes]:
    files = disk.crashed(CrashMode.SYNCED_ONLY).files()
    return {str(path)[len(str(ROOT)) :]: data for path, data in files.items() if data is not None}


def syncs(disk: MemoryFileSystem) -> Counter[str]:
    return Counter(operation.kind for operation in disk.operations if operation.kind.startswith("sync"))


def test_many_new_files_are_durable_after_one_sync_of_the_disk() -> None:
    disk = MemoryFileSystem()
    assert applied(disk) == set(DATA)
    assert held(disk) == DATA
    found = syncs(disk)
    assert found["sync_disk"] == 1
    assert found["sync"] == found["sync_file"] == 0
    assert found["sync_directory"] < 10


def test_one_that_is_in_the_way_is_left_and_no_other() -> None:
    disk = MemoryFileSystem()
    odd, *_ = DATA
    disk.make_directory((ROOT / odd[1:]).parent)
    with disk.create(ROOT / odd[1:]) as file:
        file.write(b"li")  # what an attempt left that ended in the middle
    assert applied(disk) == set(DATA) - {odd}
    assert held(disk) == DATA


@pytest.mark.parametrize("kind", ["create", "write", "add_directory"])
def test_a_refusal_in_the_middle_is_made_up_for(kind: str) -> None:
    disk = MemoryFileSystem()
    done = applied(disk, Fault(frozenset({kind}), first=20, taken_bytes=1))
    assert done < set(DATA)
    assert held(disk) == DATA


def test_after_a_failed_sync_of_the_disk_all_files_are_made_anew() -> None:
    disk = MemoryFileSystem()
    assert applied(disk, Fault(frozenset({"sync_disk"}))) == set()
    assert held(disk) == DATA
    kinds = [operation.kind for operation in disk.operations]
    assert kinds.count("create") == 2 * COUNT
    assert kinds.count("remove") == COUNT


def test_a_disk_that_cannot_be_synced_at_once_has_each_file_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFileSystem, "sync_disk", lambda *_: False)
    disk = MemoryFileSystem()
    assert applied(disk) == set()
    assert held(disk) == DATA
    assert syncs(disk)["sync_file"] == COUNT


def test_who_was_superseded_makes_no_more_files() -> None:
    disk, asked = MemoryFileSystem(), 0

    def check() -> None:
        nonlocal asked
        asked += 1
        raise SupersededError("another attempt")

    parts = [FileAppend.of(path, 0, data) for path, data in DATA.items()]
    with pytest.raises(SupersededError):
        FilesTarget(LocalFiles(disk, ROOT)).apply_together(parts, [memoryview(data) for data in DATA.values()], check)
    assert asked == 1
    assert not held(disk)


def test_few_files_or_many_folders_are_made_one_by_one() -> None:
    disk = MemoryFileSystem()
    target = FilesTarget(LocalFiles(disk, ROOT))
    few = [FileAppend.of(path, 0, data) for path, data in list(DATA.items())[: TOGETHER_FROM - 1]]
    assert target.apply_together(few, [memoryview(data) for data in DATA.values()], lambda: None) == set()
    scattered = {f"/user/warden/park{number}/Car/Car.txt": memoryview(b"x") for number in range(COUNT)}
    assert LocalFiles(disk, ROOT).create_together(scattered, lambda: None) == set()
    assert not disk.operations


def test_one_look_finds_what_is_absent_and_nothing_else() -> None:
    disk = MemoryFileSystem()
    target = FilesTarget(LocalFiles(disk, ROOT))
    there, folder, *_ = DATA
    disk.make_directory((ROOT / there[1:]).parent)
    disk.create(ROOT / there[1:]).close()
    disk.make_directory(ROOT / folder[1:])
    assert target.absent(list(DATA)) == set(DATA) - {there, folder}
    assert target.absent(list(DATA)[: TOGETHER_FROM - 1]) == set()


def test_slow_looks_are_left_to_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.ngsi_sink.local._LOOK_SECONDS_MAX", 0.0)
    paths = [f"{number}.txt" for number in range(1000)]
    assert LocalFiles(MemoryFileSystem(), ROOT).absent(paths) == set(paths[:256])


@given(
    st.sampled_from(["/", "/hdfs", "/a b/ü"]),
    st.text(
        st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]) | st.sampled_from("/.% "), min_size=1
    ),
)
def test_the_uri_of_a_file_is_that_of_its_path(root: str, name: str) -> None:
    files = LocalFiles(MemoryFileSystem(), Path(root))
    assert files.uri(f"/{name}") == (Path(root) / name.lstrip("/")).as_uri()
