"""What the API changes is what the command line changes, for those who may, and for nobody whom another site sent."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import msgspec
import psutil  # type: ignore[import-untyped]
import pytest
from starlette.testclient import TestClient

from custody.catalog.difference_summary import difference_summary
from custody.clock import SystemClock
from custody.config.sections import ListenerSection
from custody.flow import Component
from custody.quarantine import bad_piece
from custody.repository import EventSelection, Repository
from custody.repository.local_pass import PASSES, run_locally
from custody.serving.access import Scope, Tokens, add_token
from custody.serving.api_door import PREFIX, ApiDoor, api_application, openapi_document
from custody.serving.application import Access, application
from custody.serving.door import Services
from custody.vfs import PosixFileSystem
from custody.workspace.run_reports import report_path, run_of
from tests.unit.serving.serve_process import served

LOAD = Component(id="dag.load", type="LoadOrders")
SORT = Component(id="dag.sort", type="SortOrders")
ORDERS = 3
GOOD = {
    "eventId": "5d8bd3a5-6a6d-4b5e-8e53-8d0b8f1f6b01",
    "eventOrdinal": 1,
    "eventType": "CREATE",
    "timestampMillis": 1_772_409_600_000,
    "durationMillis": -1,
    "lineageStart": 1_772_409_600_000,
    "componentId": "c0ffee00-0000-4000-8000-000000000001",
    "componentType": "GenerateFlowFile",
    "entityId": "5d8bd3a5-6a6d-4b5e-8e53-8d0b8f1f6b02",
    "entityType": "org.apache.nifi.flowfile.FlowFile",
    "entitySize": 12,
}


def with_orders(root: Path, load: Component, sort: Component, orders: int) -> Repository:
    """Return a repository, new unless it is there, whose flow took orders out of a queue; its events are live."""
    repository = Repository.open(root) if root.exists() else Repository.create(root)
    with repository.flowfiles() as flow:
        flow.connect("orders", consumer="sort_orders")
        with flow.session(load) as session:
            for number in range(orders):
                order = session.create({"filename": f"orders-{number}.csv"})
                session.write_bytes(order, b"17,late" * (number + 1))
                session.transfer(order, "orders")
        with flow.session(sort) as session:
            for _ in range(orders):
                taken = session.get("orders")
                assert taken is not None
                session.remove(taken)
    run_locally(PASSES["all"], repository.settings, run_id="scheduled__2026-03-02T00:00:00+00:00")
    return repository


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository whose flow took some orders out of a queue."""
    return with_orders(tmp_path_factory.mktemp("changes") / "repository", LOAD, SORT, ORDERS).settings.root


@pytest.fixture
def repository(kept: Path, tmp_path: Path) -> Repository:
    root = tmp_path / "repository"
    shutil.copytree(kept, root)
    return Repository.open(root)


@pytest.fixture
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(repository, Access()) as client:
        yield client


class client_of:
    def __init__(self, repository: Repository, access: Access) -> None:
        services = Services(repository, repository.settings, SystemClock())
        self._door = ApiDoor(services)
        app = application(ListenerSection(), [self._door], access)
        self._client = TestClient(app, base_url=f"http://localhost{PREFIX}/", raise_server_exceptions=False)

    def __enter__(self) -> TestClient:
        return self._client.__enter__()

    def __exit__(self, *_: object) -> None:
        self._client.__exit__(None, None, None)
        self._door.close()


def ordered(client: TestClient, path: str, body: object, status: int = 202) -> Any:
    answer = client.post(path, json=body, params={"wait": 10})
    assert answer.status_code == status, answer.text
    return answer.json()


def planned(client: TestClient, **question: object) -> Any:
    job = ordered(client, "replay-plans", question)
    assert job["state"] == "succeeded", job
    return client.get(job["result"]["href"]).json() | {"href": job["result"]["href"]}


def waiting(repository: Repository) -> int:
    return sum(queue.count for queue in repository.status().queues)


