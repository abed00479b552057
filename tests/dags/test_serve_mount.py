"""The doors as Airflow's API server mounts them: off unless named, behind tokens of custody's or of Airflow's users."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import airflow.api_fastapi.app as airflow_app
import httpx
import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from custody.errors import ConfigurationError
from custody.repository import Repository
from custody.serving.access import Scope
from custody_airflow import receiving
from custody_airflow.environment import serve_mount
from tests.unit.capture.sample_inputs import run_event
from tests.unit.serving.serve_process import token

ONE = "/custody/api/v1/lineage"
BODY = json.dumps(run_event("START", 1)).encode()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    Repository.create(root)
    return root


class Managers:
    """Stands for Airflow's manager of users: it knows one user a token, by the methods that the user may use."""

    USERS: ClassVar = {"jwt-of-a-viewer": {"GET"}, "jwt-of-an-operator": {"GET", "POST"}, "jwt-of-nobody": set[str]()}

    async def get_user_from_token(self, token: str) -> Any:
        if token not in self.USERS:
            raise RuntimeError(f"not valid: {token}")
        return SimpleNamespace(get_name=lambda: token.removeprefix("jwt-of-"), methods=self.USERS[token])

    def is_authorized_asset(self, *, method: str, user: Any) -> bool:
        return method in user.methods

    def is_authorized_dag(self, *, method: str, user: Any, access_entity: DagAccessEntity, details: DagDetails) -> bool:
        assert (access_entity, details.id) == (DagAccessEntity.RUN, "provenance_replay")
        return method in user.methods


@contextmanager
def worker(root: Path) -> Iterator[Any]:
    """Run a worker of an API server with an event loop of its own; yields what asks it."""
    with start_blocking_portal() as portal:
        mounted = receiving.mounted_doors(root)
        outer = FastAPI()
        outer.mount("/custody", mounted)
        transport = httpx.ASGITransport(app=outer)
        with portal.wrap_async_context_manager(mounted.router.lifespan_context(mounted)):
            yield partial(ask, portal, transport)


def ask(
    portal: BlockingPortal,
    transport: httpx.ASGITransport,
    method: str,
    path: str,
    bearer: str = "",
    body: bytes = b"",
    headers: dict[str, str] | None = None,
) -> httpx.Response:
    async def asked() -> httpx.Response:
        head = {"authorization": f"Bearer {bearer}"} if bearer else headers or {}
        async with httpx.AsyncClient(transport=transport, base_url="http://airflow") as client:
            return await client.request(method, path, headers=head, content=body)

    return portal.call(asked)


@pytest.mark.parametrize(
    ("bearer", "posted", "looked"),
    [
        ("", 401, 401),
        ("jwt-of-a-stranger", 401, 401),
        ("jwt-of-nobody", 403, 403),
        ("jwt-of-a-viewer", 403, 200),
        ("jwt-of-an-operator", 201, 200),
    ],
)
def test_users_of_airflow_may_do_what_they_may_do_with_assets(
    root: Path, monkeypatch: pytest.MonkeyPatch, bearer: str, posted: int, looked: int, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(airflow_app, "get_auth_manager", Managers)
    with caplog.at_level("DEBUG"), worker(root) as asking:
        assert asking("POST", ONE, bearer, BODY).status_code == posted
        assert asking("POST", "/custody/openlineage", bearer, BODY).status_code == (200 if posted == 201 else posted)
        assert asking("GET", "/custody/metrics", bearer).status_code == looked
        assert asking("GET", "/custody/readyz").json()["status"] == "ok"
        assert asking("GET", "/custody/elsewhere", bearer).status_code == 404
    assert "jwt-of-a-stranger" not in "".join(record.getMessage() for record in caplog.records)
    assert len(list(Repository.open(root).events())) == (posted == 201)
    assert Repository.open(root).status().slots_taken == 0


@pytest.mark.parametrize(
    ("user", "events", "contents"),
    [("", 401, 401), ("jwt-of-nobody", 403, 403), ("jwt-of-a-viewer", 200, 403), ("jwt-of-an-operator", 200, 404)],
)
def test_the_pages_are_there_for_all_and_their_answers_for_the_user_of_the_session(
    root: Path, monkeypatch: pytest.MonkeyPatch, user: str, events: int, contents: int
) -> None:
    monkeypatch.setattr(airflow_app, "get_auth_manager", Managers)
    own = {"cookie": f"_token={user}", "sec-fetch-site": "same-origin"} if user else {}
    with worker(root) as asking:
        assert asking("GET", "/custody/ui/", headers=own).headers["location"] == "search.html"
        assert asking("GET", "/custody/api/v1/events", headers=own).status_code == events
        # There is no such event: who may not read contents does not learn it.
        assert asking("GET", "/custody/api/v1/events/main/7/content", headers=own).status_code == contents
        foreign = {**own, "sec-fetch-site": "cross-site"}
        assert asking("GET", "/custody/api/v1/events", headers=foreign).status_code == 401
        assert asking("POST", ONE, headers=foreign, body=BODY).status_code == 401


def test_airflow_s_page_has_entries_where_the_doors_are_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUSTODY_SERVE_MOUNT", raising=False)
    monkeypatch.delenv("CUSTODY_NGSI_MOUNT", raising=False)
    import custody_plugin

    assert custody_plugin._pages() == []
    monkeypatch.setenv("CUSTODY_SERVE_MOUNT", "/team/custody")
    entries = custody_plugin._pages()
    assert [entry.get("destination") for entry in entries] == ["nav", "nav", "dag_run", "task_instance"]
    # Relative to Airflow's own address, which may lie below a path.
    assert all(entry["href"].startswith("team/custody/ui/") for entry in entries)
    assert "{DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}" in entries[3]["href"]
    routes = [entry["url_route"] for entry in entries if "url_route" in entry]
    assert len(set(routes)) == len(routes) == 3


def test_a_token_of_custody_counts_too(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(airflow_app, "get_auth_manager", Managers)
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\n')
    bearer = token(root, "producer", Scope.APPEND)["authorization"].split()[1]
    with worker(root) as asking:
        assert asking("POST", ONE, bearer, BODY).status_code == 201
        assert asking("POST", ONE, "jwt-of-an-operator", BODY).status_code == 200


def test_without_a_slot_the_answer_is_503_until_there_is_one(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiving, "AGAIN_SECONDS", 0.0)
    monkeypatch.setattr(airflow_app, "get_auth_manager", Managers)
    monkeypatch.setenv("CUSTODY__REPOSITORY__WRITER_WAIT_SECONDS", "0")
    with worker(root) as asking:
        with Repository.open(root).writer():
            answer = asking("POST", ONE, "jwt-of-an-operator", BODY)
            assert (answer.status_code, answer.json()["error"]) == (503, "locked")
        assert asking("POST", ONE, "jwt-of-an-operator", BODY).status_code == 201


def test_the_path_is_named_or_nothing_is_mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUSTODY_SERVE_MOUNT", raising=False)
    assert serve_mount() is None
    monkeypatch.setenv("CUSTODY_SERVE_MOUNT", "/custody")
    assert serve_mount() == "/custody"
    monkeypatch.setenv("CUSTODY_SERVE_MOUNT", "/api/v2/x")
    with pytest.raises(ConfigurationError, match="CUSTODY_SERVE_MOUNT: expected a path such as /custody that"):
        serve_mount()
