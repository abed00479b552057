"""The listener of runs, called by Airflow's own manager: what becomes of a run, and what never happens to it."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.listeners.listener import get_listener_manager
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset
from click.testing import CliRunner

from custody.cli.main import cli
from custody.client import spool_state
from custody.repository import Repository
from custody_airflow import run_listener
from custody_airflow.run_events import asset_uuid

BEGIN = datetime(2026, 3, 2, 6, 0, 0, 123_456, tzinfo=UTC)
ORDERS, REPORT = "file:///data/orders.csv", "file:///data/report ${x}'s.parquet"


@dataclass
class Try:
    """A try of a task, with the fields that Airflow's own has."""

    dag_id: str = "sales"
    run_id: str = "scheduled__2026-03-02"
    task_id: str = "report"
    map_index: int | None = None
    try_number: int = 1
    start_date: datetime | None = BEGIN
    end_date: datetime | None = BEGIN + timedelta(seconds=4)
    log_url: str = "http://airflow.example/log"
    task: Any = field(
        default_factory=lambda: EmptyOperator(
            task_id="report", inlets=[Asset(name="orders", uri=ORDERS)], outlets=[Asset(name="report", uri=REPORT)]
        )
    )


@pytest.fixture
def spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "runs"
    monkeypatch.setenv("CUSTODY_RUN_SPOOL", str(folder))
    manager = get_listener_manager()
    # Airflow's examples listen, too, and want more than a test has.
    others = list(manager.pm.get_plugins())
    for other in others:
        manager.pm.unregister(other)
    manager.add_listener(run_listener)
    yield folder
    manager.pm.unregister(run_listener)
    for other in others:
        manager.pm.register(other)
    run_listener._spool.cache_clear()


def tell(name: str, **arguments: Any) -> None:
    getattr(get_listener_manager().hook, name)(**arguments)


def tell_of_a_run() -> None:
    tell("on_dag_run_running", dag_run=Try(end_date=None), msg="")
    tell("on_task_instance_running", previous_state=None, task_instance=Try(end_date=None))
    tell("on_task_instance_failed", previous_state=None, task_instance=Try(), error=ValueError("no"))
    tell("on_task_instance_running", previous_state=None, task_instance=Try(try_number=2, end_date=None))
    tell("on_task_instance_success", previous_state=None, task_instance=Try(try_number=2))
    tell("on_dag_run_success", dag_run=Try(), msg="")


def delivered(root: Path, spool: Path) -> Repository:
    done = CliRunner().invoke(cli, ["-r", str(root), "spool", "deliver", str(spool)])
    assert done.exit_code == 0, done.output
    return Repository.open(root)


def test_which_run_wrote_this_file_is_a_search(spool: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    tell_of_a_run()
    repository = delivered(root, spool)
    result = repository.search(f'transit_uri:"{REPORT}"')
    [wrote] = [stored.event for stored in result.events]
    assert (wrote.event_type, wrote.component_id) == ("SEND", "sales.report")
    assert wrote.attributes["airflow.run_id"] == "scheduled__2026-03-02"
    assert (wrote.attributes["airflow.try_number"], wrote.attributes["airflow.log_url"]) == (
        "2",
        "http://airflow.example/log",
    )
    events = list(repository.events(0, 100))
    ends = [(item.component_type, item.event_type, item.attributes["airflow.state"]) for item in events]
    assert ends == [
        ("AirflowDagRun", "CREATE", "running"),
        ("AirflowTask", "CREATE", "running"),
        ("AirflowTask", "DROP", "failed"),
        ("AirflowTask", "CREATE", "running"),
        ("AirflowTask", "FORK", "success"),
        ("AirflowTask", "SEND", "success"),
        ("AirflowDagRun", "DROP", "success"),
    ]
    fork = events[4]
    assert (fork.parent_uuids, fork.child_uuids) == ((asset_uuid(ORDERS),), (asset_uuid(REPORT),))
    assert (fork.event_time, fork.event_duration) == (int(BEGIN.timestamp() * 1000) + 4000, 4000)


def test_a_run_that_is_told_of_twice_is_stored_once(spool: Path, tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    tell_of_a_run()
    tell_of_a_run()
    assert spool_state(spool).waiting_events == 14
    repository = delivered(root, spool)
    assert len(list(repository.events(0, 100))) == 7
    assert list(repository.quarantine.entries()) == []


def test_a_spool_that_cannot_be_written_costs_a_warning_and_nothing_else(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spool.write_text("a file where the folder should be")
    with caplog.at_level(logging.WARNING, "custody_airflow.run_listener"):
        tell_of_a_run()
        tell("on_task_instance_success", previous_state=None, task_instance=object())
    assert len(caplog.records) == 7
    assert "could not be kept" in caplog.text
    monkeypatch.delenv("CUSTODY_RUN_SPOOL")
    tell_of_a_run()
    assert len(caplog.records) == 7


def test_an_event_takes_milliseconds(spool: Path) -> None:
    tell("on_task_instance_running", previous_state=None, task_instance=Try())
    waits = []
    for number in range(50):
        begun = time.perf_counter()
        tell("on_task_instance_running", previous_state=None, task_instance=Try(try_number=number))
        waits.append(time.perf_counter() - begun)
    # The median, with room for a busy machine: a task must not feel it.
    assert sorted(waits)[25] < 0.1
    assert spool_state(spool).waiting_events == 51
