"""Stores and catalogs on Azure and on Google Cloud Storage: the cases of the other stores, on emulators of both.

The cases are those of `tests/unit/store/test_store.py` and `tests/behaviour/test_catalog_stores.py`, run as they are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest

from custody.store import ObjectStore, put_object
from custody.store.remote import RemoteStore
from tests.behaviour import test_catalog_stores
from tests.behaviour.places import Place
from tests.services.object_stores import ServerMissingError, azure_store, azurite, cases_of, fake_gcs, gcs_store
from tests.unit.store import test_store

pytestmark = pytest.mark.slow

Server = tuple[str, Callable[[str], RemoteStore]]


@contextmanager
def _server(kind: str) -> Iterator[Server]:
    serve, store = {"az": (azurite, azure_store), "gs": (fake_gcs, gcs_store)}[kind]
    with serve() as url:
        yield kind, lambda prefix: store(url, prefix)


@pytest.fixture(scope="module", params=["az", "gs"])
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    try:
        with _server(request.param) as running:
            yield running
    except ServerMissingError as error:
        pytest.skip(f"{request.param}: {error}")


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
globals().update(_SHARED)


def test_the_cases_of_the_other_stores_are_run_here() -> None:
    assert len(_SHARED) == 25
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


def test_a_large_object_gets_its_name_only_if_it_is_free(server: Server) -> None:
    """Of Google's, the emulator knows no upload in parts."""
    if server[0] != "az":
        pytest.skip("fake-gcs-server has no multipart uploads")
    store = server[1](uuid4().hex)
    store._multipart_bytes = 5 << 20
    data, other = b"1" * (11 << 20), b"2" * (11 << 20)
    assert store._has_conditional_copies()
    assert store.put_if_absent("main/large", data)
    assert not store.put_if_absent("main/large", other)
    assert store.get("main/large") == data
    assert put_object(store, "main/large", data)
    store.put("main/large", other)
    assert store.get("main/large") == other
    assert sorted(store.keys("main/")) == ["main/large"]
