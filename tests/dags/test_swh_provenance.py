"""The DAG as Airflow reads it: documented, by hand, with the library's steps in the library's order."""

from __future__ import annotations

import os
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from custody.errors import ConfigurationError
from custody.spark.environment import job_of
from custody.swh.build import NODE_FILTERS, PUBLISH, STEPS, Build, BuildDescription
from custody.vfs import PosixFileSystem

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="module")
def dag(tmp_path_factory: pytest.TempPathFactory) -> Any:
    # Set before the first import of Airflow, which reads it once.
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(DAGS).dags["swh_provenance"]


def test_the_steps_follow_in_the_library_s_order_and_publishing_comes_last(dag: Any) -> None:
    steps = [*STEPS, PUBLISH]
    assert [task.task_id for task in dag.topological_sort()] == steps
    for first, second in pairwise(steps):
        assert dag.get_task(first).downstream_task_ids == {second}
        assert dag.get_task(second).trigger_rule == "all_success"


def test_every_step_is_a_spark_submit_of_its_own_job_with_the_run_s_params(dag: Any) -> None:
    from custody_airflow.operators import SparkStepOperator

    for step in (*STEPS, PUBLISH):
        task = dag.get_task(step)
        assert isinstance(task, SparkStepOperator)
        assert (task.application, job_of(step)) == ("swh.py", ("swh.py", [step]))
        assert (DAGS.parent / "spark_jobs" / task.application).is_file()
        assert task.arguments == dag.get_task(STEPS[0]).arguments
        assert [part for part in task.arguments if part.startswith("--")] == ["--graph", "--node-filter", "--build"]


def test_the_form_asks_for_what_the_library_takes(dag: Any, tmp_path: Path) -> None:
    assert dag.params.get_param("node_filter").schema["enum"] == list(NODE_FILTERS)
    assert "default" not in dag.params.get_param("graph").schema
    pattern = dag.params.get_param("build").schema["pattern"]
    description = BuildDescription(graph="/g", fingerprint="f", node_filter="all")
    for name in ("2026-03", "a", "scheduled__2026-03-01T10+00", "", ".a", "a/b", "-a", "x" * 101):
        if re.search(pattern, name):
            assert Build.begin(PosixFileSystem(), tmp_path, name, description).name == name
        else:
            with pytest.raises(ConfigurationError, match="expected 1 to 100 letters"):
                Build.begin(PosixFileSystem(), tmp_path, name, description)


def test_the_dag_is_documented_tagged_by_hand_and_runs_one_build_at_a_time(dag: Any) -> None:
    assert dag.doc_md is not None
    for task_id in dag.task_ids:
        assert f"`{task_id}`" in dag.doc_md
    assert "custody" in dag.tags
    assert dag.schedule is None
    assert dag.max_active_runs == 1
    assert dag.catchup is False
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)
