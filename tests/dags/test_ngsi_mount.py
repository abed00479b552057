"""The receiver as Airflow's API server mounts it: off unless named, never open, one writer slot a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from custody.errors import ConfigurationError
from custody.repository import Repository
from custody_airflow import receiving
from custody_airflow.environment import ngsi_mount
from tests.unit.serving.receiver_process import JSON, notification

PROJECT = Path(__file__).resolve().parents[2]
TOKEN = {**JSON, "authorization": "Bearer a-token-for-this-test"}
URL = "/custody/ngsi/notify"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository with a token and two writer slots."""
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text('[repository]\nwriter_slots = 2\n[receiver]\ntoken_file = "tokens"\n')
    (root / "tokens").write_text("a-token-for-this-test\n")
    (root / "tokens").chmod(0o600)
    return root


class Worker:
    """A worker of an API server that mounts the receiver."""

    def __init__(self, portal: BlockingPortal, root: Path) -> None:
        self._portal = portal
        self.receiver = receiving.mounted(root)
        outer = FastAPI()
        outer.mount("/custody/ngsi", self.receiver)
        self._transport = httpx.ASGITransport(app=outer)

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self._portal.call(partial(self._ask, method, path, options))

    def post(self, number: int, headers: dict[str, str] = TOKEN) -> httpx.Response:
        return self.ask("POST", URL, content=notification(number), headers=headers)

    async def _ask(self, method: str, path: str, options: dict[str, Any]) -> httpx.Response:
        async with httpx.AsyncClient(transport=self._transport, base_url="http://airflow") as client:
            return await client.request(method, path, **options)


@contextmanager
def worker(root: Path) -> Iterator[Worker]:
    """Run a worker with an event loop of its own, and the receiver's lifespan, as Airflow does."""
    with start_blocking_portal() as portal:
        made = Worker(portal, root)
        with portal.wrap_async_context_manager(made.receiver.router.lifespan_context(made.receiver)):
            yield made


def test_a_notification_is_stored_under_the_prefix_and_its_journal_sealed_at_the_end(root: Path) -> None:
    with worker(root) as client:
        answer = client.post(1)
        assert (answer.status_code, answer.json()["writer"]) == (200, "main")
        assert client.ask("GET", "/custody/ngsi/health").json()["notifications"] == 1
        assert client.ask("POST", "/custody/ngsi/other", headers=TOKEN).status_code == 404
        assert client.ask("GET", URL, headers=TOKEN).headers["allow"] == "POST"
    repository = Repository.open(root)
    [found] = repository.events()
    assert found.transit_uri == f"http://airflow{URL}"
    assert repository.content(found).read() == notification(1)
    assert {path.suffix for path in root.glob("containers/1/main/journals/*")} == {".sealed"}
    assert repository.status().slots_taken == 0


@pytest.mark.parametrize("headers", [JSON, {**JSON, "authorization": "Bearer some-other-token-here"}])
def test_who_brings_no_token_is_refused(root: Path, headers: dict[str, str]) -> None:
    with worker(root) as client:
        answer = client.post(1, headers)
        assert (answer.status_code, answer.json()["error"]) == (401, "token")
    assert list(Repository.open(root).events()) == []


def test_without_a_token_file_nothing_is_taken_and_the_log_says_why(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (root / "custody.toml").write_text("")
    with worker(root) as client:
        for _ in range(2):
            answer = client.post(1)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "30")
            assert str(root) not in answer.text
    assert caplog.text.count("receiver.token_file: expected a file with tokens") == 1
    assert Repository.open(root).status().slots_taken == 0


def test_each_worker_has_a_slot_and_one_without_waits_for_it(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "AGAIN_SECONDS", 0.0)
    monkeypatch.setenv("CUSTODY__REPOSITORY__WRITER_WAIT_SECONDS", "0")
    with worker(root) as first:
        assert first.post(1).json()["writer"] == "main"
        with worker(root) as third:
            with worker(root) as second:
                assert second.post(2).json()["writer"] == "main-2"
                answer = third.post(3)
                assert (answer.status_code, answer.json()["error"]) == (503, "locked")
                assert "repository.writer_slots" in answer.json()["message"]
            assert third.post(3).json()["writer"] == "main-2"
    opened = Repository.open(root)
    stored = [event for name in ("main", "main-2") for event in opened.events(writer=name)]
    assert {event.attributes["ngsi.entity.id"] for event in stored} == {"car1-0", "car2-0", "car3-0"}


def test_a_worker_that_could_not_open_waits_before_it_tries_again(root: Path) -> None:
    (root / "tokens").chmod(0o644)
    with worker(root) as client:
        assert client.post(1).status_code == 503
        (root / "tokens").chmod(0o600)
        assert client.post(1).status_code == 503
        time.sleep(receiving.AGAIN_SECONDS)
        assert client.post(1).status_code == 200


def test_nothing_is_mounted_where_no_path_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUSTODY_NGSI_MOUNT", raising=False)
    assert ngsi_mount() is None
    monkeypatch.setenv("CUSTODY_NGSI_MOUNT", " /custody/ngsi ")
    assert ngsi_mount() == "/custody/ngsi"


@pytest.mark.parametrize("path", ["custody", "/", "/api/v2", "/ui/x", "/auth", "/a b", "/a/", "/{x}"])
def test_a_path_that_cannot_be_mounted_is_named(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setenv("CUSTODY_NGSI_MOUNT", path)
    with pytest.raises(ConfigurationError, match="CUSTODY_NGSI_MOUNT: expected a path such as /custody/ngsi"):
        ngsi_mount()


def test_the_plugin_loads_nothing_heavy_also_where_it_mounts(root: Path) -> None:
    code = "import os, sys, custody_plugin as p\n"
    code += "print([(a['url_prefix'], type(a['app']).__name__) for a in p.CustodyPlugin.fastapi_apps])\n"
    code += "print(sorted({'pyarrow', 'whoosh', 'pyspark', 'custody.repository'} & set(sys.modules)))\n"
    code += "del os.environ['CUSTODY_NGSI_MOUNT']; print(p._applications())\n"
    given = {
        "PYTHONPATH": f"{PROJECT / 'plugins'}:{PROJECT / 'include'}",
        "AIRFLOW_HOME": str(root.parent),
        "CUSTODY_NGSI_MOUNT": "/custody/ngsi",
        "CUSTODY_REPOSITORY": str(root),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env={**os.environ, **given},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-3:] == ["[('/custody/ngsi', 'FastAPI')]", "[]", "[]"], done.stderr
