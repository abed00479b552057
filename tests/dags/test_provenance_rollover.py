"""The DAG as Airflow reads it: importable, documented, with the library's steps in the library's order."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from custody.recovery import STEPS

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="module")
def bag(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("airflow")
    # Set before the first import of Airflow, which reads it once.
    os.environ.setdefault("AIRFLOW_HOME", str(home))
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(DAGS)


@pytest.fixture(scope="module")
def dag(bag: Any) -> Any:
    return bag.dags["provenance_rollover"]


def test_no_dag_file_fails_to_import(bag: Any) -> None:
    assert bag.import_errors == {}
    assert set(bag.dags) == {path.stem for path in DAGS.glob("*.py")}


def test_the_sensor_comes_first_and_the_steps_follow_in_the_library_s_order(dag: Any) -> None:
    order = ["wait_for_journals", "wait_for_leftovers", *STEPS]
    assert [task.task_id for task in dag.topological_sort()] == order
    for first, second in pairwise(order):
        assert second in dag.get_task(first).downstream_task_ids
    assert dag.get_task("wait_for_journals").downstream_task_ids == {"wait_for_leftovers", "rollover"}


def test_nothing_left_over_skips_recovery_alone_and_nothing_to_do_skips_all(dag: Any) -> None:
    rules = {task.task_id: task.trigger_rule.value for task in dag.tasks}
    assert rules.pop("rollover") == "none_failed_min_one_success"
    assert dag.get_task("rollover").upstream_task_ids == {"wait_for_journals", "recover"}
    assert set(rules.values()) == {"all_success"}


def test_every_step_is_a_spark_submit_of_its_own_job(dag: Any) -> None:
    from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

    for step in STEPS:
        task = dag.get_task(step)
        assert isinstance(task, SparkSubmitOperator)
        assert task.application == f"{step}.py"
        assert (DAGS.parent / "spark_jobs" / f"{step}.py").is_file()


def test_the_dag_is_documented_tagged_and_runs_one_pass_at_a_time(dag: Any) -> None:
    assert dag.doc_md is not None
    for task_id in dag.task_ids:
        assert f"`{task_id}`" in dag.doc_md
    assert "custody" in dag.tags
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)


def test_the_trigger_form_has_typed_bounded_params(dag: Any) -> None:
    schema = dag.params.get_param("wait_seconds").schema
    assert (schema["type"], schema["minimum"], schema["maximum"]) == ("integer", 0, 3600)


@pytest.mark.parametrize(("value", "expected"), [(None, "* * * * *"), ("", None), ("0 * * * *", "0 * * * *")])
def test_the_deployment_decides_the_schedule(
    value: str | None, expected: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from custody_airflow.environment import rollover_schedule

    monkeypatch.delenv("CUSTODY_ROLLOVER_SCHEDULE", raising=False)
    if value is not None:
        monkeypatch.setenv("CUSTODY_ROLLOVER_SCHEDULE", value)
    assert rollover_schedule() == expected


def test_a_deployment_without_a_repository_is_told_what_to_set(monkeypatch: pytest.MonkeyPatch) -> None:
    from custody.errors import ConfigurationError
    from custody_airflow.environment import repository_folder

    monkeypatch.delenv("CUSTODY_REPOSITORY", raising=False)
    with pytest.raises(ConfigurationError, match="CUSTODY_REPOSITORY"):
        repository_folder()
