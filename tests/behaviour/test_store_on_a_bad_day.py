"""A store that answers errors, late, or not at all after it did its work: the same answers, or a clear refusal."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from custody.errors import StorageError
from custody.repository import Repository
from custody.store import counted
from tests.behaviour.places import s3_url
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import Fault, StoreProxy, store_proxy
from tests.support import append, numbered, run_steps, sample

__all__ = ["s3_url"]

pytestmark = pytest.mark.slow
EVENTS = sample(60)
CLIENT_TIMEOUT = "2s"


@pytest.fixture
def proxy(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StoreProxy]:
    with store_proxy(s3_url) as proxy:
        for name, value in s3_environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CUSTODY__REPOSITORY__STORE", f"s3://{BUCKET}/{uuid4().hex}")
        monkeypatch.setenv("CUSTODY__EVENTLOG__BLOCK_BYTES_MAX", "8192")
        yield proxy


def check(root: Path) -> None:
    """What a machine with an empty disk is told is what was appended."""
    for path in (root / "work", *root.glob("containers/*/main/index")):
        shutil.rmtree(path)
    repository = Repository.open(root)
    events = numbered(EVENTS)
    assert repository.get(41) == events[41]
    for text, expected in (
        ("event_type:SEND", [e for e in events[::-1] if e.event_type == "SEND"]),
        (
            f"flowfile_uuid:{events[7].flowfile_uuid}",
            [e for e in events[::-1] if e.flowfile_uuid == events[7].flowfile_uuid],
        ),
        ("", events[::-1]),
    ):
        answer = repository.search(text, limit=100)
        assert [stored.event for stored in answer.events] == expected
        assert answer.total == len(expected)
        assert answer.notices == ()
    assert list(repository.events(count=100)) == events


@pytest.mark.parametrize("fault", ["500", "503", "lost", "hang", "slow"])
def test_a_pass_and_its_readers_survive_faults(
    tmp_path: Path, proxy: StoreProxy, fault: Fault, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_TIMEOUT", CLIENT_TIMEOUT if fault == "hang" else "30s")
    # Of all requests some, never the same ones: with seven, steps of one kind meet it at different places.
    every = {"slow": 29, "hang": 13}.get(fault, 7)
    proxy.fault = lambda number, method: fault if number % every == 0 else None
    (tmp_path / "custody.toml").touch()
    append(Repository.open(tmp_path), EVENTS[:30])
    run_steps(Repository.open(tmp_path).settings)
    append(Repository.open(tmp_path), EVENTS[30:])
    run_steps(Repository.open(tmp_path).settings)
    if fault == "hang":
        assert proxy.given_up["PUT"], "the client waited no longer, after the store had done the work"
    check(tmp_path)


def test_a_store_that_always_fails_is_an_error_that_names_it(
    tmp_path: Path, proxy: StoreProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "custody.toml").touch()
    append(Repository.open(tmp_path), EVENTS)
    run_steps(Repository.open(tmp_path).settings)
    for path in (tmp_path / "work", *tmp_path.glob("containers/*/main/index")):
        shutil.rmtree(path)
    repository = Repository.open(tmp_path)
    repository.search("", limit=0)
    proxy.fault = lambda number, method: "503" if method == "GET" else None
    with pytest.raises(StorageError, match=r"cannot (read|list) s3://"):
        repository.get(41)
    proxy.fault = lambda number, method: None
    check(tmp_path)


def test_requests_that_are_counted_are_those_that_come(tmp_path: Path, proxy: StoreProxy) -> None:
    (tmp_path / "custody.toml").touch()
    append(Repository.open(tmp_path), EVENTS)
    with counted() as counter:
        run_steps(Repository.open(tmp_path).settings)
    for path in (tmp_path / "work", *tmp_path.glob("containers/*/main/index")):
        shutil.rmtree(path)
    repository = Repository.open(tmp_path)
    repository.get(41)
    proxy.seen.clear()
    with counted() as counter:
        repository.search("event_type:SEND", limit=5)
        repository.get(3)
    asked = counter.traffic.requests
    assert asked["range"] == proxy.seen["RANGE"] > 0
    assert asked.get("head", 0) == proxy.seen["HEAD"]
    assert asked["get"] + asked["list"] == proxy.seen["GET"]