def test_a_plan_is_that_of_the_library_and_its_run_sends_each_flowfile_once(
    client: TestClient, repository: Repository
) -> None:
    plan = planned(client, query="")
    expected = repository.plan_replay("")
    assert (plan["events"], plan["bytes"], plan["queues"]) == (ORDERS, expected.bytes, {"orders": ORDERS})
    assert plan["refused_by_code"] == {code.value: count for code, count in expected.refused_by_code.items()}
    assert [one["message"] for one in plan["refused"]] == [one.message for one in expected.refused]
    assert waiting(repository) == 0
    answer = client.post(f"{plan['href']}/runs", json={}, params={"wait": 10})
    job = answer.json()
    assert (job["state"], job["result"]["replayed"], job["done"], job["total"]) == ("succeeded", 3, 3, 3)
    assert job["result"]["consumers"] == {"orders": "sort_orders"}
    # Where the job is, relative to what was asked.
    assert client.get(f"{plan['href']}/{answer.headers['location']}").json() == job
    assert waiting(repository) == ORDERS
    assert client.get(f"{plan['href']}/check").json()["left"] == 0
    again = ordered(client, f"{plan['href']}/runs", {})
    assert (again["result"]["replayed"], again["result"]["done_before"]) == (0, ORDERS)
    assert waiting(repository) == ORDERS
    assert repository.search("event_type:REPLAY").total == ORDERS


def test_a_plan_is_found_as_answers_are_masked_and_sends_what_is_stored(repository: Repository) -> None:
    query = repository.settings.query.model_copy(update={"mask_attributes": ("filename",)})
    masked = Repository(repository.settings.model_copy(update={"query": query}))
    with client_of(masked, Access()) as client:
        assert planned(client, query="orders-1.csv")["events"] == 0
        plan = planned(client, query="event_type:DROP")
        assert (plan["events"], plan["refused_by_code"]) == (ORDERS, {})
        ordered(client, f"{plan['href']}/runs", {})
    names = {item.flowfile.attributes["filename"] for item in repository.queues().flowfiles("orders", 100)}
    assert names == {f"orders-{number}.csv" for number in range(ORDERS)}


def test_a_plan_of_one_event_says_why_it_cannot_be_sent_again(client: TestClient, repository: Repository) -> None:
    [loaded, *_] = repository.search("component_id:dag.load", oldest_first=True).events
    plan = planned(client, event_ids=[loaded.event.event_id, 999_999], writer="main")
    assert plan["events"] == 0
    assert {one["code"] for one in plan["refused"]} == {"no-source-queue", "unknown-event"}
    job = ordered(client, f"{plan['href']}/runs", {})
    assert (job["state"], job["result"]["replayed"]) == ("succeeded", 0)


def test_a_plan_that_does_not_hold_any_more_is_refused_unless_the_rest_is_wanted(
    client: TestClient, repository: Repository
) -> None:
    plan = planned(client, query="component_id:dag.sort")
    [gone, *_] = repository.search("component_id:dag.sort", oldest_first=True).events
    repository.forget(EventSelection(event_ids=[gone.event.event_id]), "a test", gone.writer)
    job = ordered(client, f"{plan['href']}/runs", {})
    assert (job["state"], job["problem"]["kind"], job["problem"]["status"]) == ("failed", "conflict", 409)
    assert waiting(repository) == 0
    job = ordered(client, f"{plan['href']}/runs", {"skip_changed": True})
    assert (job["state"], job["result"]["replayed"], len(job["result"]["skipped"])) == ("succeeded", 2, 1)


def test_a_full_queue_stops_a_run_and_the_next_one_goes_on(client: TestClient, repository: Repository) -> None:
    plan = planned(client, query="component_id:dag.sort")
    with repository.flowfiles() as flow:
        flow.connect("orders", count_max=1)
        with flow.session(LOAD) as session:
            session.transfer(session.create({}), "orders")
    job = ordered(client, f"{plan['href']}/runs", {})
    assert (job["state"], job["problem"]["kind"], job["result"]["replayed"]) == ("failed", "backpressure", 0)
    assert "Run the plan again" in job["problem"]["detail"]
    with repository.flowfiles() as flow:
        flow.connect("orders", count_max=100)
    assert ordered(client, f"{plan['href']}/runs", {})["result"]["replayed"] == ORDERS


