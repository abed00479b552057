"""A repository with events that wait and a real Airflow with the project's DAGs on it, for several files of tests."""

from __future__ import annotations

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


def airflow_on(repository: Repository, folder: Path) -> LocalAirflow:
    """An Airflow that is not started yet: the project's DAGs, and one of a user that follows the commits."""
    dags = folder / "dags"
    shutil.copytree(PROJECT / "dags", dags, ignore=shutil.ignore_patterns("__pycache__"))
    (dags / "follower.py").write_text(FOLLOWER)
    settings = {
        "CUSTODY_ROLLOVER_SCHEDULE": "",
        # Between two tasks a test need not wait as long as an idle Airflow does.
        "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
        "CUSTODY_MAINTENANCE_SCHEDULE": "",
        # A day an interval, so that one run takes 24 folders of an hour.
        "CUSTODY_INGEST_SCHEDULE": "0 0 * * *",
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
    }
    return LocalAirflow(PROJECT, home=folder / "home", repository=repository.settings.root, settings=settings)
