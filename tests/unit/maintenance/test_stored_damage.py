"""What lies in an object store is verified and scrubbed there: whole copies on this machine hide no damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest

from custody.clock import SystemClock
from custody.config import Settings
from custody.maintenance.findings import Level
from custody.maintenance.scrub import read_scrub, scrub_once
from custody.maintenance.verification import verify_repository
from custody.repository import Repository
from custody.store.remote import RemoteStore, open_remote
from custody.vfs import PosixFileSystem
from tests.support import append, run_steps, sample

FS = PosixFileSystem()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """One log with its shard, read as a whole and by ranges, so that copies and pieces are on this machine."""
    url = f"memory://{uuid4().hex}"
    opened = Repository(Settings.model_validate({"root": tmp_path, "repository": {"store": url}}))
    append(opened, sample(60))
    run_steps(opened.settings)
    assert opened.search("event_type:SEND").total
    assert len(list(opened.events())) == 60
    return Repository(opened.settings)


def store_of(repository: Repository) -> RemoteStore:
    return open_remote(repository.settings.repository.store, can_put_if_absent=True)


def kinds(repository: Repository, level: Level) -> list[str]:
    report = verify_repository(repository.workspaces(), repository.settings, FS, level)
    return [item.kind for item in report.findings]


def changed(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]


@pytest.mark.parametrize(
    ("ending", "kind"), [(".parquet", "log-damaged"), (".toc", "toc-damaged"), (".shard", "shard-damaged")]
)
def test_a_changed_byte_of_an_object_is_found_beside_a_whole_copy(
    repository: Repository, ending: str, kind: str
) -> None:
    assert [kinds(repository, level) for level in Level] == [[], [], []]
    store = store_of(repository)
    [key] = [key for key in store.keys("main/provenance/") if key.endswith(ending)]
    good = store.get(key)
    store.put(key, changed(good))
    assert kinds(Repository(repository.settings), Level.DEFAULT) == [kind]
    scrubbed = scrub_once(repository.settings, FS, SystemClock(), whole=True)
    assert [item.kind for item in scrubbed.latest()] == [kind]
    assert [item.kind for item in read_scrub(repository.settings, FS).latest()] == [kind]
    store.put(key, good)
    assert kinds(Repository(repository.settings), Level.DEFAULT) == []


@pytest.mark.parametrize(
    ("ending", "kind"), [(".parquet", "log-missing"), (".toc", "toc-damaged"), (".shard", "shard-missing")]
)
def test_an_object_that_is_gone_is_found_at_every_level(repository: Repository, ending: str, kind: str) -> None:
    store = store_of(repository)
    [key] = [key for key in store.keys("main/provenance/") if key.endswith(ending)]
    store.delete(key)
    # As on another machine: where the folder of a shard is here, nothing is lost.
    for folder in repository.settings.root.glob("containers/*/main/index"):
        shutil.rmtree(folder)
    for level in (Level.QUICK, Level.DEFAULT):
        assert kind in kinds(Repository(repository.settings), level)


def test_a_whole_scrub_of_a_store_finds_nothing_and_comes_to_its_end(repository: Repository) -> None:
    state = scrub_once(repository.settings, FS, SystemClock(), whole=True)
    assert state.former is not None
    assert state.former.findings == ()
    assert state.former.bytes > 1000
