"""The watch over due batches in a real Airflow: acknowledged notifications become lines without a rollover."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from tests.unit.ngsi_sink.sink_repository import append, values

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "ngsi_to_hdfs"
TIMEOUT_SECONDS = 20
SETTINGS = f"""
[repository]
writer_slots = 2
[ngsi]
hdfs_username = "warden"
hive = false
batch_size = 1000
batch_timeout = {TIMEOUT_SECONDS}
"""
RUN_SECONDS_MAX = 600


def test_a_batch_that_is_due_starts_a_run_and_no_rollover_is_needed(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(SETTINGS)
    repository = Repository.open(root)
    # The 29th of February neither comes in the time of a test nor came since the DAG's first day.
    schedules = {
        "CUSTODY_NGSI_WATCH": "0.5",
        "CUSTODY_ROLLOVER_SCHEDULE": "0 0 29 2 *",
        "CUSTODY_NGSI_SCHEDULE": "0 0 29 2 *",
    }
    airflow = LocalAirflow(PROJECT, home=tmp_path / "airflow", repository=root, settings=schedules)
    with airflow, airflow.client() as client, repository.writer() as writer:
        client.wait_for_dag(DAG_ID)
        client.unpause(DAG_ID)
        for number, runs in ((1, 1), (2, 2)):
            received = time.time()
            append(writer, repository, number, int(received * 1000))
            [run, *_] = sorted(
                client.wait_for_runs(DAG_ID, runs, timeout_s=RUN_SECONDS_MAX),
                key=lambda item: item.run_id,
                reverse=True,
            )
            assert (run.state, run.kind) == ("success", "asset_triggered")
            assert run.start is not None
            assert values(repository) == [str(1000 + item) for item in range(1, number + 1)]
            waited = run.start.timestamp() - received
            print(f"received to the start of the run: {waited:.1f} s, to its end {time.time() - received:.1f} s")  # noqa: T201
            assert waited >= TIMEOUT_SECONDS
    assert repository.status().writers[0].events_live == 0
