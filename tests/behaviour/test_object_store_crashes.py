"""A pass over an object store ends at each put, or gets an error for it; the next pass makes everything whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pytest

from custody.config import Settings
from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import run_locally
from custody.store import ObjectData
from custody.store.local_copies import LocalCopies
from custody.store.remote import RemoteStore
from tests.support import append, numbered, run_steps, sample

EVENTS = sample(30)
_PUT = RemoteStore.put_if_absent


class _CutError(BaseException):
    """The process ends here: nothing catches it."""


@contextmanager
def failing(number: int, failure: type[BaseException], *, arrived: bool) -> Iterator[list[str]]:
    """Raise at one put of this block, before the store has the object, or after and without the answer."""
    keys: list[str] = []

    def put_if_absent(store: RemoteStore, key: str, data: ObjectData) -> bool:
        keys.append(key)
        if len(keys) - 1 != number:
            return _PUT(store, key, data)
        if arrived:
            _PUT(store, key, data)
        raise failure(f"{key}: the connection ended.")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RemoteStore, "put_if_absent", put_if_absent)
        yield keys


def prepared(root: Path) -> Repository:
    Repository.create(root)
    (root / "custody.toml").write_text(
        f'[repository]\nstore = "memory://{uuid4().hex}"\n[catalog]\ncheckpoint_every = 1\n'
    )
    repository = Repository.open(root)
    append(repository, EVENTS)
    return repository


def check(repository: Repository) -> None:
    """What a machine without any copies reads is what was appended, and the store has what the catalog lists."""
    fresh = Repository.open(repository.settings.root)
    files = fresh.workspace().catalog.objects.files
    for file in fresh.workspace().state().files.values():
        assert files.copies is not None
        files.copies.forget(f"main/provenance/{file.path}")
        files.copies.forget(f"main/provenance/{file.toc_path}")
        for path, digest in ((file.path, file.sha256), (file.toc_path, file.toc_sha256)):
            assert hashlib.sha256(files.get(path)).digest() == digest
    assert list(fresh.events(count=1000)) == numbered(EVENTS)
    assert fresh.search("", limit=0).total == len(EVENTS)


def every_failure(folder: Path, run: Callable[[Settings], object] = run_steps) -> None:
    modes = [(failure, arrived) for failure in (_CutError, StorageError) for arrived in (False, True)]
    number = count = 0
    while number <= count:
        for failure, arrived in modes:
            repository = prepared(folder / f"{number}-{failure.__name__}-{arrived}")
            with failing(number, failure, arrived=arrived) as keys, suppress(failure):
                run(repository.settings)
            count = len(keys)
            run(repository.settings)
            check(repository)
        number += 1
    assert number > 4, "log, table of contents, transaction and checkpoint are put"


@pytest.mark.slow
def test_a_pass_that_fails_at_any_put_is_made_whole_by_the_next(tmp_path: Path) -> None:
    every_failure(tmp_path)


def under_leases(settings: Settings) -> None:
    # The attempt before seems to live: it was of this process.
    run_locally(list(STEPS), settings, take_over=True, run_id="nightly")


@pytest.mark.slow
def test_a_pass_under_leases_that_fails_at_any_put_is_made_whole_by_the_next(tmp_path: Path) -> None:
    """The puts of epochs, of how they ended, and of the fence in the catalog are among them."""
    every_failure(tmp_path, under_leases)


def _listed_before_it_is_there(copies: LocalCopies, key: str, digest: bytes) -> None:
    """Leaves the put to somebody later."""


def _believes_the_put(copies: LocalCopies, key: str, digest: bytes) -> None:
    """Takes an error for a put whose answer was lost, and looks no further."""
    with suppress(StorageError):
        copies._store.put_if_absent(key, copies.place(key).read_bytes())


@pytest.mark.slow
@pytest.mark.parametrize("bug", [_listed_before_it_is_there, _believes_the_put])
def test_a_publishing_with_a_bug_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bug: Callable[[LocalCopies, str, bytes], None]
) -> None:
    monkeypatch.setattr(LocalCopies, "publish", bug)
    with pytest.raises((NotFoundError, CorruptionError, AssertionError)):
        every_failure(tmp_path)
