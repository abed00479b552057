"""What is said of the files of a catalog without a look at each is what a look at each says."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from custody.catalog.data_files import DataFiles
from custody.catalog.garbage import collect_garbage
from custody.clock import SystemClock
from custody.errors import StripeMissingError
from custody.repository import Repository
from custody.store import LocalStore, ObjectInfo
from custody.vfs import PosixFileSystem
from tests.unit.catalog.test_stripes import HOME, stripes

FS = PosixFileSystem()
NAMES = ["00000000000000000001.parquet", "00000000000000000001.toc", "x.partial", "plain", ".hidden", "b c.txt"]


class _FarStore(LocalStore):
    """A folder that says it is an object store, whose listing says all of each object."""

    is_remote = True


def fill(random: Random, home: Path) -> None:
    for day in ("2026-03-01", "2026-03-02", "a.day"):
        folder = home / "data" / day / "events"
        folder.mkdir(parents=True)
        for name in random.sample(NAMES, random.randrange(len(NAMES))):
            (folder / name).write_bytes(bytes(random.randrange(9000)))
            os.utime(folder / name, (random.randrange(1, 1000),) * 2)
        if random.random() < 0.5:
            (folder / "nowhere.toc").symlink_to(folder / "gone")
        if random.random() < 0.3:
            (folder / "deeper").mkdir()
            (folder / "deeper" / NAMES[0]).write_bytes(b"x")


@pytest.mark.parametrize("seed", range(20))
def test_what_is_not_known_is_found_among_what_is(tmp_path: Path, seed: int) -> None:
    random = Random(seed)  # noqa: S311 - no secret
    taker = stripes(tmp_path, "a", "b")
    for name in ("a", "b"):
        taker.get(name).add(0)
    for home in (tmp_path / "store" / HOME, *(tmp_path / name / HOME for name in ("a", "b"))):
        fill(random, home)
    for store in (taker.store, _FarStore(FS, tmp_path / "store")):
        files = DataFiles(store, HOME, taker)
        listed = list(files.list("data/"))
        assert {info.key for info in listed} <= set(files.names("data/"))
        known = {info.key for info in listed if random.random() < 0.6} | {"data/absent"}
        assert list(files.others("data/", known)) == [info for info in listed if info.key not in known]
        assert list(files.others("data/", set())) == listed
    # With a disk away its files are passed over, or nothing is said at all.
    (tmp_path / "b").rename(tmp_path / "away")
    files = DataFiles(taker.store, HOME, taker)
    listed = list(files.list("data/", present_only=True))
    assert any(info.key.startswith("stripe-a/") for info in listed)
    assert list(files.others("data/", known)) == [info for info in listed if info.key not in known]
    with pytest.raises(StripeMissingError):
        list(files.names("data/"))


def test_known_files_are_not_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(FS, tmp_path / "store")
    fill(Random(3), tmp_path / "store" / HOME)  # noqa: S311 - no secret
    files = DataFiles(store, HOME)
    listed = [info.key for info in files.list("data/")]
    looked: list[str] = []
    head = LocalStore.head

    def noted(self: LocalStore, key: str) -> ObjectInfo | None:
        looked.append(key)
        return head(self, key)

    monkeypatch.setattr(LocalStore, "head", noted)
    monkeypatch.setattr(PosixFileSystem, "size", lambda *_: 1 // 0)
    assert [info.key for info in files.others("data/", {*listed, *files.names("data/")})] == []
    assert looked == []


def test_a_folder_with_a_dot_among_logs_is_no_garbage(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "r")
    with repository.writer():
        pass
    workspace = repository.workspace()
    folder = tmp_path / "r/store/main/provenance/data/2026-03-01/events/00000000000000000007.parquet"
    folder.mkdir(parents=True)
    os.utime(folder, (1, 1))
    report = collect_garbage(workspace.catalog, SystemClock(), older_than_ms=0)
    assert (report.moved, report.deleted, report.unknown, report.young) == ([], [], [], [])
    assert folder.is_dir()
