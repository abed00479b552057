"""Airflow's page in a real browser, on PostgreSQL: the list, a run from the form, the grid turning green, a backfill.

The pictures of docs/airflow.md are made here.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient
from tests.airflow import browser
from tests.airflow.postgres import missing, postgres
from tests.airflow.test_backfill import EACH, FIRST, dropped
from tests.support import append, event

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
IMAGES = PROJECT / "docs" / "images"
IMAGE_BYTES_MAX = 300_000
DAGS = (
    "ngsi_to_hdfs",
    "provenance_ingest",
    "provenance_maintenance",
    "provenance_export",
    "provenance_replay",
    "provenance_retention",
    "provenance_rollover",
    "provenance_runs",
    "swh_provenance",
    "web_crawler",
)
HOURS = 3
RUN_SECONDS_MAX = 1200


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with files in its landing folders, and events that wait for a rollover."""
    repository = dropped(tmp_path_factory.mktemp("page") / "repository", HOURS)
    append(repository, [event(number, source_node="elsewhere") for number in range(EACH)])
    return repository


@pytest.fixture(scope="module")
def airflow(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    if reason := missing():
        pytest.skip(reason)
    schedules = dict.fromkeys((f"CUSTODY_{name}_SCHEDULE" for name in ("ROLLOVER", "RETENTION", "MAINTENANCE")), "")
    home = tmp_path_factory.mktemp("airflow")
    with (
        postgres() as database,
        LocalAirflow(
            PROJECT, home=home, repository=repository.settings.root, database=database, settings=schedules
        ) as running,
    ):
        yield running


@pytest.fixture
def client(airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with airflow.client() as client:
        for dag_id in DAGS:
            client.wait_for_dag(dag_id)
        yield client


@pytest.fixture
def page(airflow: LocalAirflow, client: AirflowClient) -> Iterator[Any]:
    """Airflow's page, logged in through its form."""
    if reason := browser.missing():
        pytest.skip(reason)
    with browser.page(airflow.url, timeout_ms=120_000) as page:
        browser.log_in(page, airflow.url, airflow.user, airflow.password)
        yield page


def picture(page: Any, name: str) -> None:
    IMAGES.mkdir(exist_ok=True)
    path = IMAGES / f"{name}.png"
    # Without the pointer's hints and the notices of what was just done.
    page.mouse.move(640, 790)
    page.wait_for_timeout(1000)
    page.screenshot(path=path)
    assert path.stat().st_size < IMAGE_BYTES_MAX


def open_form(page: Any, airflow: LocalAirflow, dag_id: str) -> Any:
    page.goto(f"{airflow.url}/dags/{dag_id}")
    page.get_by_test_id("trigger-dag-button").first.click()
    form = page.get_by_role("dialog").filter(has_text=dag_id)
    form.get_by_test_id("trigger-dag-submit").wait_for()
    return form


COLOUR = """cell => {
    const badge = cell.querySelector('[data-testid=task-state-badge]');
    const context = document.createElement('canvas').getContext('2d');
    context.fillStyle = badge ? getComputedStyle(badge).backgroundColor : 'white';
    context.fillRect(0, 0, 1, 1);
    return [...context.getImageData(0, 0, 1, 1).data];
}"""
"""A task's colour as red, green and blue, in whatever terms the page names it."""


def is_green(cell: Any) -> bool:
    red, green, blue, _ = cell.evaluate(COLOUR)
    return int(green) > 2 * max(int(red), int(blue))


def wait_until_green(page: Any, run_id: str, tasks: list[str]) -> None:
    """Wait until the cells of these tasks are green; the page itself looks anew only for the newest run's sake."""
    deadline = time.monotonic() + RUN_SECONDS_MAX
    cells = [page.get_by_test_id(f"grid-{run_id}-{task}") for task in tasks]
    while True:
        page.reload()
        for cell in cells:
            cell.wait_for()
        if all(is_green(cell) for cell in cells):
            return
        assert time.monotonic() < deadline, f"{run_id}: {[is_green(cell) for cell in cells]} of {tasks}"
        page.wait_for_timeout(3000)


def stored(repository: Repository) -> int:
    return sum(writer.events_live + writer.events_waiting for writer in repository.status().writers)


def test_a_backfill_by_the_route_of_the_page_is_taken_at_once_on_postgresql(
    airflow: LocalAirflow, client: AirflowClient, repository: Repository
) -> None:
    before = stored(repository)
    client.unpause("provenance_ingest")
    login = {"username": airflow.user, "password": airflow.password}
    dates = {"from_date": FIRST.isoformat(), "to_date": FIRST.isoformat()}
    body = {"dag_id": "provenance_ingest", "max_active_runs": 2, "dag_run_conf": {}, **dates}
    # Not by the client of the tests, which asks again where SQLite was locked.
    with httpx.Client(base_url=airflow.url, timeout=60, trust_env=False) as http:
        token = http.post("/auth/token", json=login).json()["access_token"]
        answer = http.post("/api/v2/backfills", json=body, headers={"authorization": f"Bearer {token}"})
    assert answer.status_code == httpx.codes.OK, answer.text
    client.wait_for_backfill(answer.json()["id"], timeout_s=RUN_SECONDS_MAX)
    assert client.count_runs("provenance_ingest", state="failed") == 0
    assert stored(repository) == before + EACH
    # The database is the server's, not a file of this Airflow.
    assert not (airflow.home / "airflow.db").exists()


def test_the_list_shows_every_dag_and_no_import_error(airflow: LocalAirflow, client: AirflowClient, page: Any) -> None:
    assert client.import_errors() == {}
    page.get_by_text("Manage Pools").wait_for()
    assert page.get_by_text("Dag Import Error").count() == 0
    page.goto(f"{airflow.url}/dags")
    for dag_id in DAGS:
        page.get_by_role("link", name=dag_id).first.wait_for()
    assert page.get_by_text(f"{len(DAGS)} Dags").count() == 1
    picture(page, "airflow-dags")


def test_a_backfill_is_started_from_the_page_and_ends_green(
    airflow: LocalAirflow, client: AirflowClient, repository: Repository, page: Any
) -> None:
    before = stored(repository)
    form = open_form(page, airflow, "provenance_ingest")
    form.get_by_text("Backfill", exact=True).click()
    for hour in (1, 2):
        moment = FIRST + timedelta(hours=hour)
        form.get_by_text("Select date and time").first.click()
        calendar = page.locator("[data-scope=popover][data-part=content]:visible")
        calendar.get_by_placeholder("YYYY/MM/DD").fill(f"{moment:%Y/%m/%d}")
        calendar.get_by_placeholder("HH:mm").fill(f"{moment:%H:%M}")
        calendar.get_by_placeholder("HH:mm").press("Enter")
        page.keyboard.press("Escape")
        calendar.wait_for(state="hidden")
    form.locator("input[name=max_active_runs]").fill("2")
    form.get_by_text("2 runs will be triggered.").wait_for()
    picture(page, "airflow-backfill")
    form.get_by_role("button", name="Run Backfill").click()
    form.wait_for(state="hidden")
    for hour in (2, 3):  # runs are named by the end of their hour
        run_id = f"backfill__{(FIRST + timedelta(hours=hour)).isoformat()}"
        wait_until_green(page, run_id, ["wait_for_files", "ingest"])
    client.wait_for_backfill(client.newest_backfill("provenance_ingest"), timeout_s=RUN_SECONDS_MAX)
    assert stored(repository) == before + 2 * EACH


def test_a_run_from_the_form_with_a_parameter_turns_the_grid_green(
    airflow: LocalAirflow, client: AirflowClient, repository: Repository, page: Any
) -> None:
    waiting = stored(repository)
    assert waiting > 0
    form = open_form(page, airflow, "provenance_rollover")
    form.get_by_role("spinbutton").fill("5")
    picture(page, "airflow-form")
    form.get_by_test_id("trigger-dag-submit").click()
    form.wait_for(state="hidden")
    [run] = client.wait_for_runs("provenance_rollover", 1, timeout_s=RUN_SECONDS_MAX)
    assert run.state == "success"
    assert client.params("provenance_rollover", run.run_id) == {"wait_seconds": 5, "take_over": False}
    steps = ["wait_for_journals", "rollover", "compress", "index", "commit", "checkpoint", "sweep"]
    wait_until_green(page, run.run_id, steps)
    picture(page, "airflow-grid")
    assert [writer.events_live for writer in repository.status().writers] == [waiting]
