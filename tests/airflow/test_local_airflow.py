"""A real local Airflow: started, used through its client, and gone afterwards."""

from __future__ import annotations

import os
import sqlite3
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from custody.errors import LockedError
from custody_local.airflow import LocalAirflow, find_running, stop_running
from custody_local.airflow_api import AirflowClient
from custody_local.errors import LocalAirflowError
from custody_local.processes import ProcessId, session_members

pytestmark = pytest.mark.airflow

DAG = """\
from airflow.sdk import dag, task


@dag(schedule=None, catchup=False)
def greet():
    @task(pool="spark")
    def say(params=None, run_id=None):
        import os

        print("a line in the log")
        return {"name": params["name"], "repository": os.environ["CUSTODY_REPOSITORY"]}

    @task.bash
    def wait():
        return "sleep {{ params.seconds }}"

    say() >> wait()


greet_dag = greet()
greet_dag.params = {"name": "nobody", "seconds": 0}
"""
DAILY = """\
from datetime import datetime

from airflow.sdk import dag, task


@dag(schedule="@daily", start_date=datetime(2026, 1, 1), catchup=False)
def daily():
    @task
    def nothing():
        pass

    nothing()


daily()
"""
BROKEN = """\
from airflow.sdk import dag

raise RuntimeError("this file is broken")
"""
FAILING = """\
from airflow.sdk import dag, task


@dag(schedule=None, catchup=False)
def fail():
    @task
    def refuse():
        raise ValueError("expected a name, got none")

    refuse()


fail()
"""
HELD_SECONDS = 8
POOLS = """\
airflow:
  pools:
    - pool_name: spark
      pool_slot: 1
      pool_description: one at a time
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "dags").mkdir()
    (folder / "dags" / "greet.py").write_text(DAG)
    (folder / "dags" / "daily.py").write_text(DAILY)
    (folder / "dags" / "fail.py").write_text(FAILING)
    (folder / "dags" / "broken.py").write_text(BROKEN)
    (folder / "airflow_settings.yaml").write_text(POOLS)
    return folder


@pytest.fixture(scope="module")
def airflow(project: Path) -> Iterator[LocalAirflow]:
    own = {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////no/such/folder/airflow.db"}
    environ = {**os.environ, **own}
    with LocalAirflow(project, repository=project / "repository", environ=environ) as running:
        yield running


@pytest.fixture
def client(airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with airflow.client() as client:
        client.wait_for_dag("greet")
        client.unpause("greet")
        yield client


def members(home: Path) -> set[ProcessId]:
    running = find_running(home)
    return session_members(running.process) if running else set()


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
    lines = (airflow.home / "logs" / "components" / "api-server.log").read_text().splitlines()
    asked = [line for line in lines if "method=POST" in line and "path=/api/v2/backfills" in line]
    assert len(asked) == 1
    assert "status_code=200" in asked[0]


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
    listening = {
        connection.laddr.ip
        for process in members(airflow.home)
        for connection in psutil.Process(process.pid).net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }
    assert listening == {"127.0.0.1"}


def test_second_start_on_the_same_folder_finds_the_first(airflow: LocalAirflow, project: Path) -> None:
    with pytest.raises(LockedError, match=airflow.url):
        LocalAirflow(project).start()


def test_settings_of_the_users_own_airflow_do_not_shine_through(airflow: LocalAirflow) -> None:
    # The fixture's environment names a database that cannot be made.
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
    assert any("sleep" in psutil.Process(process.pid).name() for process in before)
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
