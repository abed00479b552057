"""Notifications posted to a real API server of Airflow with two workers: each is a writer, none is lost."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from tests.unit.serving.receiver_process import JSON, notification

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
TOKEN = {**JSON, "authorization": "Bearer a-token-for-this-test"}
SECONDS_MAX = 120


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a writer slot for each worker, and a token."""
    root = tmp_path_factory.mktemp("mount") / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text('[repository]\nwriter_slots = 2\n[receiver]\ntoken_file = "tokens"\n')
    (root / "tokens").write_text("a-token-for-this-test\n")
    (root / "tokens").chmod(0o600)
    return root


@pytest.fixture(scope="module")
def airflow(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    schedules = dict.fromkeys(
        (f"CUSTODY_{name}_SCHEDULE" for name in ("ROLLOVER", "INGEST", "RETENTION", "MAINTENANCE")), ""
    )
    settings = {**schedules, "CUSTODY_NGSI_MOUNT": "/custody/ngsi", "AIRFLOW__API__WORKERS": "2"}
    home = tmp_path_factory.mktemp("airflow")
    with LocalAirflow(PROJECT, home=home, repository=root, settings=settings) as running:
        yield running


def test_both_workers_store_what_they_answer_with_200(airflow: LocalAirflow, root: Path) -> None:
    url = f"{airflow.url}/custody/ngsi/notify"
    stranger = httpx.post(url, content=notification(0), headers=JSON, timeout=60, trust_env=False)
    assert (stranger.status_code, stranger.json()["error"]) == (401, "token")
    with airflow.client() as client:
        assert client.import_errors() == {}
    told: dict[str, dict[int, bytes]] = defaultdict(dict)
    deadline = time.monotonic() + SECONDS_MAX
    number = 0
    while len(told) < 2 or number < 40:  # the system chooses the worker, connection by connection
        assert time.monotonic() < deadline, f"only {sorted(told)} were reached"
        number += 1
        answer = httpx.post(url, content=notification(number), headers=TOKEN, timeout=60, trust_env=False)
        assert answer.status_code == 200, answer.text
        told[answer.json()["writer"]][answer.json()["first_event_id"]] = notification(number)
    assert set(told) == {"main", "main-2"}
    broken = httpx.post(url, content=b"{nonsense", headers=TOKEN, timeout=60, trust_env=False)
    assert (broken.status_code, broken.json()["error"]) == (400, "not-json")
    airflow.stop(timeout_s=60)
    repository = Repository.open(root)
    assert repository.status().slots_taken == 0
    for writer, sent in told.items():
        by_id = {event.event_id: event for event in repository.events(writer=writer)}
        assert {number: repository.content(by_id[number]).read() for number in sent} == sent
    assert [entry.code for entry in repository.quarantine.entries()] == ["not-json"]
    assert {path.suffix for path in root.glob("containers/*/*/journals/*")} == {".sealed"}
