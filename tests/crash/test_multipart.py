"""A process ends, or gets an error, at each effect of an upload in parts: of each part, its end, the copy, the removal.

The store is that of the memory: what was done is durable, and what was not completed is nowhere to be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import obstore
import pytest
from obstore.store import MemoryStore

from custody.clock import ManualClock
from custody.config import Settings
from custody.errors import NotFoundError, StorageError
from custody.format.names import UPLOADS
from custody.recovery import recover
from custody.repository import Repository
from custody.store import put_object, remote
from custody.store.remote import RemoteStore
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.behaviour.test_object_store_crashes import check as check_store
from tests.behaviour.test_object_store_crashes import prepared
from tests.support import run_steps

KEY = "main/provenance/data/large"
ONE, OTHER = b"1" * 1000, b"2" * 1000
DAY_MS = 86_400_000
_put, _copy, _delete = obstore.put, obstore.copy, obstore.delete


class _CutError(BaseException):
    """The process ends here: nothing catches it."""


class Effects:
    """Counts the effects of a block on object stores, and lets one of them end otherwise.

    Args:
        number: which one.
        failure: what is raised, by it and, where the process is dead, by all that follow.
        arrived: whether it was done.
        meanwhile: what somebody else does right before it.
    """

    def __init__(
        self,
        number: int,
        failure: type[BaseException] | None,
        *,
        arrived: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> None:
        self.count = 0
        self._number = number
        self._failure = failure
        self._arrived = arrived
        self._meanwhile = meanwhile
        self._is_inside = False

    def put(self, store: MemoryStore, key: str, data: Any, **options: Any) -> None:
        if options["use_multipart"]:
            data = self._parts(data)
        self._effect(lambda: _put(store, key, data, **options))

    def copy(self, store: MemoryStore, source: str, target: str, *, overwrite: bool) -> None:
        self._effect(lambda: _copy(store, source, target, overwrite=overwrite))

    def delete(self, store: MemoryStore, key: str) -> None:
        self._effect(lambda: _delete(store, key))

    def _parts(self, parts: Iterator[bytes]) -> Iterator[bytes]:
        for part in parts:
            # Of a part that did not arrive, or whose answer was lost, nothing can be told apart: no upload is complete.
            self._effect(lambda: None)
            yield part

    def _effect(self, do: Callable[[], object]) -> None:
        if self._is_inside:
            do()
            return
        at, self.count = self.count, self.count + 1
        if at == self._number:
            self._is_inside = True
            # In a thread of its own: the parts are asked for inside the client, which cannot be called there.
            other = Thread(target=self._meanwhile)
            other.start()
            other.join()
            self._is_inside = False
        is_dead = self._failure is _CutError and at > self._number
        is_hit = at == self._number and self._failure is not None
        if not is_dead and not (is_hit and not self._arrived):
            do()
        if is_dead or is_hit:
            assert self._failure is not None
            raise self._failure("the connection ended.")


@contextmanager
def watched(effects: Effects) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name in ("put", "copy", "delete"):
            patch.setattr(obstore, name, getattr(effects, name))
        yield


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PART_BYTES", 300)
    monkeypatch.setattr(remote, "_CONDITIONAL_COPIES", {})


def new_store() -> RemoteStore:
    store = RemoteStore(MemoryStore(), f"memory://{uuid4().hex}", multipart_bytes=100)
    store.is_remote = True  # an answer may be lost
    assert store._has_conditional_copies()
    return store


MODES = [(failure, arrived) for failure in (_CutError, StorageError) for arrived in (False, True)]


def every_end() -> None:
    """One object is put; it ends at each effect; it is put again."""
    for failure, arrived in MODES:
        number = count = 0
        while number <= count:
            store, effects = new_store(), Effects(number, failure, arrived=arrived)
            is_put = False
            with watched(effects), suppress(failure):
                is_put = put_object(store, KEY, ONE)
            count = effects.count
            names = set(store.keys("")) - {"CONDITIONAL-PUTS"}
            assert KEY in names or not is_put
            assert all(name == KEY or name.startswith(f"main/{UPLOADS}/") for name in names)
            assert len(names) <= 2
            assert KEY not in names or store.get(KEY) == ONE
            assert put_object(store, KEY, ONE)
            assert store.get(KEY) == ONE
            number += 1
        # Four parts, their end, the copy, the removal of what was copied.
        assert count >= 7


def every_race() -> None:
    """Two put other bytes under one key; one of them does so between any two effects of the other."""
    number = count = 0
    while number <= count:
        count = race(number)
        number += 1
    assert count >= 7


def race(number: int) -> int:
    store = new_store()
    won: list[bool] = []
    effects = Effects(number, None, meanwhile=lambda: won.append(put_object(store, KEY, OTHER)))
    with watched(effects):
        won.append(put_object(store, KEY, ONE))
    if len(won) == 2:
        assert sorted(won) == [False, True]
        assert store.get(KEY) == (OTHER if won[0] else ONE)
    assert set(store.keys("")) == {"CONDITIONAL-PUTS", KEY}
    return effects.count


def test_an_upload_that_ends_at_any_effect_is_made_whole_by_the_next() -> None:
    every_end()


def test_of_two_that_put_one_key_one_wins_and_stays() -> None:
    every_race()


def _gives_the_name_away(store: RemoteStore, key: str, data: bytes) -> bool:
    """Looks whether the name is free, and then completes the upload under it."""
    if store.head(key) is not None:
        return False
    store._put_parts(key, data)
    return True


def _copies_over(store: RemoteStore, key: str, data: bytes) -> bool:
    """Copies without the condition."""
    if store.head(key) is not None:
        return False
    store._put_parts(f"main/{UPLOADS}/0", data)
    obstore.copy(store._client, f"main/{UPLOADS}/0", key, overwrite=True)
    store.delete(f"main/{UPLOADS}/0")
    return True


def _believes_the_copy(store: RemoteStore, key: str, data: bytes) -> bool:
    """Takes an error of the copy for an answer that was lost."""
    store._put_parts(f"main/{UPLOADS}/0", data)
    try:
        with store._reported("write", key):
            obstore.copy(store._client, f"main/{UPLOADS}/0", key, overwrite=False)
    except remote._TakenError:
        return False
    except StorageError:
        return True
    finally:
        store.delete(f"main/{UPLOADS}/0")
    return True


def _uploads_beside_the_key(store: RemoteStore, key: str, data: bytes) -> bool:
    """Leaves what a dead process uploaded where nobody looks for it."""
    store._put_parts(f"{key}.upload", data)
    try:
        obstore.copy(store._client, f"{key}.upload", key, overwrite=False)
    except obstore.exceptions.AlreadyExistsError:
        return False
    finally:
        store.delete(f"{key}.upload")
    return True


@pytest.mark.parametrize(
    ("bug", "cases"),
    [
        (_gives_the_name_away, every_race),
        (_copies_over, every_race),
        (_believes_the_copy, every_end),
        (_uploads_beside_the_key, every_end),
    ],
)
def test_an_upload_with_a_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, bug: Callable[..., bool], cases: Callable[[], None]
) -> None:
    cases()
    monkeypatch.setattr(RemoteStore, "_put_by_copy", bug)
    with pytest.raises((AssertionError, NotFoundError)):
        cases()


def recovered(settings: Settings) -> None:
    """A recovery a day later."""
    workspace = Workspace(settings, "main", PosixFileSystem())
    late = ManualClock(workspace.clock.now_ms() + DAY_MS)
    recover(Workspace(settings, "main", PosixFileSystem(), late))


@pytest.mark.slow
def test_a_pass_whose_uploads_end_at_any_effect_is_made_whole_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Afterwards a recovery finds what the dead process left, and nothing is below the folder of uploads."""
    monkeypatch.setenv("CUSTODY__REPOSITORY__MULTIPART_BYTES", "4096")
    monkeypatch.setattr(remote, "_PART_BYTES", 2048)
    left = 0
    for failure, arrived in MODES:
        number = count = 0
        while number <= count:
            repository = prepared(tmp_path / f"{number}-{failure.__name__}-{arrived}")
            effects = Effects(number, failure, arrived=arrived)
            with watched(effects), suppress(failure):
                run_steps(repository.settings)
            count = effects.count
            run_steps(repository.settings)
            check_store(repository)
            store = Repository.open(repository.settings.root).workspace().catalog.objects.store
            left += len(list(store.keys(f"main/{UPLOADS}/")))
            recovered(repository.settings)
            assert not list(store.keys(f"main/{UPLOADS}/"))
            check_store(repository)
            number += 1
        assert count > 10
    assert left, "some process left an upload"
