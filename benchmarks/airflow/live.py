"""Measurements in a running Airflow: its cost when there is nothing to do, and how far search lags behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.airflow.cost import percentile, session_cpu, session_cpu_by_process
from benchmarks.environment import ROOT
from custody.recovery import STEPS
from custody.repository import Repository
from custody_local.airflow import LocalAirflow, find_running
from custody_local.airflow_api import AirflowClient
from custody_local.processes import ProcessId
from tests.support import append, sample

DAG_ID = "provenance_rollover"
IDLE_SECONDS = 60.0  # whole minutes, so that each has one run of such a schedule
SETTLE_SECONDS = 30
SKIPPED_RUNS = 6
STARTS = {
    "nothing starts runs": {"CUSTODY_ROLLOVER_SCHEDULE": ""},
    "the journals are watched every 2 s": {"CUSTODY_ROLLOVER_SCHEDULE": "", "CUSTODY_ROLLOVER_WATCH": "2"},
    "a schedule starts a run each minute": {"CUSTODY_ROLLOVER_SCHEDULE": "* * * * *"},
}
PLACES: dict[str, dict[str, str]] = {
    "units in the driver": {},
    "a Spark session each": {"CUSTODY__SPARK__DRIVER_BYTES_MAX": "0"},
}
_LOOK_SECONDS = 0.5
# Appends batches at a steady pace until its input ends; prints each batch's last id and when it was acknowledged.
_PRODUCER = """
import sys, threading, time
from pathlib import Path
from custody.repository import Repository
from tests.support import sample
repository, batch, pause = Repository.open(Path(sys.argv[1])), int(sys.argv[2]), float(sys.argv[3])
events = sample(batch * 20)
ended = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
with repository.writer() as writer:
    number = 0
    while not ended.wait(pause):
        at = number * batch % len(events)
        ids = writer.append(events[at : at + batch])
        print(ids.stop - 1, time.time(), flush=True)
        number += 1
"""


@contextmanager
def rollover_airflow(settings: Mapping[str, str]) -> Iterator[tuple[LocalAirflow, AirflowClient, Repository]]:
    """A local Airflow over a new repository, in which only the rollover runs."""
    with tempfile.TemporaryDirectory() as folder:
        repository = Repository.create(Path(folder) / "repository")
        airflow = LocalAirflow(
            ROOT, home=Path(folder) / "airflow", repository=repository.settings.root, settings=settings
        )
        with airflow, airflow.client() as client:
            client.wait_for_dag(DAG_ID)
            yield airflow, client, repository


class Idle(NamedTuple):
    """What an Airflow costs that has nothing to do, by what starts its runs."""

    minute_cpu: dict[str, float]
    """CPU seconds of a minute."""
    minute_parts: dict[str, dict[str, float]]
    """The same by component."""
    run_cpu: float
    """CPU seconds of a run that its sensor skips, on top of that."""
    run_wall: float
    """That run's seconds on the clock."""


def idle() -> Idle:
    """Let Airflow do nothing, then let runs be skipped by their sensor, one after the other."""
    minutes: dict[str, float] = {}
    parts: dict[str, dict[str, float]] = {}
    for name, settings in STARTS.items():
        with rollover_airflow(settings) as (airflow, client, _):
            running = find_running(airflow.home)
            assert running is not None
            client.unpause(DAG_ID)
            time.sleep(SETTLE_SECONDS)  # what comes after a start is not what is measured
            parts[name] = _minute(running.process)
            minutes[name] = sum(parts[name].values())
            if not minutes.keys() - {name}:
                run_cpu, run_wall = _skipped_run(running.process, client, minutes[name] / IDLE_SECONDS)
    return Idle(minutes, parts, run_cpu, run_wall)


def _minute(leader: ProcessId) -> dict[str, float]:
    """CPU seconds of a minute by component."""
    before = session_cpu_by_process(leader)
    time.sleep(IDLE_SECONDS)
    after = session_cpu_by_process(leader)
    return {name: seconds - before.get(name, 0.0) for name, seconds in sorted(after.items())}


class PassCost(NamedTuple):
    """What one run of the DAG costs."""

    cpu: float
    """CPU seconds, without what Airflow takes in as many seconds in which it does nothing."""
    wall: float
    """From the trigger until the run has ended."""
    parts: dict[str, float]
    """CPU seconds by component of Airflow, nothing subtracted; Java and Python of a task are in its worker's."""
    steps: dict[str, tuple[float, float, float]]
    """By step the seconds of its task, of its start-up and of its work."""


