"""The DAG of exports as Airflow reads it, and its job as spark-submit runs it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from custody.export.export_steps import EXPORT_STEPS
from custody.spark.environment import job_of

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DAGS = Path(__file__).resolve().parents[2] / "dags"


@pytest.fixture(scope="module")
def dag(tmp_path_factory: pytest.TempPathFactory) -> Any:
    os.environ.setdefault("AIRFLOW_HOME", str(tmp_path_factory.mktemp("airflow")))
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(DAGS)
    assert bag.import_errors == {}
    return bag.dags["provenance_export"]


def test_what_was_refused_is_sent_again_before_what_waits(dag: Any) -> None:
    assert [task.task_id for task in dag.topological_sort()] == ["resend", "deliver"]
    assert list(EXPORT_STEPS) == [f"export_{task.task_id}" for task in dag.topological_sort()]
    # A run that was not asked to send again skips that, and delivers.
    assert dag.get_task("deliver").trigger_rule == "none_failed"
    for name in EXPORT_STEPS:
        assert job_of(name) == ("export.py", [name])
    assert (DAGS.parent / "spark_jobs" / "export.py").is_file()


def test_the_form_takes_the_name_of_a_receiver_and_nothing_else(dag: Any) -> None:
    receiver = dag.params.get_param("receiver")
    assert receiver.resolve("marquez") == "marquez"
    for text in ("--take-over", "a b", "A", "../x", "$(reboot)", ""):
        with pytest.raises(Exception, match="does not match"):
            receiver.resolve(text)


def test_it_starts_when_events_became_live(dag: Any) -> None:
    assert [asset.name for asset in dag.schedule] == ["provenance_commits"]
