"""A real local Airflow: started, used through its client, and gone afterwards."""

from __future__ import annotations

import json
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from click.testing import CliRunner

from custody.airflow_runs import asset_uuid
from custody.cli.main import cli
from custody.errors import LockedError
from custody.model import Event
from custody.repository import Repository
from custody_local.airflow import LocalAirflow, find_running, stop_running
from custody_local.airflow_api import AirflowClient
from custody_local.errors import LocalAirflowError
from custody_local.processes import ProcessId, session_members

pytestmark = pytest.mark.airflow

# Task, map index, try and state of each event; the listener hears nothing of a process that was killed.
TOLD: set[tuple[str | None, ...]] = {
    *((task, "-1", "1", state) for task in ("write", "copy") for state in ("running", "success")),
    *(("again", "-1", number, "running") for number in "12"),
    ("again", "-1", "1", "failed"),
    ("again", "-1", "2", "success"),
    *(("skip", "-1", "1", state) for state in ("running", "skipped")),
    ("die", "-1", "1", "running"),
    *(("part", index, "1", state) for index in "01" for state in ("running", "success")),
    *((None, None, None, state) for state in ("running", "failed")),
}
DIED = ("die", "-1", "1", "failed")
HELD_SECONDS = 8


@pytest.fixture(scope="module")
def project(pipeline_repository: Repository) -> Path:
    return pipeline_repository.settings.root.parent


@pytest.fixture(scope="module")
def airflow(pipeline_airflow: LocalAirflow) -> LocalAirflow:
    return pipeline_airflow


