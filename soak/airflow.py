"""The pipeline as it is deployed: an Airflow that runs the DAGs provenance_rollover and provenance_retention.

Every task is a spark-submit. A worker of Airflow that is killed leaves its Spark driver behind, and the scheduler
starts another try beside it once it misses the worker's heartbeat.
"""

from __future__ import annotations

import time
from pathlib import Path

from custody_local.airflow import LocalAirflow, find_running
from custody_local.airflow_api import AirflowClient, Run
from custody_local.components import STANDS_STILL
from custody_local.processes import ProcessId
from soak.pipeline import RETENTION, ROLLOVER, Pipeline, PipelineError, RunEnd, unrest
from soak.processes import DRIVER, WORKER, Target, airflow_workers, spark_drivers

PROJECT = Path(__file__).resolve().parents[1]
DAGS = {ROLLOVER: "provenance_rollover", RETENTION: "provenance_retention"}
SETTINGS = {
    "CUSTODY_ROLLOVER_SCHEDULE": "@continuous",
    "CUSTODY_RETENTION_SCHEDULE": "*/2 * * * *",
    # Otherwise a worker's end is noticed after five minutes.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
}
_REST_SECONDS = 1500.0
_TASK_SECONDS = 300.0
_POLL_SECONDS = 2.0
_UNDER_WAY = frozenset({"queued", "running", "restarting"})


class AirflowPipeline(Pipeline):
    """A local Airflow with a folder of its own."""

    name = "Airflow: provenance_rollover without a pause, provenance_retention every two minutes"

    def __init__(self, repository: Path, folder: Path) -> None:
        self._repository = repository
        self._airflow = LocalAirflow(
            PROJECT, home=folder / "airflow", repository=repository, master="local[1]", parallelism=3, settings=SETTINGS
        )
        self._client: AirflowClient | None = None
        self._monotonic_minus_clock = time.monotonic() - time.time()

    @property
    def client(self) -> AirflowClient:
        """The client of Airflow's REST API."""
        if self._client is None:
            raise PipelineError("Airflow is not running")
        return self._client

    def start(self) -> None:
        """Start Airflow and let both DAGs run."""
        self._airflow.start()
        self._client = self._airflow.client()
        for dag in DAGS.values():
            self.client.wait_for_dag(dag)
            self.client.unpause(dag)

    def targets(self, kind: str) -> list[Target]:
        """Return the drivers, or the workers that have a task."""
        running = find_running(self._airflow.home)
        if running is None:
            return []
        leader: ProcessId = running.process
        if kind == DRIVER:
            return spark_drivers(leader)
        return airflow_workers(leader) if kind == WORKER else []

    def rest(self, grace_seconds: float) -> None:
        """Let the DAGs go on by their schedules until nothing is left to do; then let no task begin any more."""
        deadline = time.monotonic() + _REST_SECONDS
        while True:
            while missing := unrest(self._repository):
                if time.monotonic() > deadline:
                    raise PipelineError(f"not at rest within {_REST_SECONDS:.0f} s: {missing}")
                time.sleep(_POLL_SECONDS)
            for dag in DAGS.values():
                self.client.pause(dag)  # no task of a paused DAG begins, also in a run that goes on
            self._wait_for_tasks()
            if not unrest(self._repository):
                return
            for dag in DAGS.values():
                self.client.unpause(dag)

    def restarts(self) -> int:
        """Return how often a killed worker took the lock of the executor's queue with it."""
        return (self._airflow.home / "logs" / "components" / "start.log").read_text().count(STANDS_STILL)

    def stop(self) -> None:
        """End Airflow and all that it started."""
        if self._client is not None:
            self._client.close()
        self._airflow.stop()

    def runs(self) -> list[RunEnd]:
        """Return the newest hundred runs of each DAG."""
        ends = [self._end(kind, run) for kind, dag in DAGS.items() for run in self.client.runs(dag) if run.has_ended]
        return sorted(ends, key=lambda run: run.at)

    def _wait_for_tasks(self) -> None:
        """Wait until no task runs."""
        deadline = time.monotonic() + _TASK_SECONDS
        while any(state in _UNDER_WAY for state in self._states()):
            if time.monotonic() > deadline:
                raise PipelineError(f"a task went on for {_TASK_SECONDS:.0f} s. See {self._airflow.home}/logs")
            time.sleep(1)

    def _states(self) -> set[str | None]:
        return {
            task.state
            for dag in DAGS.values()
            for run in self.client.runs(dag)
            if not run.has_ended
            for task in self.client.task_instances(dag, run.run_id)
        }

    def _end(self, kind: str, run: Run) -> RunEnd:
        tasks = self.client.task_instances(run.dag_id, run.run_id)
        done = [task for task in tasks if task.state != "skipped"]
        state = "skipped" if run.state == "success" and not done else run.state
        start = run.start.timestamp() if run.start else 0.0
        end = run.end.timestamp() if run.end else start
        return RunEnd(
            kind=kind,
            at=end + self._monotonic_minus_clock,
            state=state,
            retried=sum(task.try_number > 1 for task in done),
            recovered=any(task.task_id == "recover" and task.state == "success" for task in done),
            seconds=end - start,
        )