def passes(events: int) -> dict[str, PassCost]:
    """Let the DAG take events to the live repository, in drivers alone and with a Spark session for each step."""
    costs = {}
    for name, settings in PLACES.items():
        with rollover_airflow({"CUSTODY_ROLLOVER_SCHEDULE": "", **settings}) as (airflow, client, repository):
            running = find_running(airflow.home)
            assert running is not None
            client.unpause(DAG_ID)
            time.sleep(SETTLE_SECONDS)
            alone = sum(_minute(running.process).values()) / IDLE_SECONDS
            append(repository, sample(events))
            before, started = session_cpu_by_process(running.process), time.monotonic()
            run_id = client.trigger(DAG_ID)
            run = client.wait_for_run(DAG_ID, run_id, timeout_s=600)
            wall = time.monotonic() - started
            time.sleep(2)  # until the last process was collected by its parent
            seconds, after = time.monotonic() - started, session_cpu_by_process(running.process)
            states = {task.task_id: task.state for task in client.task_instances(DAG_ID, run_id)}
            assert run.state == "success", states
            assert repository.search("", limit=1).total == events
            parts = {part: after[part] - before.get(part, 0.0) for part in sorted(after)}
            cpu = sum(parts.values()) - alone * seconds
            costs[name] = PassCost(cpu, wall, parts, _steps(client, [run_id]))
    return costs


def _skipped_run(leader: ProcessId, client: AirflowClient, alone: float) -> tuple[float, float]:
    """Return CPU seconds and seconds of a run that is skipped; `alone` is what a second costs without."""
    before, started, walls = session_cpu(leader), time.monotonic(), []
    for _ in range(SKIPPED_RUNS):
        begun = time.monotonic()
        run_id = client.trigger(DAG_ID)
        client.wait_for_run(DAG_ID, run_id)
        walls.append(time.monotonic() - begun)
        states = {task.state for task in client.task_instances(DAG_ID, run_id)}
        assert states == {"skipped"}
    time.sleep(2)  # until the last process was collected by its parent
    cpu = session_cpu(leader) - before - alone * (time.monotonic() - started)
    return cpu / SKIPPED_RUNS, median(walls)


class Lag(NamedTuple):
    """How long events were acknowledged until they were live and indexed, in seconds; and what was written."""

    p50: float
    p95: float
    longest: float
    events: int
    runs: int
    steps: dict[str, tuple[float, float, float]]
    """By step the medians of the task's seconds, of its start-up and of its work."""


def lag(minutes: float, batch: int, pause: float) -> Lag:
    """Let a producer write all the time while the rollover runs each minute; return the lag of every batch."""
    acknowledged: list[tuple[int, float]] = []
    live: list[tuple[int, float]] = []
    with rollover_airflow({"CUSTODY_ROLLOVER_SCHEDULE": "* * * * *"}) as (_, client, repository):
        path = os.pathsep.join([str(ROOT), str(ROOT / "include")])
        with subprocess.Popen(
            [sys.executable, "-c", _PRODUCER, str(repository.settings.root), str(batch), str(pause)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
            text=True,
        ) as producer:
            assert producer.stdout is not None
            assert producer.stdin is not None
            output = producer.stdout
            reading = threading.Thread(target=lambda: acknowledged.extend(map(_batch, output)))
            reading.start()
            client.unpause(DAG_ID)
            ends = time.monotonic() + minutes * 60
            while time.monotonic() < ends:
                _look(repository, live)
            producer.stdin.close()
            reading.join()
        _wait_until_live(repository, live, acknowledged[-1][0])
        client.pause(DAG_ID)
        waits = _lags(acknowledged, live)
        runs = [run for run in client.runs(DAG_ID) if run.state == "success"]
        steps = _steps(client, [run.run_id for run in runs])
        total = repository.search("", limit=1).total
    assert total == acknowledged[-1][0] + 1
    return Lag(percentile(waits, 0.5), percentile(waits, 0.95), max(waits), total, len(runs), steps)


def _batch(line: str) -> tuple[int, float]:
    last, moment = line.split()
    return int(last), float(moment)


def _look(repository: Repository, live: list[tuple[int, float]]) -> None:
    """Write down when the catalog came to list more events; a live log's shard is live with it."""
    last = repository.workspace().catalog.load().next_event_id - 1
    if last >= 0 and (not live or last > live[-1][0]):
        live.append((last, time.time()))
    time.sleep(_LOOK_SECONDS)


def _wait_until_live(repository: Repository, live: list[tuple[int, float]], last: int, seconds: float = 900) -> None:
    deadline = time.monotonic() + seconds
    while not live or live[-1][0] < last:
        assert time.monotonic() < deadline, "the last events did not become live in time"
        _look(repository, live)


def _lags(acknowledged: list[tuple[int, float]], live: list[tuple[int, float]]) -> list[float]:
    """The lag of each batch: until the first look at which its last event was live."""
    waits, at = [], 0
    for last, moment in acknowledged:
        while live[at][0] < last:
            at += 1
        waits.append(live[at][1] - moment)
    return waits


def _steps(client: AirflowClient, run_ids: list[str]) -> dict[str, tuple[float, float, float]]:
    found: dict[str, list[tuple[float, float, float]]] = {step: [] for step in STEPS}
    for run_id in run_ids:
        for task in client.task_instances(DAG_ID, run_id):
            if task.task_id in found and task.state == "success" and task.duration_s is not None:
                report = client.xcom(DAG_ID, run_id, task.task_id)
                assert isinstance(report, dict)
                found[task.task_id].append((task.duration_s, report["startup_seconds"], report["seconds"]))
    return {
        step: (median(one[0] for one in times), median(one[1] for one in times), median(one[2] for one in times))
        for step, times in found.items()
        if times
    }