def test_a_run_says_who_wanted_it(repository: Repository) -> None:
    tokens = tokens_of(repository, alice=Scope.REPLAY)
    access = Access(Tokens.read(repository.settings.root / "tokens"))
    with client_of(repository, access) as client:
        client.headers["Authorization"] = f"Bearer {tokens['alice']}"
        job = ordered(client, "replay-plans", {"query": "component_id:dag.sort"})
        assert job["state"] == "queued" or job["user"] == "alice"
        ordered(client, f"replay-plans/{job['result']['plan']}/runs", {})
    [one, *_] = repository.search("event_type:REPLAY").events
    assert one.event.details == "Replay requested by alice"


def test_pieces_of_the_quarantine_are_stored_at_another_try(client: TestClient, repository: Repository) -> None:
    good = quarantined(repository, json.dumps(GOOD).encode())
    bad = quarantined(repository, b"no event at all")
    job = ordered(client, "quarantine/resubmissions", {"keys": [good, bad]})
    assert job["state"] == "succeeded", job
    assert {name: job["result"][name] for name in ("stored", "repeated", "rejected", "pieces")} == {
        "stored": 1,
        "repeated": 0,
        "rejected": 1,
        "pieces": 2,
    }
    assert job["result"]["reports"][good]["stored"] == 1
    assert good not in list(repository.quarantine.known_keys())
    assert repository.search(f'flowfile_uuid:"{GOOD["entityId"]}"').total == 1
    assert client.get(f"quarantine/{good}").status_code == 404
    again = ordered(client, "quarantine/resubmissions", {"everything": True})
    assert again["result"]["rejected"] >= 1


def quarantined(repository: Repository, piece: bytes) -> str:
    return repository.quarantine.add(
        bad_piece(
            piece,
            severity="error",
            code="bad-value",
            message="it was not liked",
            file="one.json",
            index=0,
            offset=0,
            node="node-1",
            received_ms=1_772_409_600_000,
        )
    ).key


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    ("path", "body", "status", "kind"),
    [
        ("replay-plans", {}, 400, "invalid-input"),
        ("replay-plans", {"query": "", "event_ids": [1]}, 400, "invalid-input"),
        ("replay-plans", {"query": "nothing:1"}, 400, "invalid-input"),
        ("replay-plans", {"event_ids": [-1]}, 400, "invalid-input"),
        ("replay-plans", {"event_ids": [1 << 63]}, 400, "invalid-input"),
        ("replay-plans", {"event_ids": list(range(1001))}, 400, "invalid-input"),
        ("replay-plans", {"query": "", "as_of": "somewhen"}, 400, "invalid-input"),
        ("replay-plans", {"query": "", "writer": "../main"}, 404, "not-found"),
        ("replay-plans", {"quer": ""}, 400, "invalid-input"),
        ("replay-plans/none/runs", {}, 404, "not-found"),
        ("replay-plans/..%2F..%2Fcustody/runs", {}, 404, "no-route"),
        ("quarantine/resubmissions", {}, 400, "invalid-input"),
        ("quarantine/resubmissions", {"keys": ["a"], "everything": True}, 400, "invalid-input"),
        ("quarantine/resubmissions", {"keys": ["../../custody"]}, 404, "not-found"),
        ("quarantine/resubmissions", {"everything": True, "format": "none"}, 400, "invalid-input"),
        ("quarantine/0123456789abcdef", {}, 405, "method"),
    ],
)
def test_an_order_that_makes_no_sense_begins_nothing(
    client: TestClient, path: str, body: object, status: int, kind: str
) -> None:
    problem = ordered(client, path, body, status)
    assert (problem["status"], problem["kind"]) == (status, kind)
    assert client.get("jobs").json() == {"items": [], "total": 0}


def operations(repository: Repository) -> list[tuple[str, str]]:
    document = openapi_document(api_application(Services(repository, repository.settings, SystemClock())))
    return [
        (method, path)
        for path, of_path in document["paths"].items()
        for method, one in of_path.items()
        if method in ("post", "delete") and path not in ("/events/search", "/sql")
    ]


