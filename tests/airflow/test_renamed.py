"""One Airflow whose repository's folder gets another name: what it knew of the old one stands in nobody's way."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from tests.support import append, event

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_rollover"


def test_commits_of_a_repository_with_another_name_are_told_in_the_same_airflow(tmp_path: Path) -> None:
    told = []
    for name in ("repository", "renamed"):
        repository = Repository.create(tmp_path / name)
        append(repository, [event(0)])
        settings = {"CUSTODY_ROLLOVER_SCHEDULE": ""}
        airflow = LocalAirflow(
            PROJECT, home=tmp_path / "airflow", repository=repository.settings.root, settings=settings
        )
        with airflow, airflow.client() as client:
            client.wait_for_dag(DAG_ID)
            client.unpause(DAG_ID)
            run = client.wait_for_run(DAG_ID, client.trigger(DAG_ID))
            assert run.state == "success"
            told.append(str(repository.settings.root))
            extras = [asset_event["extra"] for asset_event in client.asset_events("provenance_commits")]
            assert [(extra["repository"], extra["events"]) for extra in extras] == [(folder, 1) for folder in told]
