"""The listener of runs, called by Airflow's own manager: what becomes of a run, and what never happens to it."""

from __future__ import annotations

import logging
import threading
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

from custody.airflow_runs import asset_uuid
from custody.cli.main import cli
from custody.client import Spool, spool_state
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody_airflow import run_listener, written

DUE = datetime(2026, 3, 2, 6, tzinfo=UTC)
BEGIN = datetime(2026, 3, 2, 6, 0, 0, 123_456, tzinfo=UTC)
ORDERS, REPORT = "file:///data/orders.csv", "file:///data/report ${x}'s.parquet"


@dataclass
class Run:
    """A run of a DAG, with the fields that Airflow's own has."""

    dag_id: str = "sales"
    run_id: str = "scheduled__2026-03-02"
    run_after: datetime = DUE
    logical_date: datetime | None = DUE
    run_type: str = "scheduled"
    start_date: datetime | None = BEGIN
    end_date: datetime | None = BEGIN + timedelta(seconds=4)


@dataclass
class Try:
    """A try of a task, with the fields that Airflow's own has."""

    id: str = "0199"
    dag_run: Run = field(default_factory=Run)
    hostname: str = "worker-7"

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
    tell("on_dag_run_running", dag_run=Run(end_date=None), msg="")
    tell("on_task_instance_running", previous_state=None, task_instance=Try(end_date=None))
    tell("on_task_instance_failed", previous_state=None, task_instance=Try(), error=ValueError("no"))
    tell("on_task_instance_running", previous_state=None, task_instance=Try(try_number=2, end_date=None))
    tell("on_task_instance_success", previous_state=None, task_instance=Try(try_number=2))
    tell("on_dag_run_success", dag_run=Run(), msg="")


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


def test_a_try_that_skips_itself_has_an_end_and_one_that_goes_on_after_a_wait_one_start(
    spool: Path, tmp_path: Path
) -> None:
    # Airflow gives no end to the one, and tells twice of the start of the other, which is deferred in between.
    later = BEGIN + timedelta(minutes=5)
    tell("on_task_instance_running", previous_state=None, task_instance=Try(end_date=None))
    tell("on_task_instance_running", previous_state=None, task_instance=Try(end_date=None, start_date=later))
    before = datetime.now(UTC)
    tell("on_task_instance_skipped", previous_state=None, task_instance=Try(end_date=None))
    root = tmp_path / "repository"
    Repository.create(root)
    repository = delivered(root, spool)
    start, end = repository.events(0, 100)
    assert (start.event_type, start.event_time) == ("CREATE", int(BEGIN.timestamp() * 1000))
    assert end.updated_attributes["airflow.state"] == "skipped"
    assert end.event_time >= int(before.timestamp() * 1000)
    assert list(repository.quarantine.entries()) == []


def test_the_process_of_a_task_lets_go_of_its_files_with_its_end(spool: Path, tmp_path: Path) -> None:
    class Assets:
        """Assets that a task added to its aliases, as its context has them."""

        dest_asset_key = Asset(name="copy", uri="s3://lake/copy")

        def values(self) -> list[Any]:
            return [type("Accessor", (), {"asset_alias_events": [self]})]

    class InTask(Try):
        _ti_context_from_server = None

        def get_template_context(self) -> dict[str, Any]:
            return {"dag_run": Run(), "outlet_events": Assets()}

    written._WRITTEN["0199"] = {"file:///data/a.csv": None}
    tell("on_task_instance_running", previous_state=None, task_instance=InTask(end_date=None))
    assert PosixFileSystem().is_locked(spool / "0000000000.lock")
    tell("on_task_instance_success", previous_state=None, task_instance=InTask())
    assert not PosixFileSystem().is_locked(spool / "0000000000.lock")
    Repository.create(tmp_path / "repository")
    events = delivered(tmp_path / "repository", spool).events(0, 100)
    uris = {event.transit_uri for event in events if event.event_type == "SEND"}
    assert uris == {REPORT, "s3://lake/copy", "file:///data/a.csv"}
    assert written._WRITTEN == {}


def test_a_disk_that_does_not_answer_costs_a_process_a_moment_once(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers = threading.Event()
    right = Spool.append
    monkeypatch.setattr(Spool, "append", lambda self, events: (answers.wait(30), right(self, events)))
    monkeypatch.setattr(run_listener, "SECONDS_MAX", 0.2)
    begun = time.monotonic()
    with caplog.at_level(logging.WARNING, "custody_airflow.run_listener"):
        for _ in range(5):
            tell_of_a_run()
    assert time.monotonic() - begun < 5
    assert "did not answer" in caplog.records[0].message
    assert len(caplog.records) == 30
    answers.set()
    stuck = run_listener._losses.stuck
    assert stuck is not None
    stuck.join(30)
    caplog.clear()
    tell_of_a_run()
    assert caplog.records == []
    # The first one came through in the end.
    assert spool_state(spool).waiting_events == 8


def test_a_spool_that_nobody_delivers_is_bounded(
    spool: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(run_listener, "_SEGMENTS_MAX", 3)
    for _ in range(5):
        run_listener._spool.cache_clear()  # as a process of its own
        tell("on_task_instance_running", previous_state=None, task_instance=Try(end_date=None))
    assert spool_state(spool).segments == 3
    assert [("3 segments wait" in record.message) for record in caplog.records] == [True, True]


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
