"""custody's pages in a real Airflow: in its frame by its user's session, in the tab of a run, alone, and refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from custody.airflow_runs import RunFacts, end_events, start_events
from custody.model import Event
from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from custody_pages import build
from tests.airflow import browser
from tests.support import append, run_steps, sample

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
IMAGES = PROJECT / "docs" / "images"
EVENTS = 1000


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    root = tmp_path_factory.mktemp("pages") / "repository"
    Repository.create(root)
    opened = Repository.open(root)
    append(opened, sample(EVENTS))
    run_steps(opened.settings)
    return opened


@pytest.fixture(scope="module")
def airflow(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    if reason := browser.missing():
        pytest.skip(reason)
    try:
        build.build()
    except build.BuildError as error:
        pytest.skip(str(error))
    schedules = dict.fromkeys(
        (f"CUSTODY_{name}_SCHEDULE" for name in ("ROLLOVER", "INGEST", "RETENTION", "MAINTENANCE")), ""
    )
    own = {"CUSTODY_SERVE_MOUNT": "/custody", "CUSTODY__SERVE__DOORS": '["pages"]'}
    home = tmp_path_factory.mktemp("airflow")
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


def _tell_of(repository: Repository, dag_id: str, run_id: str) -> None:
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
        task_id="sort",
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
            asked = client.post(f"{events}/search", json={"query": ""}, headers={**session, **foreign})
            assert asked.status_code == 401, foreign
