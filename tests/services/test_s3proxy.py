"""S3Proxy, a second S3 server: the cases of the other stores, large objects, whole passes and the answers after them.

The cases are those of `tests/unit/store`, `tests/behaviour/test_catalog_stores.py`, `test_multipart.py` and
`test_object_store.py`, run as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from custody.clock import ManualClock
from custody.recovery import recover
from custody.repository import Repository
from custody.store import ObjectStore
from custody.store.remote import open_remote
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.behaviour import test_catalog_stores, test_multipart, test_object_store
from tests.behaviour.places import Place
from tests.behaviour.s3 import BUCKET, open_uploads, s3_environment, s3_store
from tests.behaviour.store_proxy import store_proxy
from tests.behaviour.test_object_store import Pair
from tests.services.object_stores import cases_of
from tests.services.s3proxy import s3proxy
from tests.services.whole_pass import check_whole_pass, pair_at
from tests.support import append, sample
from tests.unit.store import test_store

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def signed_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that checks signatures."""
    with s3proxy(tmp_path_factory.mktemp("signed")) as url:
        yield url


@pytest.fixture(scope="module")
def s3_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that answers who asks for uploads without a signature."""
    with s3proxy(tmp_path_factory.mktemp("open"), is_signed=False) as url:
        yield url


@pytest.fixture
def store(signed_url: str) -> ObjectStore:
    """A store with nothing in it."""
    return s3_store(signed_url)


@pytest.fixture
def place(signed_url: str) -> Place:
    """The same, as catalogs open it."""
    prefix = uuid4().hex
    return Place("s3", lambda: s3_store(signed_url, prefix))


@pytest.fixture(scope="module")
def pair(signed_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The same history twice: a repository in a folder, and one whose store is a bucket."""
    local, remote = tmp_path_factory.mktemp("local"), tmp_path_factory.mktemp("remote")
    with pair_at(f"s3://{BUCKET}/{uuid4().hex}", s3_environment(signed_url), local, remote) as both:
        yield both


# Objects are files here: a name cannot be one and the folder of another, and the server answers 500.
_NOT_HERE = "test_an_absent_object_is_not_found"
_STORES = cases_of(test_store, "store") | cases_of(test_catalog_stores, "place")
_LARGE = cases_of(test_multipart, "proxy") | cases_of(test_multipart, "s3_url")
_ANSWERS = cases_of(test_object_store, "pair")
globals().update({name: case for name, case in (_STORES | _LARGE | _ANSWERS).items() if name != _NOT_HERE})
proxy, small_parts = test_multipart.proxy, test_multipart.small_parts


def test_the_cases_of_the_other_stores_are_run_here() -> None:
    assert (len(_STORES), len(_LARGE), len(_ANSWERS)) == (25, 9, 2)
    assert _NOT_HERE in _STORES
    assert "test_a_key_is_given_to_one" in _STORES
    assert "test_every_question_has_the_answer_of_a_folder" in _ANSWERS


@pytest.mark.parametrize("size", [10, 6 << 20])
def test_of_many_that_race_for_a_key_one_gets_it(s3_url: str, size: int) -> None:
    """Each round all put other bytes under one name, each through a client of its own; large ones in parts."""
    prefix, racers, before = uuid4().hex, 6, open_uploads(s3_url)
    stores = [s3_store(s3_url, prefix, multipart_bytes=5 << 20) for _ in range(racers)]
    for round_number in range(5):
        key = f"race/{round_number}"
        won: list[int] = []
        together = threading.Barrier(racers)

        def put(number: int, key: str = key, won: list[int] = won, together: threading.Barrier = together) -> None:
            together.wait()
            if stores[number].put_if_absent(key, b"%d" % number * size):
                won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert stores[0].get(key) == b"%d" % won[0] * size
    assert open_uploads(s3_url) == before


def test_parts_of_a_dead_upload_are_found_once_they_are_old_and_freed(
    tmp_path: Path, signed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server checks the signatures, and tells when an upload began."""
    for name, value in s3_environment(signed_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUSTODY__REPOSITORY__STORE", raising=False)  # of the pair
    location = f"s3://{BUCKET}/{uuid4().hex}"
    (tmp_path / "custody.toml").write_text(f'[repository]\nstore = "{location}"\n')
    append(Repository.open(tmp_path), sample(300))
    # Signatures hold for the host that the client names, and the proxy hands that on.
    with store_proxy(signed_url) as proxy:
        test_multipart.die_while_uploading(proxy, location)
    repository = Repository.open(tmp_path)
    store, now_ms = open_remote(location), repository.workspace().clock.now_ms()
    [upload] = store.unfinished("main/")
    assert upload.key == test_multipart.KEY
    assert abs(upload.begun_ms - now_ms) < 600_000
    for hours, is_left in ((23, True), (25, False)):
        clock = ManualClock(now_ms + hours * 3_600_000)
        assert not recover(Workspace(repository.settings, "main", PosixFileSystem(), clock)).errors
        assert bool(store.unfinished("main/")) == is_left


@pytest.mark.parametrize("multipart_bytes", [4096, 64 << 20])
def test_a_whole_pass_from_the_command_line_has_the_answers_of_a_folder(
    tmp_path: Path, signed_url: str, monkeypatch: pytest.MonkeyPatch, multipart_bytes: int
) -> None:
    for name, value in s3_environment(signed_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUSTODY__REPOSITORY__STORE", raising=False)  # of the pair
    check_whole_pass(tmp_path, f"s3://{BUCKET}/{uuid4().hex}", multipart_bytes)