def test_no_page_of_another_site_changes_anything(client: TestClient, repository: Repository) -> None:
    chosen = operations(repository)
    assert len(chosen) == 11
    for method, path in chosen:
        here = path.lstrip("/").replace("{", "").replace("}", "")
        for foreign in (
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
            {"origin": "http://evil.example"},
            {"origin": "null"},
            {"origin": "https://test:81"},
        ):
            answer = client.request(method, here, json={"everything": True}, headers=foreign)
            assert (answer.status_code, answer.json()["error"]) == (403, "foreign-page"), (method, path, foreign)
        if method == "post":
            # What a form can send anywhere, without a question before it.
            for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""):
                answer = client.request(method, here, content=b'{"query": ""}', headers={"content-type": kind})
                assert answer.status_code == 415, (path, kind)
        own = {"sec-fetch-site": "same-origin", "origin": "http://localhost"}
        assert client.request(method, here, json={}, headers=own).status_code in (400, 404)
    assert client.get("jobs").json()["total"] == 0


def test_a_question_changes_nothing(client: TestClient, repository: Repository) -> None:
    before = {path: path.read_bytes() for path in repository.settings.root.rglob("*") if path.is_file()}
    description = openapi_document(api_application(Services(repository, repository.settings, SystemClock())))
    for path, of_path in description["paths"].items():
        if "get" in of_path:
            here = path.replace("{writer}", "main").replace("{event_id}", "0").lstrip("/")
            client.get(here, params={"field": "day"} if "facets" in path else {})
    assert {path: path.read_bytes() for path in repository.settings.root.rglob("*") if path.is_file()} == before


def tokens_of(repository: Repository, **scopes: Scope) -> dict[str, str]:
    fs, path = PosixFileSystem(), repository.settings.root / "tokens"
    return {name: add_token(fs, path, name, frozenset({Scope.READ, scope}), "now") for name, scope in scopes.items()}


def test_each_order_needs_its_scope(repository: Repository) -> None:
    tokens = tokens_of(repository, reader=Scope.READ, sender=Scope.REPLAY, keeper=Scope.MANAGE)
    access = Access(Tokens.read(repository.settings.root / "tokens"))
    orders = {
        ("post", "replay-plans"): "sender",
        ("get", "replay-plans"): "sender",
        ("post", "replay-plans/x/runs"): "sender",
        ("post", "quarantine/resubmissions"): "keeper",
    }
    with client_of(repository, access) as client:
        for (method, path), allowed in orders.items():
            for name, token in tokens.items():
                answer = client.request(
                    method, path, json={} if method == "post" else None, headers={"Authorization": f"Bearer {token}"}
                )
                assert (answer.status_code == 403) == (name != allowed), (method, path, name, answer.text)
            assert client.request(method, path).status_code == 401
        sender = {"Authorization": f"Bearer {tokens['sender']}"}
        job = client.post("replay-plans", json={"query": ""}, headers=sender).json()
        for name, status in (("reader", 403), ("keeper", 403), ("sender", 202)):
            answer = client.delete(f"jobs/{job['id']}", headers={"Authorization": f"Bearer {tokens[name]}"})
            assert answer.status_code == status, name
        # Who may read sees that it was done, and by whom.
        seen = client.get(f"jobs/{job['id']}?wait=10", headers={"Authorization": f"Bearer {tokens['reader']}"}).json()
        assert seen["user"] == "sender"


