"""Large objects go to a real S3 server in parts, and get their name only if it is free."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import obstore
import pytest
from obstore.store import MemoryStore, S3Store

from custody.clock import ManualClock
from custody.errors import StorageError
from custody.format.names import UPLOADS
from custody.recovery import find_leftovers, recover
from custody.repository import Repository
from custody.store import ObjectStore, conditional_put, counted, put_object, read_parts, remote
from custody.store.remote import RemoteStore
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, open_uploads, s3_environment, s3_store
from tests.behaviour.store_proxy import Fault, StoreProxy, store_proxy
from tests.support import INCLUDE, append, numbered, run_steps, sample

__all__ = ["s3_url"]

KEY = "main/provenance/data/large"
PART = 5 << 20
"""The least that S3 takes as a part."""
DATA = b"".join(b"%010d" % number for number in range(PART // 5)) + b"end"
OTHER = bytes(reversed(DATA))
HOUR_MS = 3_600_000


@pytest.fixture
def proxy(s3_url: str) -> Iterator[StoreProxy]:
    with store_proxy(s3_url) as proxy:
        yield proxy


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "_PART_BYTES", PART)
    monkeypatch.setattr(remote, "_CONDITIONAL_COPIES", {})


def store_at(url: str) -> RemoteStore:
    """A store with nothing in it, which knows already whether the server copies on a condition."""
    store = s3_store(url, multipart_bytes=PART)
    assert store._has_conditional_copies()
    return store


def keys(store: ObjectStore) -> list[str]:
    return [key for key in store.keys("") if key != conditional_put.CONDITION_PROBE]


def test_a_large_object_goes_in_parts_and_gets_its_name_once(proxy: StoreProxy) -> None:
    store, asked = store_at(proxy.url), []
    proxy.watch = lambda method, path: asked.append((method, path.partition("?")[2].split("&")[0].split("=")[0]))
    with counted() as traffic:
        assert store.put_if_absent(KEY, memoryview(DATA))
    assert asked.count(("PUT", "partNumber")) == 3 + 1, "three parts, and one that is copied"
    assert traffic.traffic.bytes_written == len(DATA)
    assert b"".join(read_parts(store, KEY) or ()) == DATA
    assert not store.put_if_absent(KEY, OTHER)
    assert store.get(KEY) == DATA
    assert keys(store) == [KEY]
    assert put_object(store, KEY, DATA)
    assert not put_object(store, KEY, OTHER)
    assert not put_object(store, KEY, DATA + b"more"), "the beginning is not the whole"
    store.put(KEY, OTHER)
    assert store.get(KEY) == OTHER
    assert (keys(store), open_uploads(proxy.url)) == ([KEY], [])


def test_who_is_late_by_a_moment_gets_nothing(proxy: StoreProxy, s3_url: str) -> None:
    store = store_at(proxy.url)
    rival = s3_store(s3_url, str(store._client.prefix), multipart_bytes=PART)  # type: ignore[union-attr]
    won: list[bool] = []

    def between(method: str, path: str) -> None:
        # The name was free when it was looked at, and is taken right before it is given.
        if method == "POST" and f"{KEY}?uploadId" in path:
            won.append(rival.put_if_absent(KEY, OTHER))

    proxy.watch = between
    assert not store.put_if_absent(KEY, DATA)
    assert won == [True]
    assert store.get(KEY) == OTHER
    assert (keys(store), open_uploads(proxy.url)) == ([KEY], [])


def failing_at(wanted: int, kind: Fault) -> Callable[[int, str], Fault | None]:
    return lambda number, method: kind if number == wanted else None


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("kind", ["lost", "expired"])
def test_whatever_fails_the_object_is_whole_or_absent_and_no_upload_stays_open(proxy: StoreProxy, kind: Fault) -> None:
    count = number = 0
    while number <= count:
        store = store_at(proxy.url)
        asked: list[str] = []
        before, start = set(open_uploads(proxy.url)), sum(proxy.seen.values())
        proxy.watch = lambda method, path, asked=asked: asked.append(path)  # type: ignore[misc]
        proxy.fault = failing_at(start + number + 1, kind)
        try:
            is_put = put_object(store, KEY, DATA)
        except StorageError:
            is_put = False
        count = len(asked)
        proxy.fault = lambda at, method: None
        info = store.head(KEY)
        assert info is None or store.get(KEY) == DATA
        assert info is not None or not is_put
        assert all(key == KEY or key.startswith(f"main/{UPLOADS}/") for key in keys(store))
        # Who does not learn the number of an upload cannot abort it: it has no part, and the bucket's rule ends it.
        is_unknown = kind == "lost" and number < count and asked[number].endswith("?uploads=")
        assert len(set(open_uploads(proxy.url)) - before) == is_unknown
        assert put_object(store, KEY, DATA)
        assert store.get(KEY) == DATA
        number += 1
    assert count > 8


def test_a_store_that_copies_over_a_taken_name_gets_large_objects_in_one_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = MemoryStore()
    monkeypatch.setattr(obstore, "copy", lambda store, source, target, overwrite: None)
    store = RemoteStore(client, "memory://careless", multipart_bytes=100)
    assert store.put_if_absent(KEY, b"x" * 1000)
    assert not store.put_if_absent(KEY, b"y" * 1000)
    assert store.get(KEY) == b"x" * 1000
    assert keys(store) == [KEY]


def test_what_no_condition_holds_for_is_refused_unless_its_key_is_its_digest(
    monkeypatch: pytest.MonkeyPatch, s3_url: str
) -> None:
    store = store_at(s3_url)
    monkeypatch.setattr(remote, "CONDITIONAL_BYTES_MAX", PART + 1)
    monkeypatch.setattr(conditional_put, "CONDITIONAL_BYTES_MAX", PART + 1)
    with pytest.raises(StorageError, match=r"Lower eventlog\.log_bytes_target"):
        put_object(store, KEY, DATA)
    assert keys(store) == []
    assert put_object(store, KEY, DATA, is_key_of_content=True)
    assert store.get(KEY) == DATA
    assert not put_object(store, KEY, DATA[:100], is_key_of_content=True)


def test_no_more_than_some_parts_are_in_memory(monkeypatch: pytest.MonkeyPatch, s3_url: str) -> None:
    sizes: list[int] = []
    put = obstore.put

    def watched(client: S3Store, key: str, data: Any, **options: Any) -> None:
        if options["use_multipart"]:
            assert options["max_concurrency"] == 4
            data = (sizes.append(len(part)) or part for part in data)  # type: ignore[func-returns-value]
        put(client, key, data, **options)

    monkeypatch.setattr(obstore, "put", watched)
    assert store_at(s3_url).put_if_absent(KEY, memoryview(DATA))
    assert sizes == [PART, PART, 3]


_UPLOADER = """
import sys
from custody.store import remote
from custody.store.remote import open_remote
remote._PART_BYTES = 5 << 20
remote._PARTS_AT_ONCE = 1
open_remote(sys.argv[1], multipart_bytes=1).put("main/provenance/data/large", bytes(20 << 20))
"""


def die_while_uploading(proxy: StoreProxy, location: str) -> None:
    """Begin an upload in a process of its own, and kill it when its second part is on its way."""
    parts: list[str] = []
    second = threading.Event()

    def watch(method: str, path: str) -> None:
        if method == "PUT" and "partNumber=" in path:
            parts.append(path)
            if len(parts) == 2:
                second.set()
                time.sleep(0.5)  # it is killed before the answer

    proxy.watch = watch
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE), **s3_environment(proxy.url)}
    with subprocess.Popen([sys.executable, "-c", _UPLOADER, location], env=environ) as process:
        assert second.wait(60)
        process.kill()
    proxy.watch = lambda method, path: None


def test_the_parts_of_uploads_that_died_are_found_and_freed_by_recovery(
    tmp_path: Path, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    before, prefix = set(open_uploads(proxy.url)), uuid4().hex
    location = f"s3://{BUCKET}/{prefix}"
    (tmp_path / "custody.toml").write_text(f'[repository]\nstore = "{location}"\n')
    append(Repository.open(tmp_path), sample(10))
    die_while_uploading(proxy, location)
    # Of another repository, whose prefix begins with the same letters.
    die_while_uploading(proxy, f"{location}-other")
    left = {f"{prefix}/{KEY}", f"{prefix}-other/{KEY}"}
    assert set(open_uploads(proxy.url)) - before == left
    repository = Repository.open(tmp_path)
    clock = ManualClock(repository.workspace().clock.now_ms() + 25 * HOUR_MS)
    workspace = Workspace(repository.settings, "main", PosixFileSystem(), clock)
    leftovers = [item for item in find_leftovers(workspace) if "uploadId" in item.path]
    assert [item.path.partition("?")[0] for item in leftovers] == [f"{location}/{KEY}"]
    assert not recover(workspace).errors
    assert set(open_uploads(proxy.url)) - before == {f"{prefix}-other/{KEY}"}
    assert len(list(repository.events(count=100))) == 10


def test_keys_that_obstore_finds_elsewhere_leave_uploads_to_the_rule_of_the_bucket(proxy: StoreProxy) -> None:
    """Without the secret in the environment nobody asks for uploads, and nothing fails."""
    store, asked = store_at(proxy.url), []
    proxy.watch = lambda method, path: asked.append(path)
    assert store.unfinished("main/") == []
    assert not asked


@pytest.mark.parametrize("fault", ["500", "lost", "expired"])
def test_a_bucket_that_does_not_tell_its_uploads_fails_no_recovery(
    tmp_path: Path, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch, fault: Fault
) -> None:
    for name, value in s3_environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    store = remote.open_remote(f"s3://{BUCKET}/{uuid4().hex}")
    seen: list[str] = []
    proxy.watch = lambda method, path: seen.append(path)
    proxy.fault = lambda number, method: fault if "uploads=" in seen[-1] else None
    assert store.unfinished("main/") == []
    assert len(seen) == 1


def test_a_pass_whose_objects_all_go_in_parts_and_what_a_dead_process_left(
    tmp_path: Path, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in s3_environment(proxy.url).items():
        monkeypatch.setenv(name, value)
    (tmp_path / "custody.toml").write_text(
        f'[repository]\nstore = "s3://{BUCKET}/{uuid4().hex}"\nmultipart_bytes = 4096\n[journal]\nhandoff = "store"\n'
    )
    events, posts = sample(400), []
    append(Repository.open(tmp_path), events)
    proxy.watch = lambda method, path: posts.append(path) if method == "POST" else None
    assert Repository.open(tmp_path).hand_over()
    run_steps(Repository.open(tmp_path).settings)
    for ending in (".sealed", ".parquet"):
        assert any(path.partition("?")[0].endswith(ending) for path in posts)
    repository = Repository.open(tmp_path)
    assert list(repository.events(count=1000)) == numbered(events)
    store = repository.workspace().catalog.objects.store
    assert not list(store.keys(f"main/{UPLOADS}/"))
    store.put(f"main/{UPLOADS}/{'0' * 32}", b"left")
    now_ms = repository.workspace().clock.now_ms()
    for age_ms, left in ((0, 0), (2 * HOUR_MS, 1)):
        clock = ManualClock(now_ms + age_ms)
        workspace = Workspace(repository.settings, "main", PosixFileSystem(), clock)
        found = [item for item in find_leftovers(workspace) if UPLOADS in item.path]
        assert len(found) == left
        assert all((item.action, item.path.startswith("s3://")) == ("remove", True) for item in found)
        recover(workspace)
    assert not list(store.keys(f"main/{UPLOADS}/"))