@pytest.fixture
def client(airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with airflow.client() as client:
        client.wait_for_dag("greet")
        client.unpause("greet")
        yield client


def members(home: Path) -> set[ProcessId]:
    running = find_running(home)
    return session_members(running.process) if running else set()


def name_of(process: ProcessId) -> str:
    try:
        return str(psutil.Process(process.pid).name())
    except psutil.NoSuchProcess:  # of the short ones that Airflow starts, one may end at any time
        return ""


def test_triggered_run_succeeds_and_leaves_its_result(client: AirflowClient, project: Path) -> None:
    run_id = client.trigger("greet", {"name": "Ada"})
    run = client.wait_for_run("greet", run_id, timeout_s=120)
    assert run.state == client.run_state("greet", run_id) == "success"
    assert [task.task_id for task in client.task_instances("greet", run_id)] == ["say", "wait"]
    for task in client.task_instances("greet", run_id):
        assert task.state == "success"
        assert task.start is not None
        assert task.end is not None
        assert task.duration_s is not None
    result = client.xcom("greet", run_id, "say")
    assert result == {"name": "Ada", "repository": str(project / "repository")}
    assert "a line in the log" in client.task_log("greet", run_id, "say")
    assert run_id in [run.run_id for run in client.runs("greet")]


def test_the_log_of_a_failed_task_says_why_it_failed(client: AirflowClient) -> None:
    client.wait_for_dag("fail")
    client.unpause("fail")
    run_id = client.trigger("fail")
    assert client.wait_for_run("fail", run_id, timeout_s=120).state == "failed"
    assert "ValueError: expected a name, got none" in client.task_log("fail", run_id, "refuse")


def test_a_run_is_told_of_once_also_where_it_was_lost_and_a_file_names_the_run_that_wrote_it(
    airflow: LocalAirflow, client: AirflowClient, project: Path
) -> None:
    quarantined = list(Repository.open(project / "repository").quarantine.entries())
    client.wait_for_dag("reporting")
    client.unpause("reporting")
    run_id = client.trigger("reporting")
    assert client.wait_for_run("reporting", run_id, timeout_s=180).state == "failed"
    # Two tasks whose processes left nothing: as on a machine whose disk is gone.
    lost = {item for item in TOLD if item[0] == "copy" or item[:2] == ("part", "1")}
    gone = [path for path in (project / "runs").glob("*.events") if _is_of(path.read_bytes(), lost)]
    assert len(gone) == 2
    for path in gone:
        path.unlink()
    [delivered] = custody(project, "spool", "deliver", str(project / "runs"))
    assert delivered["stored"] >= len(TOLD - lost)
    assert told(project, run_id) == sorted(TOLD - lost, key=str)

    # What changed in this second counts as settled in the next one.
    time.sleep(1.1)
    reconcile = ["airflow-runs", "reconcile", str(project / "runs"), "--airflow", airflow.url, "--settle", "0"]
    reconcile += ["--user", airflow.user, "--password-file", str(_password(airflow, project))]
    report = custody(project, *reconcile)
    assert report["stored"] >= len(lost) + 1
    assert told(project, run_id) == sorted(TOLD | {DIED}, key=str)
    again = custody(project, *reconcile, "--since", hours_ago(1))
    assert (again["stored"], again["rejected"], report["rejected"]) == (0, 0, 0)
    assert again["repeated"] >= len(TOLD)

    for named, task in (
        ("file:///data/report.parquet", "write"),
        (f"/data/{run_id}/it's a ${{file}}.csv", "write"),
        ("s3://lake/copy", "copy"),
    ):
        [wrote] = custody(project, "airflow-runs", "wrote", named)["tries"]
        assert (wrote["dag_id"], wrote["run_id"], wrote["task_id"]) == ("reporting", run_id, task)
        assert wrote["log_url"].startswith(f"{airflow.url}/dags/reporting/runs/")
    assert list(Repository.open(project / "repository").quarantine.entries()) == quarantined
    [end] = [event for event in _events(project, run_id) if event.event_type == "FORK" and "write" in str(event)]
    assert end.parent_uuids == (asset_uuid("file:///data/orders.csv"),)
    assert end.updated_attributes["airflow.run_type"] == "manual"


@pytest.mark.slow
def test_the_dag_of_runs_delivers_and_reconciles_by_itself(client: AirflowClient, project: Path) -> None:
    client.wait_for_dag("provenance_runs")
    client.unpause("provenance_runs")
    greeted = client.trigger("greet", {"name": "Ada"})
    assert client.wait_for_run("greet", greeted, timeout_s=120).state == "success"
    run_id = client.trigger("provenance_runs", {"since": hours_ago(1)})
    assert client.wait_for_run("provenance_runs", run_id, timeout_s=180).state == "success"
    delivered, reconciled = (client.xcom("provenance_runs", run_id, task) for task in ("deliver", "reconcile"))
    assert isinstance(delivered, dict)
    assert isinstance(reconciled, dict)
    assert delivered["stored"] >= 6
    assert (delivered["rejected"], reconciled["rejected"], reconciled["windows"]) == (0, 0, 1)
    assert len(told(project, greeted)) == 6
    assert "events of runs had been lost" in client.task_log("provenance_runs", run_id, "reconcile")


def custody(project: Path, *arguments: str) -> Any:
    done = CliRunner().invoke(cli, ["-r", str(project / "repository"), *arguments, "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def hours_ago(hours: int) -> str:
    return (datetime.now(UTC) - timedelta(hours=hours)).isoformat()


def told(project: Path, run_id: str) -> list[tuple[str | None, ...]]:
    """What the repository has of a run: task, map index, try and state of each start and end."""
    names = ("airflow.task_id", "airflow.map_index", "airflow.try_number", "airflow.state")
    events = [event.updated_attributes for event in _events(project, run_id) if event.event_type != "SEND"]
    return sorted((tuple(map(known.get, names)) for known in events), key=str)


def _events(project: Path, run_id: str) -> list[Event]:
    events = Repository.open(project / "repository").events(0, 100_000)
    return [event for event in events if event.updated_attributes.get("airflow.run_id") == run_id]


def _is_of(segment: bytes, lost: set[tuple[str | None, ...]]) -> bool:
    ours = b'"airflow.run_id"' in segment and b'"reporting"' in segment
    return ours and any(
        f'"airflow.task_id":"{task}"'.encode() in segment and f'"airflow.map_index":"{index}"'.encode() in segment
        for task, index, *_ in lost
    )


def _password(airflow: LocalAirflow, project: Path) -> Path:
    file = project / "password"
    file.write_text(airflow.password)
    return file


def test_file_that_cannot_be_imported_is_shown_with_its_error(client: AirflowClient) -> None:
    with pytest.raises(LocalAirflowError, match="this file is broken"):
        client.wait_for_dag("broken")


@pytest.mark.in_parts(2)
def test_a_database_that_is_locked_for_a_while_is_waited_for(airflow: LocalAirflow, client: AirflowClient) -> None:
    locked, freed = threading.Event(), threading.Event()

    def hold() -> None:
        # As a slow commit of another process does, longer than SQLite waits unless told.
        with closing(sqlite3.connect(airflow.home / "airflow.db", timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            locked.set()
            time.sleep(HELD_SECONDS)
            other.execute("ROLLBACK")
            freed.set()

    holder = threading.Thread(target=hold)
    holder.start()
    assert locked.wait(60)
    run_id = client.trigger("greet", {"name": "Lock", "seconds": 0})
    assert freed.is_set()
    holder.join()
    assert client.wait_for_run("greet", run_id, timeout_s=120).state == "success"


def test_a_backfill_is_made_whole_while_others_commit_all_the_time(
    airflow: LocalAirflow, client: AirflowClient
) -> None:
    client.wait_for_dag("daily")
    before = len(_asked_backfills(airflow))
    ended = threading.Event()
    commits = 0

    def commit() -> None:
        nonlocal commits
        with closing(sqlite3.connect(airflow.home / "airflow.db", timeout=60, isolation_level=None)) as other:
            other.execute("CREATE TABLE other (number INTEGER)")
            while not ended.is_set():
                other.execute("INSERT INTO other VALUES (1)")
                commits += 1
                time.sleep(0.001)

    committer = threading.Thread(target=commit)
    committer.start()
    try:
        # The DAG is paused: the runs are made, none is started.
        client.backfill("daily", datetime(2026, 3, 1, tzinfo=UTC), datetime(2026, 5, 9, tzinfo=UTC))
    finally:
        ended.set()
        committer.join()
    assert commits > 0
    assert client.count_runs("daily", kind="backfill") == 70
    [asked] = _asked_backfills(airflow)[before:]
    assert "status_code=200" in asked


def _asked_backfills(airflow: LocalAirflow) -> list[str]:
    """The lines of the server about requests for a backfill."""
    lines = (airflow.home / "logs" / "components" / "api-server.log").read_text().splitlines()
    return [line for line in lines if "method=POST" in line and "path=/api/v2/backfills" in line]


def test_refused_request_is_shown_with_airflows_answer(client: AirflowClient) -> None:
    with pytest.raises(LocalAirflowError, match="404"):
        client.run_state("greet", "no such run")


def test_wrong_password_is_refused(airflow: LocalAirflow) -> None:
    with AirflowClient(airflow.url, airflow.user, "guess") as client:
        assert set(client.health().values()) == {"healthy"}
        with pytest.raises(LocalAirflowError, match="401"):
            client.import_errors()


def test_secrets_are_readable_by_the_owner_only(airflow: LocalAirflow) -> None:
    for name in ("secrets.json", "passwords.json", "running.json"):
        assert stat.S_IMODE((airflow.home / name).stat().st_mode) == 0o600


def test_nothing_listens_beyond_this_host(airflow: LocalAirflow) -> None:
    listening = set()
    for process in members(airflow.home):
        with suppress(psutil.NoSuchProcess):  # one that parsed a DAG file has ended meanwhile
            connections = psutil.Process(process.pid).net_connections("inet")
            listening |= {one.laddr.ip for one in connections if one.status == psutil.CONN_LISTEN}
    assert listening == {"127.0.0.1"}


def test_second_start_on_the_same_folder_finds_the_first(airflow: LocalAirflow, project: Path) -> None:
    with pytest.raises(LockedError, match=airflow.url):
        LocalAirflow(project).start()


def test_settings_of_the_users_own_airflow_do_not_shine_through(airflow: LocalAirflow) -> None:
    # The environment that it was started from names a database that cannot be made.
    assert (airflow.home / "airflow.db").is_file()


@pytest.mark.in_parts(2)
def test_stop_ends_all_processes_also_a_running_task(client: AirflowClient, project: Path) -> None:
    home = project / ".local" / "airflow"
    run_id = client.trigger("greet", {"name": "Eve", "seconds": 600})
    deadline = time.monotonic() + 60
    while client.task_instances("greet", run_id)[-1].state != "running":
        assert time.monotonic() < deadline
        time.sleep(0.2)
    time.sleep(2)
    before = members(home)
    assert any("sleep" in name_of(process) for process in before)
    assert stop_running(home)
    assert [process for process in before if process.is_alive()] == []
    assert find_running(home) is None
    assert not stop_running(home)


@pytest.mark.in_parts(2)
def test_component_that_dies_ends_the_start_with_its_log(tmp_path: Path) -> None:
    (tmp_path / "dags").mkdir()
    wrong = {"AIRFLOW__API__WORKERS": "many"}
    airflow = LocalAirflow(tmp_path, settings=wrong)
    with pytest.raises(LocalAirflowError, match=r"ended while it started[^$]*many"):
        airflow.start(timeout_s=120)
    assert find_running(airflow.home) is None