def test_no_more_jobs_wait_than_a_process_can_do(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.serving.jobs.JOBS_MAX", 0)
    answer = client.post("replay-plans", json={"query": ""})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
    assert answer.json()["kind"] == "too-many"


def test_a_plan_is_bounded_and_the_command_line_is_named(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("custody.serving.api_changes.PLAN_EVENTS_MAX", 2)
    assert "custody replay plan" in ordered(client, "replay-plans", {"query": ""}, 400)["detail"]


def test_runs_have_the_reports_of_their_steps(client: TestClient, repository: Repository) -> None:
    run_id = "scheduled__2026-03-02T00:00:00+00:00"
    [run] = client.get("runs").json()["items"]
    assert run["run"] == run_of(repository.settings.runs, run_id)
    assert run["events"] == repository.search("").total
    assert client.get("runs", params={"run_id": run_id}).json()["items"] == [run]
    assert client.get("runs", params={"run_id": "another"}).json()["items"] == []
    steps = client.get(f"runs/{run['run']}").json()["steps"]
    assert [step["step"] for step in steps] == run["steps"]
    for step in steps:
        path = report_path(repository.settings.runs, run_id, step["step"])
        assert json.loads(path.read_text()) == step | {"checksum": json.loads(path.read_text())["checksum"]}
    path.write_bytes(path.read_bytes().replace(b'"units"', b'"stinu"'))
    damaged = client.get("runs").json()
    assert (damaged["items"], damaged["total"]) == ([], 1)
    assert "checksum" in damaged["notices"][0]
    assert str(repository.settings.root) not in damaged["notices"][0]
    assert client.get(f"runs/{run['run']}").status_code == 500
    assert client.get("runs/..%2F..%2F").status_code == 404


def test_a_difference_is_that_of_the_catalog(client: TestClient, repository: Repository) -> None:
    [sorted_, *_] = repository.search("component_id:dag.sort").events
    repository.forget(EventSelection(event_ids=[sorted_.event.event_id]), "asked for", "main")
    catalog = repository.workspace("main").catalog
    newest = catalog.load().revision
    shown = client.get("timeline/main/difference", params={"former": 0}).json()
    expected = msgspec.to_builtins(difference_summary(catalog.difference(0, newest)))
    assert (shown["former"], shown["later"]) == (0, newest)
    assert shown["entries"] == json.loads(json.dumps(expected))
    [stone] = shown["entries"]["tombstones_added"]
    assert (stone["reason"], stone["events"]) == ("asked for", 1)
    back = client.get("timeline/main/difference", params={"former": newest, "later": 0}).json()
    assert back["entries"]["tombstones_removed"] == [stone]
    assert client.get("timeline/main/difference", params={"former": "99"}).status_code == 404
    assert client.get("timeline/main/difference", params={"former": "somewhen"}).status_code == 400
    assert client.get("timeline/none/difference", params={"former": 0}).status_code == 404
    assert client.get("timeline/main/difference", params={"former": "now"}).json()["entries"]["added"] == []


@pytest.mark.slow
def test_two_workers_answer_for_each_other_s_jobs_and_send_each_flowfile_once(repository: Repository) -> None:
    root = repository.settings.root
    (root / "custody.toml").write_text("[repository]\nwriter_slots = 3\n")
    with served(root, "--workers", "2", "--door", "api", "--quiet") as at:
        api = f"{at.url}{PREFIX}"
        jobs: dict[str, Any] = {}
        # Each request has a connection of its own: either worker may get it.
        while len({job["owner"] for job in jobs.values()}) < 2:
            job = httpx.post(f"{api}/replay-plans", json={"query": "component_id:dag.sort"}, timeout=60).json()
            jobs[job["id"]] = job
            assert len(jobs) < 200
        for job_id in jobs:
            for _ in range(4):
                seen = httpx.get(f"{api}/jobs/{job_id}", params={"wait": 10}, timeout=60).json()
                assert (seen["state"], seen["result"]["events"]) == ("succeeded", ORDERS), seen
        with ThreadPoolExecutor(8) as pool:
            runs = f"{api}/{seen['result']['href']}/runs"
            answers = list(
                pool.map(lambda _: httpx.post(runs, json={}, params={"wait": 10}, timeout=60).json(), range(8))
            )
        assert sum((job["result"] or {}).get("replayed", 0) for job in answers) == ORDERS
        assert {job["problem"]["kind"] for job in answers if job["problem"]} <= {"conflict", "locked"}
        assert len({job["owner"] for job in answers}) == 2
        assert waiting(repository) == ORDERS
        workers = psutil.Process(at.process.pid).children()
        for worker in workers:
            worker.kill()
        # Restarted workers know what became of every job.
        deadline = time.monotonic() + 60
        while True:
            try:
                states = {one["state"] for one in httpx.get(f"{api}/jobs", timeout=60).json()["items"]}
                break
            except httpx.TransportError:
                assert time.monotonic() < deadline
                time.sleep(0.2)
        assert states <= {"succeeded", "failed"}
