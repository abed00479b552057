"""A repository with events that wait and a real Airflow on it, for several files of tests: its DAGs, and where it runs.

The project's DAGs, one of a user that follows the commits, and those that try Airflow itself lie in one folder: each
Airflow that starts takes 40 s of CPU.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody_local.airflow import LocalAirflow

PROJECT = Path(__file__).resolve().parents[2]
EVENTS = 2_000
FOLLOWER = """\
from airflow.sdk import dag, task
from custody_airflow.assets import commits


@dag(schedule=[commits()], is_paused_upon_creation=False)
def follower():
    @task
    def look(triggering_asset_events=None):
        return [event.extra for event in triggering_asset_events[commits()]]

    look()


follower()
"""

GREET = """\
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
REPORTING = """\
import os
import signal
from datetime import timedelta

from airflow.sdk import Asset, AssetAlias, dag, task
from airflow.sdk.exceptions import AirflowSkipException


@dag(schedule=None, catchup=False)
def reporting():
    @task(
        inlets=[Asset(name="orders", uri="file:///data/orders.csv")],
        outlets=[Asset(name="report", uri="file:///data/report.parquet")],
    )
    def write(run_id=None):
        from custody_airflow.written import wrote

        wrote(f"/data/{run_id}/it's a ${{file}}.csv")

    @task(outlets=[AssetAlias(name="copies")])
    def copy(*, outlet_events):
        outlet_events[AssetAlias(name="copies")].add(Asset(name="copy", uri="s3://lake/copy"))

    @task(retries=1, retry_delay=timedelta(seconds=0))
    def again(ti=None):
        if ti.try_number == 1:
            raise ValueError("once more")

    @task
    def skip():
        raise AirflowSkipException("not today")

    @task
    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    @task
    def part(number):
        return number

    write()
    copy()
    again()
    skip()
    die()
    part.expand(number=[1, 2])


reporting()
"""
POOLS = """\
airflow:
  pools:
    - pool_name: spark
      pool_slot: 1
      pool_description: one at a time
    - pool_name: custody_spark
      pool_slot: 2
      pool_description: Spark drivers of custody
"""
OF_TESTS = {
    "greet": GREET,
    "daily": DAILY,
    "fail": FAILING,
    "broken": BROKEN,
    "reporting": REPORTING,
    "follower": FOLLOWER,
}


def waiting_repository(folder: Path) -> Repository:
    """A repository with `EVENTS` sample events that are acknowledged, and not live."""
    repository = Repository.create(folder / "repository")
    with repository.ingest() as work:
        for name, data in sample_files(SampleOptions(events=EVENTS)):
            path = folder / name
            path.write_bytes(data)
            report = work.file(path)
            assert report.stored == report.read
    return repository


def airflow_on(repository: Repository) -> LocalAirflow:
    """An Airflow that is not started yet, of a project in the folder that the repository lies in."""
    project = repository.settings.root.parent
    shutil.copytree(PROJECT / "dags", project / "dags", ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in OF_TESTS.items():
        (project / "dags" / f"{name}.py").write_text(text)
    for name in ("include", "plugins"):
        (project / name).symlink_to(PROJECT / name)
    (project / "airflow_settings.yaml").write_text(POOLS)
    settings = {
        "CUSTODY_ROLLOVER_SCHEDULE": "",
        # Between two tasks a test need not wait as long as an idle Airflow does.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        "CUSTODY_MAINTENANCE_SCHEDULE": "",
        # A day an interval, so that one run takes 24 folders of an hour.
        "CUSTODY_INGEST_SCHEDULE": "0 0 * * *",
        "CUSTODY_RUN_SPOOL": str(project / "runs"),
        "CUSTODY_RUNS_SCHEDULE": "",
    }
    # What a user has set for another Airflow: a database that cannot be made.
    environ = {**os.environ, "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////no/such/folder/airflow.db"}
    return LocalAirflow(project, repository=repository.settings.root, settings=settings, environ=environ)
