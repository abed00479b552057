"""A past week of hourly drops: backfilled by the hour, once more, and by the day backwards; always the same events."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from custody.model import Event
from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient
from tests.airflow.postgres import missing, postgres

pytestmark = [pytest.mark.airflow, pytest.mark.slow, pytest.mark.skipif(bool(missing()), reason=str(missing()))]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_ingest"
FIRST = datetime(2026, 11, 9, tzinfo=UTC)
HOURS = 7 * 24
EACH = 20
BACKFILL_SECONDS_MAX = 2 * 3600


def dropped(root: Path, hours: int = HOURS) -> Repository:
    """Make a repository into whose landing folders one file was dropped in each hour of a past time."""
    Repository.create(root)
    (root / "custody.toml").write_text('[landing]\nfolder = "landing/%Y-%m-%d/%H"\nlate_minutes = 0\n')
    [(_, data)] = sample_files(SampleOptions(events=hours * EACH, nodes=1, batch_size=hours * EACH))
    events = json.loads(data)
    an_hour_ago = time.time() - 3600
    for hour in range(hours):
        folder = root / f"landing/{FIRST + timedelta(hours=hour):%Y-%m-%d/%H}"
        folder.mkdir(parents=True)
        path = folder / f"part-{hour}.json"
        path.write_text(json.dumps(events[hour * EACH :][:EACH]))
        os.utime(path, (an_hour_ago, an_hour_ago))
    return Repository.open(root)


@contextmanager
def ingesting(repository: Repository, home: Path, schedule: str) -> Iterator[tuple[LocalAirflow, AirflowClient]]:
    settings = {"CUSTODY_ROLLOVER_SCHEDULE": "", "CUSTODY_INGEST_SCHEDULE": schedule}
    root = repository.settings.root
    # On SQLite the command that creates so many runs at once may find the database locked.
    with (
        postgres() as database,
        LocalAirflow(PROJECT, home=home, repository=root, settings=settings, database=database) as airflow,
        airflow.client() as client,
    ):
        client.wait_for_dag(DAG_ID)
        client.unpause(DAG_ID)
        yield airflow, client


def backfilled(airflow: LocalAirflow, client: AirflowClient, last: datetime, *options: str) -> float:
    """Create a backfill as a user does on the command line; return how long it took, in seconds."""
    started = time.monotonic()
    dates = ["--from-date", FIRST.isoformat(), "--to-date", last.isoformat()]
    airflow.command("backfill", "create", "--dag-id", DAG_ID, *dates, *options)
    client.wait_for_backfill(client.newest_backfill(DAG_ID), timeout_s=BACKFILL_SECONDS_MAX)
    return time.monotonic() - started


def backfilled_runs(client: AirflowClient) -> tuple[int, int]:
    """Return how many runs of backfills there are, and how many of them succeeded; the schedule has runs of its own."""
    every = client.count_runs(DAG_ID, kind="backfill")
    return every, client.count_runs(DAG_ID, kind="backfill", state="success")


def content(repository: Repository) -> list[Event]:
    """Return all events in the order of their sources' own numbers; ids are given in the order of arrival."""
    events = list(repository.events(0, 10 * HOURS * EACH))
    assert [event.event_id for event in events] == list(range(len(events)))
    plain = [msgspec.structs.replace(event, event_id=-1) for event in events]
    return sorted(plain, key=lambda event: (event.source_node or "", event.source_ordinal or -1))


def test_a_week_by_the_hour_once_more_and_by_the_day_backwards_is_the_same_repository(tmp_path: Path) -> None:
    hourly, daily = dropped(tmp_path / "hourly"), dropped(tmp_path / "daily")
    last_hour = FIRST + timedelta(hours=HOURS - 1)
    with ingesting(hourly, tmp_path / "airflow-hourly", "0 * * * *") as (airflow, client):
        seconds = backfilled(airflow, client, last_hour, "--max-active-runs", "4")
        print(f"{HOURS} runs of an hour: {seconds:.0f} s")  # noqa: T201 - a measurement, shown with -s
        assert backfilled_runs(client) == (HOURS, HOURS)
        with_ids = list(hourly.events(0, 10 * HOURS * EACH))
        first = content(hourly)
        assert len(first) == HOURS * EACH
        assert all(one != other for one, other in pairwise(first))

        again = ["--max-active-runs", "4", "--reprocess-behavior", "completed", "--run-backwards"]
        seconds = backfilled(airflow, client, last_hour, *again)
        print(f"once more: {seconds:.0f} s")  # noqa: T201 - a measurement, shown with -s
        assert backfilled_runs(client) == (HOURS, HOURS)
        assert list(hourly.events(0, 10 * HOURS * EACH)) == with_ids

    with ingesting(daily, tmp_path / "airflow-daily", "0 0 * * *") as (airflow, client):
        seconds = backfilled(airflow, client, FIRST + timedelta(days=6), "--run-backwards")
        print(f"7 runs of a day, backwards: {seconds:.0f} s")  # noqa: T201 - a measurement, shown with -s
        assert backfilled_runs(client) == (7, 7)
    assert content(daily) == first
