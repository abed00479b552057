"""A build through the DAG `swh_provenance`, in an Airflow that is started for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from benchmarks.environment import ROOT
from benchmarks.swh.build import BUILD, Measured
from benchmarks.swh.watch import Watch
from custody.config import Settings
from custody.errors import NotFoundError
from custody.vfs import PosixFileSystem
from custody.workspace import read_report
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import TaskRun

DAG_ID = "swh_provenance"
_SECONDS_MAX = 48 * 3600.0


def run_dag(measured: Measured, settings: Settings, graph: Path, node_filter: str, environ: Mapping[str, str]) -> None:
    """Trigger one run and wait for its end; a step's seconds are those of its task.

    Raises:
        RuntimeError: the run failed.
    """
    folder = settings.root.parent
    airflow = LocalAirflow(
        ROOT, home=folder / "airflow", repository=settings.root, master="local[2]", environ=dict(environ)
    )
    with Watch(settings.root) as watch, airflow, airflow.client() as client:
        client.wait_for_dag(DAG_ID, timeout_s=900)
        client.unpause(DAG_ID)
        run_id = client.trigger(DAG_ID, {"graph": str(graph), "node_filter": node_filter, "build": BUILD})

        def add(tasks: list[TaskRun]) -> None:
            for task in tasks:
                if task.state == "success" and task.task_id not in measured.found["steps"]:
                    measured.add(
                        task.task_id,
                        round(task.duration_s or 0.0, 1),
                        watch,
                        folder / "events",
                        _report(settings, run_id, task.task_id),
                    )

        run = client.wait_for_run(DAG_ID, run_id, timeout_s=_SECONDS_MAX, progress=add)
        add(client.task_instances(DAG_ID, run_id))
    if run.state != "success":
        raise RuntimeError(f"run {run_id}: {run.state}; logs of its tasks are in {airflow.home}")


def _report(settings: Settings, run_id: str, step: str) -> Mapping[str, object] | None:
    try:
        report = read_report(PosixFileSystem(), settings.runs, run_id, step)
    except NotFoundError:
        return None
    report_values: Mapping[str, object] = msgspec.to_builtins(report)
    return report_values
