"""The DAG as Airflow reads it: documented, daily, with the library's steps in the library's order."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from custody.maintenance.maintenance_steps import MAINTENANCE_STEPS
from custody.spark.environment import job_of

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="module")
def dag(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Set before the first import of Airflow, which reads it once.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(DAGS).dags["provenance_maintenance"]


def test_the_steps_follow_in_the_library_s_order_and_one_that_fails_stops_no_other(dag: Any) -> None:
    steps = [task.task_id for task in dag.topological_sort() if task.task_id != "handed_over"]
    assert steps == list(MAINTENANCE_STEPS)
    for first, second in pairwise(MAINTENANCE_STEPS):
        assert dag.get_task(first).downstream_task_ids == {second}
        assert dag.get_task(second).trigger_rule == "all_done"


def test_every_step_is_a_spark_submit_of_its_own_job(dag: Any) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    for step in MAINTENANCE_STEPS:
        task = dag.get_task(step)
        assert isinstance(task, SparkSubmitOperator)
        assert (task.application, job_of(step)) == ("maintenance.py", ("maintenance.py", [step]))
        assert (DAGS.parent / "spark_jobs" / task.application).is_file()


def test_the_dag_is_documented_tagged_daily_and_runs_one_pass_at_a_time(dag: Any) -> None:
    assert dag.doc_md is not None
    for task_id in dag.task_ids:
        assert f"`{task_id}`" in dag.doc_md
    assert "custody" in dag.tags
    assert dag.schedule == "40 * * * *"
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)
