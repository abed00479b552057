"""custody's pages in a real Airflow: in its frame by its user's session, in the tab of a run, alone, and refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from custody.airflow_runs import RunFacts, end_events, start_events
from custody.flow import Component
from custody.model import Event
from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from custody_local.settings import USER, passwords_file
from tests.airflow import browser
from tests.support import append, run_steps, sample

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
IMAGES = PROJECT / "docs" / "images"
EVENTS = 1000
TASK = "deliver"
MAY = {
    "viewer": {"read"},
    "user": {"read", "replay"},
    "op": {"read", "content", "append", "manage", "replay"},
}
"""What a user of each of Airflow's roles may do; one user a role, of its name."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    root = tmp_path_factory.mktemp("pages") / "repository"
    Repository.create(root)
    opened = Repository.open(root)
    append(opened, sample(EVENTS))
    run_steps(opened.settings)
    return opened


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("airflow")


@pytest.fixture(scope="module")
def airflow(repository: Repository, home: Path) -> Iterator[LocalAirflow]:
    browser.need_pages()
    schedules = dict.fromkeys(
        (f"CUSTODY_{name}_SCHEDULE" for name in ("ROLLOVER", "INGEST", "RETENTION", "MAINTENANCE")), ""
    )
    users = ",".join([f"{USER}:admin", *(f"{role}:{role}" for role in MAY)])
    own = {
        "CUSTODY_SERVE_MOUNT": "/custody",
        "CUSTODY__SERVE__DOORS": '["pages"]',
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": users,
    }
    root = repository.settings.root
    with LocalAirflow(PROJECT, home=home, repository=root, settings={**schedules, **own}) as running:
        yield running


@pytest.fixture
def page(airflow: LocalAirflow) -> Iterator[Any]:
    """Airflow's page, logged in through its form."""
    with browser.page() as page:
        browser.log_in(page, airflow.url, airflow.user, airflow.password)
        yield page


def test_a_user_of_airflow_searches_in_its_frame_and_alone(airflow: LocalAirflow, page: Any) -> None:
    page.goto(f"{airflow.url}/plugin/provenance")
    frame = page.frame_locator("iframe")
    frame.get_by_role("status").get_by_text(f"{EVENTS:,} events").wait_for()
    page.wait_for_timeout(1000)
    page.screenshot(path=IMAGES / "pages-airflow.png")
    frame.get_by_role("rowheader").get_by_role("link").first.click()
    frame.get_by_role("heading", name="What happened").wait_for()
    frame.get_by_role("main").get_by_role("link", name="Lineage").click()
    frame.locator(".react-flow__node").first.wait_for()
    page.goto(f"{airflow.url}/custody/ui/status.html")
    page.get_by_role("heading", name="Writers").wait_for()


def test_the_tab_of_a_run_shows_what_it_read_and_wrote(
    airflow: LocalAirflow, repository: Repository, page: Any
) -> None:
    with airflow.client() as client:
        client.wait_for_dag("provenance_export")
        run_id = client.trigger("provenance_export")
    _tell_of(repository, "provenance_export", run_id)
    page.goto(f"{airflow.url}/dags/provenance_export/runs/{run_id}/plugin/provenance-run")
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name=f"provenance_export, run {run_id}").wait_for()
    frame.get_by_role("link", name="hdfs://lake/orders").wait_for()
    frame.get_by_role("link", name="hdfs://landing/orders").wait_for()


def test_the_tab_of_a_task_shows_what_this_task_read_and_wrote(
    airflow: LocalAirflow, repository: Repository, page: Any
) -> None:
    dag_id = "provenance_export"
    with airflow.client() as client:
        client.wait_for_dag(dag_id)
        run_id = client.trigger(dag_id)
    _tell_of(repository, dag_id, run_id, TASK)
    page.goto(f"{airflow.url}/dags/{dag_id}/runs/{run_id}/tasks/{TASK}/plugin/provenance-task")
    frame = page.frame_locator("iframe")
    frame.get_by_role("heading", name=f"{dag_id}, run {run_id}").wait_for()
    frame.get_by_text(f"Task {TASK}").wait_for()
    frame.get_by_role("link", name="hdfs://lake/orders").wait_for()


