"""The NGSI sink in a real Airflow: after a commit, by hand, and by a backfill in any order and twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient
from tests.unit.ngsi_sink.sink_repository import bench, receive

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID, ROLLOVER = "ngsi_to_hdfs", "provenance_rollover"
FIRST = datetime(2026, 11, 9, tzinfo=UTC)
DAYS = 3
SETTINGS = """
[repository]
writer_slots = 2
[ngsi]
hdfs_username = "warden"
hive = false
batch_size = 1000
batch_timeout = 100000000
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository with a notification of each day in its journals; no batch of them is due by itself."""
    root = tmp_path_factory.mktemp("ngsi") / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS)
    repository = Repository.open(root)
    for day in range(DAYS):
        noon = FIRST + timedelta(days=day, hours=12)
        receive(repository, [bench(day)], int(noon.timestamp() * 1000))
    return repository


@pytest.fixture(scope="module")
def client(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowClient]:
    home = tmp_path_factory.mktemp("airflow")
    # A day an interval; nothing but this test starts a rollover.
    schedules = {"CUSTODY_ROLLOVER_SCHEDULE": "", "CUSTODY_NGSI_SCHEDULE": "0 0 * * *"}
    airflow = LocalAirflow(PROJECT, home=home, repository=repository.settings.root, settings=schedules)
    with airflow, airflow.client() as client:
        client.wait_for_dag(DAG_ID)
        client.wait_for_dag(ROLLOVER)
        yield client


def values(repository: Repository) -> list[str]:
    path = repository.settings.root / "hdfs/user/warden/parks/north/Bench1_Bench/Bench1_Bench.txt"
    return [json.loads(line)["attrValue"] for line in path.read_text().splitlines()] if path.exists() else []


def states(client: AirflowClient, run_id: str) -> dict[str, str | None]:
    return {task.task_id: task.state for task in client.task_instances(DAG_ID, run_id)}


def test_commits_hands_and_backfills_write_each_notification_once(
    client: AirflowClient, repository: Repository
) -> None:
    client.unpause(DAG_ID)
    client.unpause(ROLLOVER)
    assert client.wait_for_run(ROLLOVER, client.trigger(ROLLOVER)).state == "success"
    # The commit starts a run; no batch is full or old.
    [run] = [item for item in client.wait_for_runs(DAG_ID, 1) if item.run_id.startswith("asset")]
    assert client.wait_for_run(DAG_ID, run.run_id).state == "success"
    assert values(repository) == []

    last = FIRST + timedelta(days=DAYS - 1)
    client.wait_for_backfill(client.backfill(DAG_ID, FIRST, last, backwards=True), timeout_s=900)
    assert values(repository) == ["1000", "1001", "1002"]
    client.wait_for_backfill(client.backfill(DAG_ID, FIRST, last, again=True), timeout_s=900)
    backfilled = [item for item in client.runs(DAG_ID) if item.run_id.startswith("backfill")]
    assert len(backfilled) == DAYS
    for item in backfilled:
        assert states(client, item.run_id) == {"wait_for_notifications": "skipped", "persist": "skipped"}
    assert values(repository) == ["1000", "1001", "1002"]

    receive(repository, [bench(9)], int(datetime.now(UTC).timestamp() * 1000))
    assert client.wait_for_run(ROLLOVER, client.trigger(ROLLOVER)).state == "success"
    until = (datetime.now(UTC) + timedelta(minutes=1)).isoformat()
    run_id = client.trigger(DAG_ID, {"until": until})
    assert client.wait_for_run(DAG_ID, run_id).state == "success"
    assert values(repository) == ["1000", "1001", "1002", "1009"]
    report = client.xcom(DAG_ID, run_id, "persist")
    assert isinstance(report, dict)
    assert (report["step"], report["events"], report["failed"]) == (DAG_ID, 1, 0)
