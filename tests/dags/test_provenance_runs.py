"""The DAG of Airflow's own runs as Airflow reads it, and its tasks where nothing is set up."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from custody.client import Spool
from custody.repository import Repository
from tests.unit.airflow_runs.airflow_server import PASSWORD, Airflow, serving

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")


def test_it_delivers_then_reconciles_and_has_a_schedule_only_where_runs_are_kept(
    load_dag: Callable[..., Any], tmp_path: Path
) -> None:
    dag = load_dag("provenance_runs")
    assert [task.task_id for task in dag.topological_sort()] == ["deliver", "reconcile"]
    # Where another process delivers the spool, what was lost is looked for all the same.
    assert dag.get_task("reconcile").trigger_rule == "none_failed"
    assert dag.schedule is None
    kept = load_dag("provenance_runs", CUSTODY_RUN_SPOOL=str(tmp_path))
    assert kept.schedule == "*/10 * * * *"
    assert load_dag("provenance_runs", CUSTODY_RUNS_SCHEDULE="").schedule is None


def test_tasks_are_skipped_where_nothing_is_set_up_and_say_what_to_set(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from custody_airflow.runs import DeliverRunsOperator, ReconcileRunsOperator

    deliver, reconcile = DeliverRunsOperator(task_id="deliver"), ReconcileRunsOperator(task_id="reconcile")
    for task in (deliver, reconcile):
        with pytest.raises(AirflowSkipException, match="CUSTODY_RUN_SPOOL"):
            task.execute({})
    monkeypatch.setenv("CUSTODY_RUN_SPOOL", str(tmp_path / "runs"))
    with pytest.raises(AirflowSkipException, match="no event of a run was kept yet"):
        deliver.execute({})
    monkeypatch.delenv("AIRFLOW_CONN_CUSTODY_AIRFLOW_API", raising=False)
    with pytest.raises(AirflowSkipException, match="custody_airflow_api"):
        reconcile.execute({})


def test_tasks_deliver_and_reconcile_with_the_connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from airflow.models.connection import Connection

    from custody_airflow.runs import DeliverRunsOperator, ReconcileRunsOperator

    airflow = Airflow()
    airflow.add_try("sales", "run", "report", 10)
    Repository.create(tmp_path / "repository")
    with Spool(tmp_path / "runs", "airflow"):
        pass
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(tmp_path / "repository"))
    monkeypatch.setenv("CUSTODY_RUN_SPOOL", str(tmp_path / "runs"))
    with serving(airflow) as url:
        scheme, host, port = url.replace("//", "").split(":")
        # A host with its scheme, and one without: both ways to write an address into a connection.
        for where in ({"host": f"{scheme}://{host}"}, {"host": host}):
            known = Connection(
                "custody_airflow_api", "http", login="custody", password=PASSWORD, port=int(port), **where
            )
            monkeypatch.setenv("AIRFLOW_CONN_CUSTODY_AIRFLOW_API", known.as_json())
            report = ReconcileRunsOperator(task_id="reconcile", since="2026-03-02T11:00:00Z").execute({})
            assert (report["tries"], report["stored"] + report["repeated"]) == (1, 2)
    assert DeliverRunsOperator(task_id="deliver").execute({})["stored"] == 0
    assert len(list(Repository.open(tmp_path / "repository").events(0, 10))) == 2