@pytest.mark.parametrize("role", MAY)
def test_a_user_may_what_airflow_allows(airflow: LocalAirflow, home: Path, role: str) -> None:
    passwords = json.loads(passwords_file(home).read_text())
    passwords_file(home).write_text(json.dumps({**passwords, role: "of-this-test"}))
    with httpx.Client(base_url=airflow.url, trust_env=False, timeout=60) as client:
        login = client.post("/auth/token", json={"username": role, "password": "of-this-test"})
        headers = {"Authorization": f"Bearer {login.json()['access_token']}"}
        assert set(client.get("/custody/api/v1/", headers=headers).json()["can"]) == MAY[role]
        for path, body, scope in (
            ("replay-plans", {"query": ""}, "replay"),
            ("quarantine/resubmissions", {"everything": True}, "manage"),
        ):
            status = client.post(f"/custody/api/v1/{path}", json=body, headers=headers).status_code
            assert status == (202 if scope in MAY[role] else 403), (role, path)


def test_a_replay_is_begun_by_a_user_of_airflow(airflow: LocalAirflow, repository: Repository, page: Any) -> None:
    load, sort = Component(id="dag.load", type="Load"), Component(id="dag.sort", type="Sort")
    with repository.flowfiles(wait_seconds=60) as flow:
        flow.connect("orders")
        with flow.session(load) as session:
            order = session.create({"filename": "order"})
            session.transfer(order, "orders")
        with flow.session(sort) as session:
            taken = session.get("orders")
            assert taken is not None
            session.remove(taken)
    [one, *_] = repository.search("component_id:dag.sort").events
    page.goto(f"{airflow.url}/custody/ui/event.html?writer={one.writer}&event={one.event.event_id}")
    page.get_by_role("button", name="Make the plan").click()
    page.get_by_role("button", name="Send 1 FlowFile again").click()
    page.get_by_role("dialog").get_by_role("button", name="Send").click()
    page.get_by_role("status", name="What the run did").wait_for()
    [told] = repository.search("event_type:REPLAY").events
    assert told.event.details == f"Replay requested by {airflow.user}"


def _tell_of(repository: Repository, dag_id: str, run_id: str, task_id: str = "sort") -> None:
    """Store what the listener of runs would have told of a task that read one asset and wrote another one."""
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    before = RunFacts(
        deployment="airflow",
        dag_id=dag_id,
        run_id="earlier",
        run_after=moment,
        state="success",
        start=moment,
        end=moment,
        task_id="load",
        outlets=["hdfs://landing/orders"],
    )
    facts = replace(
        before,
        run_id=run_id,
        task_id=task_id,
        inlets=["hdfs://landing/orders"],
        outlets=["hdfs://lake/orders"],
    )
    documents = [one for each in (before, facts) for one in (*start_events(each), *end_events(each))]
    append(repository, [msgspec.convert(document, Event) for document in documents])


def test_strangers_and_other_sites_get_no_answer(airflow: LocalAirflow, page: Any) -> None:
    events = f"{airflow.url}/custody/api/v1/events"
    with httpx.Client(trust_env=False, timeout=60) as client:
        assert client.get(events).status_code == 401
        assert client.get(f"{airflow.url}/custody/ui/search.html").status_code == 200
        cookies = {cookie["name"]: cookie["value"] for cookie in page.context.cookies()}
        session = {"cookie": f"_token={cookies['_token']}"}
        assert client.get(events, headers=session).json()["total"] >= EVENTS
        for foreign in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
            order = client.post(
                f"{airflow.url}/custody/api/v1/quarantine/resubmissions",
                json={"everything": True},
                headers={**session, **foreign},
            )
            assert order.status_code in (401, 403), foreign
            asked = client.post(f"{events}/search", json={"query": ""}, headers={**session, **foreign})
            assert asked.status_code == 401, foreign
