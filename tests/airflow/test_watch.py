"""Journals that are watched: sealed ones start a rollover at once, also after the triggerer was killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from custody.repository import Repository
from custody.rollover import read_mark
from custody.vfs import PosixFileSystem
from custody_local.airflow import LocalAirflow, find_running
from custody_local.processes import session_members
from custody_local.rest import RestClient, Run
from tests.support import append, event

pytestmark = pytest.mark.airflow

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_rollover"
# Beside the watch a schedule that does not come in the time of a test.
SETTINGS = {
    "CUSTODY_ROLLOVER_WATCH": "0.5",
    "CUSTODY_ROLLOVER_SCHEDULE": "0 0 1 1 *",
    # How soon tasks are noticed that a killed Airflow left behind.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
}
START_SECONDS_MAX = 60


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository.create(tmp_path_factory.mktemp("watched") / "repository")


@pytest.fixture(scope="module")
def airflow(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    with LocalAirflow(PROJECT, home=home, repository=repository.settings.root, settings=SETTINGS) as running:
        yield running


@contextmanager
def ready(airflow: LocalAirflow) -> Iterator[RestClient]:
    with airflow.client() as client:
        client.wait_for_dag(DAG_ID)
        client.unpause(DAG_ID)
        yield client


def sealed(repository: Repository, number: int) -> float:
    """Seal a group of one event; return when that was, in seconds since the epoch."""
    append(repository, [event(number)])
    return time.time()


def follow(client: RestClient, runs: int) -> Run:
    """Wait until there are so many events and runs, and return the newest."""
    found = client.wait_for_runs(DAG_ID, runs, timeout_s=600)
    assert len(found) == runs
    assert {run.kind for run in found} == {"asset_triggered"}
    return found[-1]


def told(client: RestClient) -> list[dict[str, int]]:
    """Return the newest group of each event of the watcher."""
    return [entry["extra"]["payload"]["groups"] for entry in client.asset_events("custody_journals")]


def mark(repository: Repository) -> dict[str, int]:
    return read_mark(PosixFileSystem(), repository.settings.watch_mark).groups


def test_a_sealed_journal_starts_a_rollover_without_a_schedule(airflow: LocalAirflow, repository: Repository) -> None:
    with ready(airflow) as client:
        at = sealed(repository, 0)
        run = follow(client, 1)
        assert run.state == "success"
        assert run.start is not None
        latency = run.start.timestamp() - at
        print(f"sealed to start of the run: {latency:.1f} s")  # noqa: T201 - a measurement, shown with -s
        assert latency < START_SECONDS_MAX
        assert told(client) == [{"main": 0}]
        assert mark(repository) == {"main": 0}
        assert repository.status().writers[0].events_live == 1
        assert [entry["extra"]["events"] for entry in client.asset_events("custody_commits")] == [1]


def test_a_backfill_of_the_rollover_is_a_pass_like_any_other(airflow: LocalAirflow) -> None:
    with ready(airflow) as client:
        new_year = datetime(2026, 1, 1, tzinfo=UTC)
        client.wait_for_backfill(client.backfill(DAG_ID, new_year, new_year), timeout_s=300)
        [run] = [run for run in client.runs(DAG_ID) if run.kind == "backfill"]
        states = {task.state for task in client.task_instances(DAG_ID, run.run_id)}
        assert (run.state, states) == ("success", {"skipped"})


@pytest.mark.slow
def test_a_killed_triggerer_neither_loses_nor_doubles_an_event(
    airflow: LocalAirflow, repository: Repository, tmp_path: Path
) -> None:
    own = Repository.create(tmp_path / "repository")
    home = tmp_path / "airflow"

    def start() -> LocalAirflow:
        return LocalAirflow(PROJECT, home=home, repository=own.settings.root, settings=SETTINGS)

    airflow.stop()
    with start() as running, ready(running) as client:
        sealed(own, 0)
        follow(client, 1)
        kill_triggerer(running)
    sealed(own, 1)  # while nobody looks
    with start() as running, ready(running) as client:
        assert follow(client, 2).state == "success"
        assert told(client) == [{"main": 0}, {"main": 1}]
        # Another look at what was told: neither group comes back.
        time.sleep(5)
        assert told(client) == [{"main": 0}, {"main": 1}]
        assert len(client.runs(DAG_ID)) == 2
        sealed(own, 2)
        until_told(client, 3)
        kill_triggerer(running)  # right after the event was kept; its run has hardly begun
    with start() as running, ready(running) as client:
        client.wait_for_runs(DAG_ID, 3, timeout_s=600)
        time.sleep(5)
        groups = told(client)
        # Between Airflow's confirmation and the mark lies a second or so, in which a kill repeats the event.
        assert groups[:3] == [{"main": 0}, {"main": 1}, {"main": 2}]
        assert groups[3:] in ([], [{"main": 2}])
        assert mark(own) == {"main": 2}
    assert own.status().writers[0].events_live == 3


def until_told(client: RestClient, count: int) -> None:
    deadline = time.monotonic() + 120
    while len(client.asset_events("custody_journals")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def kill_triggerer(airflow: LocalAirflow) -> None:
    """Kill the triggerer and the process in which its triggers run; all of the local Airflow ends with it."""
    running = find_running(airflow.home)
    assert running is not None
    processes = [psutil.Process(process.pid) for process in session_members(running.process)]
    found = [process for process in processes if "triggerer" in " ".join(process.cmdline())]
    assert found
    for process in {child for parent in found for child in [*parent.children(recursive=True), parent]}:
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in found):
        assert time.monotonic() < deadline
        time.sleep(0.1)
