"""A run of the DAG `web_crawler` in Airflow's task runner: tasks are the components, the site is crawled once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from custody.examples.web_crawler import STEPS
from custody.repository import Repository
from tests.unit.examples.crawls import EVENTS, all_events, events_by_step, require_final_state

pytestmark = pytest.mark.airflow

PROJECT = Path(__file__).resolve().parents[2]
# Without scheduler and server: a database, the DAG file, and the task runner in one process.
RUN = """
import sys
from airflow.utils import db

db.initdb()
from airflow.dag_processing.dagbag import DagBag

run = DagBag(sys.argv[1]).dags["web_crawler"].test()
print("state:", run.state, run.run_id)
"""


@pytest.mark.in_parts(2)
def test_a_run_crawls_the_site_and_its_events_name_their_tasks_and_the_run(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(tmp_path / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(PROJECT / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(PROJECT / "plugins"),
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "include"), str(PROJECT / "plugins")]),
        "CUSTODY_REPOSITORY": str(repository.settings.root),
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", RUN, str(PROJECT / "dags" / "web_crawler.py")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout.splitlines()[-1].split()
    assert said[:2] == ["state:", "success"], done.stdout[-3000:] + done.stderr[-3000:]
    require_final_state(repository, tmp_path / "repository-crawled")

    step_of = {step.task_id: step.name for step in STEPS}
    counted = events_by_step(repository, lambda event: step_of[(event.component_name or "").rpartition(".")[2]])
    assert counted == EVENTS
    for event in all_events(repository):
        assert event.component_id == f"web_crawler.{event.component_name}"
        assert (event.component_type, event.process_group_name) == ("AirflowTask", "web_crawler")
        assert event.process_group_id == said[2]
    rounds = {(event.component_name or "").partition(".")[0] for event in all_events(repository)}
    assert {"round_1", "round_2", "round_3"} <= rounds
