"""Azure and Google Cloud Storage: stores, catalogs, whole passes and the answers after them, on emulators of both.

The cases are those of `tests/unit/store/test_store.py`, `tests/behaviour/test_catalog_stores.py` and
`tests/behaviour/test_object_store.py`, run as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from custody.store import ObjectStore, put_object
from custody.store.remote import RemoteStore
from tests.behaviour import test_catalog_stores, test_object_store
from tests.behaviour.places import Place
from tests.behaviour.test_object_store import Pair
from tests.services.object_stores import (
    BUCKET,
    ServerMissingError,
    XmlUploads,
    azure_environment,
    azure_store,
    azurite,
    cases_of,
    fake_gcs,
    gcs_environment,
    gcs_store,
)
from tests.services.whole_pass import check_whole_pass, pair_at
from tests.unit.store import test_store

pytestmark = pytest.mark.slow

Server = tuple[str, Callable[[str], RemoteStore]]
_SERVERS = {"az": (azurite, azure_store, azure_environment), "gs": (fake_gcs, gcs_store, gcs_environment)}


@pytest.fixture(scope="module", params=list(_SERVERS))
def served(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The kind of a server that runs, and its URL."""
    try:
        with _SERVERS[request.param][0]() as url:
            yield request.param, url
    except ServerMissingError as error:
        pytest.skip(f"{request.param}: {error}")


@pytest.fixture(scope="module")
def server(served: tuple[str, str]) -> Server:
    """What makes a store below a prefix, with the kind of the server."""
    kind, url = served
    return kind, lambda prefix: _SERVERS[kind][1](url, prefix)


@pytest.fixture(scope="module")
def pair(served: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """The same history twice: a repository in a folder, and one whose store is a bucket."""
    kind, url = served
    local, remote = tmp_path_factory.mktemp("local"), tmp_path_factory.mktemp("remote")
    with pair_at(f"{kind}://{BUCKET}/{uuid4().hex}", _SERVERS[kind][2](url), local, remote) as both:
        yield both


@pytest.fixture
def store(server: Server) -> ObjectStore:
    """A store with nothing in it."""
    return server[1](uuid4().hex)


@pytest.fixture
def place(server: Server) -> Place:
    """The same, as catalogs open it."""
    prefix = uuid4().hex
    return Place(server[0], lambda: server[1](prefix))


_SHARED = cases_of(test_store, "store") | cases_of(test_catalog_stores, "place")
_ANSWERS = cases_of(test_object_store, "pair")
globals().update(_SHARED | _ANSWERS)


def test_the_cases_of_the_other_stores_are_run_here() -> None:
    assert (len(_SHARED), len(_ANSWERS)) == (25, 2)
    assert "test_every_question_has_the_answer_of_a_folder" in _ANSWERS
    assert "test_a_key_is_given_to_one" in _SHARED
    assert "test_writers_that_race_all_land_in_one_line" in _SHARED


def test_of_many_that_race_for_a_key_one_gets_it(server: Server) -> None:
    """Each round all put other bytes under one name, each through a client of its own."""
    prefix, racers = uuid4().hex, 8
    stores = [server[1](prefix) for _ in range(racers)]
    for round_number in range(10):
        key = f"race/{round_number}"
        won: list[int] = []
        together = threading.Barrier(racers)

        def put(number: int, key: str = key, won: list[int] = won, together: threading.Barrier = together) -> None:
            together.wait()
            if stores[number].put_if_absent(key, b"%d" % number):
                won.append(number)

        threads = [threading.Thread(target=put, args=(number,)) for number in range(racers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == 1
        assert stores[0].get(key) == b"%d" % won[0]


@pytest.mark.parametrize("multipart_bytes", [4096, 64 << 20])
def test_a_whole_pass_from_the_command_line_has_the_answers_of_a_folder(
    tmp_path: Path, served: tuple[str, str], monkeypatch: pytest.MonkeyPatch, multipart_bytes: int
) -> None:
    kind, url = served
    for name, value in _SERVERS[kind][2](url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUSTODY__REPOSITORY__STORE", raising=False)  # of the pair
    check_whole_pass(tmp_path, f"{kind}://{BUCKET}/{uuid4().hex}", multipart_bytes)


def test_a_large_object_gets_its_name_only_if_it_is_free(server: Server) -> None:
    """Google's emulator copies on no condition, which is found by trying: there a put that has one is one request."""
    store = server[1](uuid4().hex)
    store._multipart_bytes = 5 << 20
    data, other = b"1" * (11 << 20), b"2" * (11 << 20)
    assert store._has_conditional_copies() == (server[0] == "az")
    assert store.put_if_absent("main/large", data)
    assert not store.put_if_absent("main/large", other)
    assert store.get("main/large") == data
    assert put_object(store, "main/large", data)
    # In parts on both.
    store.put("main/large", other)
    assert store.get("main/large") == other
    assert sorted(store.keys("main/")) == ["main/large"]
    assert not XmlUploads.uploads
