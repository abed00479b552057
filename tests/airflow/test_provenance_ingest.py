"""Landing folders in a real Airflow: a backfill over past days, in any order and twice, and a run by hand."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient

pytestmark = pytest.mark.airflow

DAG_ID = "provenance_ingest"
FIRST = datetime(2026, 11, 9, tzinfo=UTC)
DAYS = 3
HOURS = (2, 7, 23)
EACH = 40
LANDED = SampleOptions(events=EACH * 20, nodes=1, seed=11)
"""Of another node than what the repository has before."""


@pytest.fixture(scope="module")
def repository(pipeline_repository: Repository) -> Repository:
    """The repository of the pipeline, into whose landing folders files were dropped by the hour, days ago."""
    root = pipeline_repository.settings.root
    (root / "custody.toml").write_text('[landing]\nfolder = "landing/%Y-%m-%d/%H"\nlate_minutes = 0\n')
    repository = Repository.open(root)
    for place, hour in enumerate(hour for day in range(DAYS) for hour in (24 * day + hour for hour in HOURS)):
        drop(repository, FIRST + timedelta(hours=hour), place)
    return repository


def drop(repository: Repository, moment: datetime, part: int) -> None:
    [(_, data)] = sample_files(LANDED)
    folder = repository.settings.root / f"landing/{moment:%Y-%m-%d/%H}"
    folder.mkdir(parents=True)
    path = folder / f"part-{part}.json"
    path.write_text(json.dumps(json.loads(data)[part * EACH :][:EACH]))
    an_hour_ago = time.time() - 3600
    os.utime(path, (an_hour_ago, an_hour_ago))


@pytest.fixture(scope="module")
def client(repository: Repository, pipeline_airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with pipeline_airflow.client() as client:
        client.wait_for_dag(DAG_ID)
        yield client


def stored(repository: Repository) -> list[tuple[object, ...]]:
    """What was stored of the files that landed."""
    [(_, data)] = sample_files(LANDED)
    landed = {event["eventId"] for event in json.loads(data)}
    events = [event for event in repository.events(0, 100_000) if event.source_event_id in landed]
    return sorted((event.source_node, event.source_ordinal, event.event_type, event.flowfile_uuid) for event in events)


@pytest.mark.in_parts(2)
def test_a_backfill_backwards_and_once_more_stores_each_event_once(
    client: AirflowClient, repository: Repository
) -> None:
    client.pause(DAG_ID)
    last = FIRST + timedelta(days=DAYS - 1)
    client.unpause(DAG_ID)
    client.wait_for_backfill(client.backfill(DAG_ID, FIRST, last, backwards=True), timeout_s=900)
    days = {f"{FIRST + timedelta(days=day + 1):%Y-%m-%d}" for day in range(DAYS)}
    runs = {run.run_id: run.state for run in client.runs(DAG_ID) if run.run_id.startswith("backfill")}
    assert len(runs) == DAYS
    assert set(runs.values()) == {"success"}
    assert {run_id.removeprefix("backfill__")[:10] for run_id in runs} == days
    for run_id in runs:
        report = client.xcom(DAG_ID, run_id, "ingest")
        assert isinstance(report, dict)
        assert (report["units"], report["events"], report["failed"]) == (len(HOURS), len(HOURS) * EACH, 0)
    first = stored(repository)
    assert len(set(first)) == len(first) == DAYS * len(HOURS) * EACH

    client.wait_for_backfill(client.backfill(DAG_ID, FIRST, last, again=True), timeout_s=900)
    for run_id in runs:
        states = {task.task_id: task.state for task in client.task_instances(DAG_ID, run_id)}
        assert states == {"wait_for_files": "skipped", "ingest": "skipped"}
    assert stored(repository) == first


def test_a_run_by_hand_takes_the_interval_of_its_form_and_waits_for_a_file(
    client: AirflowClient, repository: Repository
) -> None:
    client.unpause(DAG_ID)
    before = len(stored(repository))
    moment = FIRST + timedelta(days=DAYS, hours=5)
    conf = {"start": moment.isoformat(), "end": (moment + timedelta(hours=1)).isoformat(), "wait_seconds": 120}
    run_id = client.trigger(DAG_ID, conf)
    for _ in range(240):
        if any(task.state == "deferred" for task in client.task_instances(DAG_ID, run_id)):
            break
        time.sleep(0.5)
    else:
        pytest.fail("the sensor was not deferred")
    drop(repository, moment, DAYS * len(HOURS))
    assert client.wait_for_run(DAG_ID, run_id).state == "success"
    assert len(stored(repository)) == before + EACH


@pytest.mark.in_parts(2)
def test_a_run_by_hand_without_an_interval_looks_at_the_last_hours(
    client: AirflowClient, repository: Repository
) -> None:
    client.unpause(DAG_ID)
    now = datetime.now(UTC)
    drop(repository, now, DAYS * len(HOURS) + 1)
    before = len(stored(repository))
    run_id = client.trigger(DAG_ID)
    assert client.wait_for_run(DAG_ID, run_id).state == "success"
    assert len(stored(repository)) == before + EACH
    waited = client.xcom(DAG_ID, run_id, "wait_for_files")
    assert isinstance(waited, dict)
    assert (waited["files"], waited["writing"]) == (1, 0)
