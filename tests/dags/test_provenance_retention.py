"""The DAG of retention as Airflow reads it: the plan first, then the library's steps in the library's order."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from custody.retention import RETENTION_STEPS
from custody.spark.environment import job_of

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"
TASKS = [name.removeprefix("retention_") for name in RETENTION_STEPS]


def read(home: Path) -> Any:
    # Set before the first import of Airflow, which reads it once.
    os.environ.setdefault("AIRFLOW_HOME", str(home))
    from airflow.dag_processing.dagbag import DagBag

    found = DagBag(DAGS)
    assert found.import_errors == {}
    return found.dags["provenance_retention"]


@pytest.fixture(scope="module")
def dag(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return read(tmp_path_factory.mktemp("airflow"))


def test_the_plan_comes_first_and_the_steps_follow_in_the_library_s_order(dag: Any) -> None:
    order = [TASKS[0], "wanted", *TASKS[1:]]
    assert [task.task_id for task in dag.topological_sort()] == order
    for first, second in pairwise(order):
        assert dag.get_task(first).downstream_task_ids == {second}


def test_every_step_is_a_spark_submit_of_its_own_job(dag: Any) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    for name in TASKS:
        task = dag.get_task(name)
        assert isinstance(task, SparkSubmitOperator)
        step = f"retention_{name}"
        assert (task.application, job_of(step)) == ("retention.py", ("retention.py", [step]))
        assert (DAGS.parent / "spark_jobs" / task.application).is_file()


def test_the_dag_is_documented_tagged_and_runs_one_pass_at_a_time(dag: Any) -> None:
    for task_id in dag.task_ids:
        assert f"`{task_id}`" in dag.doc_md
    assert "custody" in dag.tags
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)


def test_the_trigger_form_asks_whether_only_a_plan_is_wanted(dag: Any) -> None:
    assert dag.params.get_param("plan_only").schema["type"] == "boolean"
    wanted = dag.get_task("wanted").python_callable
    assert (wanted("True"), wanted("False")) == (False, True)


@pytest.mark.parametrize(("value", "expected"), [(None, "0 * * * *"), ("", None), ("*/10 * * * *", "*/10 * * * *")])
def test_the_deployment_decides_the_schedule(
    value: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CUSTODY_RETENTION_SCHEDULE", raising=False)
    if value is not None:
        monkeypatch.setenv("CUSTODY_RETENTION_SCHEDULE", value)
    timetable = read(tmp_path).timetable
    assert getattr(timetable, "expression", None) == expected
