"""Journals that are watched: sealed ones start a rollover at once, also after the triggerer was killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from custody.repository import Repository
from custody.rollover import read_mark
from custody.vfs import PosixFileSystem
from custody_local.airflow import LocalAirflow, find_running
from custody_local.airflow_api import AirflowClient
from custody_local.processes import session_members
from tests.support import append, event

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_rollover"
# Beside the watch a schedule that neither comes in the time of a test nor came since the DAG's first day: the 29th of
# February. Airflow would make a run for the newest instant that did.
SETTINGS = {
    "CUSTODY_ROLLOVER_WATCH": "0.5",
    "CUSTODY_ROLLOVER_SCHEDULE": "0 0 29 2 *",
    # How soon tasks are noticed that a killed Airflow left behind.
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "20",
}
START_SECONDS_MAX = 120
RUN_SECONDS_MAX = 900
QUIET_SECONDS = 10


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository.create(tmp_path_factory.mktemp("watched") / "repository")


@pytest.fixture(scope="module")
def airflow(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> LocalAirflow:
    """One that is not running yet; each start goes on with what it had."""
    home = tmp_path_factory.mktemp("airflow")
    return LocalAirflow(PROJECT, home=home, repository=repository.settings.root, settings=SETTINGS)


@contextmanager
def ready(airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with airflow, airflow.client() as client:
        client.wait_for_dag(DAG_ID)
        client.unpause(DAG_ID)
        yield client


def sealed(repository: Repository, number: int) -> float:
    """Seal a group of one event; return when that was, in seconds since the epoch."""
    append(repository, [event(number)])
    return time.time()


def told(client: AirflowClient) -> list[dict[str, int]]:
    """Return the newest group of each event of the watcher."""
    return [entry["extra"]["payload"]["groups"] for entry in client.asset_events("provenance_journals")]


def mark(repository: Repository) -> dict[str, int]:
    return read_mark(PosixFileSystem(), repository.settings.watch_mark).groups


def test_a_sealed_journal_starts_a_rollover_without_a_schedule(airflow: LocalAirflow, repository: Repository) -> None:
    with ready(airflow) as client:
        at = sealed(repository, 0)
        [run] = client.wait_for_runs(DAG_ID, 1, timeout_s=RUN_SECONDS_MAX)
        assert (run.state, run.kind) == ("success", "asset_triggered")
        assert run.start is not None
        latency = run.start.timestamp() - at
        print(f"sealed to start of the run: {latency:.1f} s")  # noqa: T201 - a measurement, shown with -s
        assert latency < START_SECONDS_MAX
        assert told(client) == [{"main": 0}]
        assert mark(repository) == {"main": 0}
        assert repository.status().writers[0].events_live == 1
        assert [entry["extra"]["events"] for entry in client.asset_events("provenance_commits")] == [1]


def test_neither_a_restart_nor_a_killed_triggerer_loses_or_doubles_an_event(
    airflow: LocalAirflow, repository: Repository
) -> None:
    with ready(airflow) as client:
        before = told(client)
        time.sleep(QUIET_SECONDS)
        assert told(client) == before, "a restart repeats nothing"
        sealed(repository, 1)
        until_told(client, len(before) + 1)
        kill_triggerer(airflow)  # just after the event was kept: its run has hardly begun
    number = repository.workspace().groups()[-1].first_event_id
    assert number > 0
    sealed(repository, 2)  # while nobody looks
    with ready(airflow) as client:
        until_told(client, len(before) + 2)
        client.wait_for_runs(DAG_ID, 3, timeout_s=RUN_SECONDS_MAX)
        time.sleep(QUIET_SECONDS)
        # Had the kill come between Airflow's confirmation and the mark, the newest group would stand for both.
        assert told(client) == [*before, {"main": number}, {"main": number + 1}]
        assert mark(repository) == {"main": number + 1}
    assert repository.status().writers[0].events_live == 3


def until_told(client: AirflowClient, count: int) -> None:
    deadline = time.monotonic() + 300
    while len(client.asset_events("provenance_journals")) < count:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def kill_triggerer(airflow: LocalAirflow) -> None:
    """Kill the triggerer and the process in which its triggers run; all of the local Airflow ends with it."""
    running = find_running(airflow.home)
    assert running is not None
    triggerers = []
    for member in session_members(running.process):
        with suppress(psutil.NoSuchProcess):  # one that parsed a DAG file may have ended meanwhile
            process = psutil.Process(member.pid)
            triggerers += [process] * ("triggerer" in " ".join(process.cmdline()))
    assert triggerers
    for process in {child for parent in triggerers for child in [*parent.children(recursive=True), parent]}:
        os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in triggerers):
        assert time.monotonic() < deadline
        time.sleep(0.1)
