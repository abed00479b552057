"""The places where a catalog can lie: each behaviour is tested on all of them."""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
from obstore.store import MemoryStore

from custody.catalog import Action, AddFile, AddShard, Catalog, RemoveFile
from custody.clock import ManualClock
from custody.errors import StorageError
from custody.store import LocalStore, ObjectData, ObjectInfo, ObjectStore, UnfinishedUpload
from custody.store.remote import RemoteStore
from custody.vfs import PosixFileSystem
from tests.behaviour.s3 import s3_server, s3_store

START_MS = 1_772_409_600_000
PLACES = ("local", "memory", "s3")


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    with s3_server() as url:
        yield url


@dataclass(frozen=True)
class Place:
    """A store without anything in it, and how another process would open it."""

    kind: str
    open: Callable[[], ObjectStore]

    def catalog(self, clock: ManualClock | None = None, store: ObjectStore | None = None) -> Catalog:
        """The catalog, opened by a process that just started."""
        return Catalog(store or self.open(), "main", "provenance", clock or ManualClock(START_MS))

    def objects(self, *, ends: str = "") -> list_of[str]:
        """All objects of the catalog."""
        return [key for key in self.open().keys("main/provenance/transactions/") if key.endswith(ends)]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        return Place("local", lambda: LocalStore(PosixFileSystem(), tmp_path / "store"))
    if request.param == "memory":
        client = MemoryStore()
        return Place("memory", lambda: RemoteStore(client, "memory://test"))
    url, prefix = request.getfixturevalue("s3_url"), uuid4().hex
    return Place("s3", lambda: s3_store(url, prefix))


def add(path: str, first: int = 0, rows: int = 1) -> Action:
    return Action(add_file=AddFile(path=path, rows=rows, first_event_id=first, last_event_id=first + rows - 1))


def remove(path: str) -> Action:
    return Action(remove_file=RemoveFile(path=path))


def build(catalog: Catalog, commits: int = 4) -> Catalog:
    """A catalog whose revision n added file-n."""
    for number in range(commits):
        shard = Action(add_shard=AddShard(name=f"shard-{number}", documents=10))
        catalog.commit([add(f"file-{number}", 10 * number, 10), shard], next_event_id=10 * number + 10)
    return catalog


class WrappedStore:
    """Hands everything on to another store; tests override single methods."""

    def __init__(self, inner: ObjectStore, *, is_remote: bool | None = None) -> None:
        self.inner = inner
        self.is_remote = inner.is_remote if is_remote is None else is_remote
        self.can_put_if_absent = inner.can_put_if_absent
        self.keeps_times = inner.keeps_times

    def locate(self, key: str) -> str:
        return self.inner.locate(key)

    def get(self, key: str) -> bytes:
        return self.inner.get(key)

    def get_many(self, keys: Sequence[str]) -> list_of[bytes]:
        return self.inner.get_many(keys)

    def get_range(self, key: str, start: int, length: int) -> bytes:
        return self.inner.get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo | None:
        return self.inner.head(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, after=after)

    def keys(self, prefix: str, *, after: str = "", ending: str = "") -> Iterator[str]:
        return self.inner.keys(prefix, after=after, ending=ending)

    def folders(self, prefix: str) -> list_of[str]:
        return self.inner.folders(prefix)

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        return self.inner.put_if_absent(key, data)

    def put(self, key: str, data: ObjectData) -> None:
        self.inner.put(key, data)

    def move(self, source: str, target: str) -> None:
        self.inner.move(source, target)

    def delete(self, key: str) -> None:
        self.inner.delete(key)

    def unfinished(self, prefix: str) -> list_of[UnfinishedUpload]:
        return self.inner.unfinished(prefix)

    def abort(self, upload: UnfinishedUpload) -> None:
        self.inner.abort(upload)

    def drop_folder(self, prefix: str) -> None:
        self.inner.drop_folder(prefix)

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        return self.inner.exclusive(key)

    def settle(self, key: str) -> None:
        self.inner.settle(key)


class UnluckyStore(WrappedStore):
    """Does the next puts as a network may let them end.

    Args:
        endings: for each put in turn: `lost` (done, and then an error), `refused` (not done, and an error),
            `conflict` (not done, and "taken", as S3 says when two requests meet), `done`.
    """

    def __init__(self, inner: ObjectStore, *endings: str) -> None:
        super().__init__(inner, is_remote=True)
        self.endings = list(endings)

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        ending = self.endings.pop(0) if self.endings else "done"
        if ending == "conflict":
            return False
        won = ending != "refused" and self.inner.put_if_absent(key, data)
        if ending in ("lost", "refused"):
            raise StorageError(f"cannot write {self.locate(key)}: the connection ended.")
        return won
