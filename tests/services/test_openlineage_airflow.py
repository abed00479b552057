"""Airflow's own OpenLineage provider in a real Airflow delivers to the server: events of a run, and its lineage."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.model import Event
from custody.repository import Repository
from custody.serving.access import Scope, add_token
from custody.vfs import PosixFileSystem
from custody_local.airflow import LocalAirflow
from tests.own_environment import folder_of
from tests.unit.serving.serve_process import Served, served

pytestmark = pytest.mark.slow
HERE = Path(__file__).parent
WAIT_SECONDS = 120
DAG = """\
from airflow.sdk import Asset, dag, task

ORDERS, CLEAN, REPORT = (Asset(f"file:///data/{name}") for name in ("orders.csv", "clean.csv", "report.csv"))


@dag(schedule=None, catchup=False)
def sales():
    @task(inlets=[ORDERS], outlets=[CLEAN])
    def clean():
        pass

    @task(inlets=[CLEAN], outlets=[REPORT])
    def report():
        pass

    @task
    def refuse():
        raise ValueError("expected a name, got none")

    clean() >> [report(), refuse()]


sales()
"""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[Served, str]]:
    """The server, and a token for it."""
    root = tmp_path / "repository"
    Repository.create(root)
    token = add_token(PosixFileSystem(), root / "tokens", "airflow", frozenset({Scope.APPEND}), "")
    (root / "custody.toml").write_text('[serve]\ntoken_file = "tokens"\n')
    with served(root, "--door", "openlineage") as at:
        yield at, token


def test_the_events_of_a_run_arrive_and_its_lineage_is_right(server: tuple[Served, str], tmp_path: Path) -> None:
    at, token = server
    (tmp_path / "project" / "dags").mkdir(parents=True)
    (tmp_path / "project" / "dags" / "sales.py").write_text(DAG)
    packages = folder_of("openlineage-airflow", HERE / "openlineage-airflow-requirements.txt")
    path = os.pathsep.join(
        filter(None, (str(HERE.parents[1] / "include"), str(packages), os.environ.get("PYTHONPATH")))
    )
    transport = {"type": "http", "url": at.url, "auth": {"type": "api_key", "apiKey": token}}
    settings = {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport), "AIRFLOW__OPENLINEAGE__NAMESPACE": "plant"}
    environ = {**os.environ, "PYTHONPATH": path}
    with LocalAirflow(tmp_path / "project", settings=settings, environ=environ) as airflow, airflow.client() as client:
        client.wait_for_dag("sales")
        client.unpause("sales")
        run_id = client.trigger("sales")
        assert client.wait_for_run("sales", run_id).state == "failed"
        events = arrived(tmp_path / "repository", 8)
    assert at.process.poll() is None
    check(events, Repository.open(tmp_path / "repository"))


def check(events: list[Event], repository: Repository) -> None:
    """Of the run and of each task its beginning and its end, and files as their parents and children."""
    told = Counter((event.component_name, event.updated_attributes["openlineage.event_type"]) for event in events)
    ends = {"sales": "FAIL", "sales.clean": "COMPLETE", "sales.report": "COMPLETE", "sales.refuse": "FAIL"}
    assert told == Counter([*((name, "START") for name in ends), *ends.items()])
    assert list(repository.quarantine.entries()) == []
    [clean] = (event for event in events if (event.component_name, event.event_type) == ("sales.clean", "JOIN"))
    [report] = (event for event in events if (event.component_name, event.event_type) == ("sales.report", "JOIN"))
    assert report.parent_uuids == clean.child_uuids
    files = [
        json.loads(event.extra or "{}")["openlineage"][side]
        for event in (clean, report)
        for side in ("inputs", "outputs")
    ]
    assert [[(one["namespace"], one["name"]) for one in some] for some in files] == [
        [("file", f"/data/{name}.csv")] for name in ("orders", "clean", "clean", "report")
    ]
    lineage = repository.lineage(report.child_uuids)
    names = {event.component_name for node in lineage.nodes.values() for event in node.events}
    assert names == {"sales.clean", "sales.report"}
    assert {*clean.parent_uuids, *clean.child_uuids, *report.child_uuids} <= lineage.nodes.keys()


def arrived(root: Path, least: int) -> list[Event]:
    """The events, once no more come for some seconds: the provider sends them from processes of its own."""
    deadline, count = time.monotonic() + WAIT_SECONDS, -1
    while time.monotonic() < deadline:
        events = list(Repository.open(root).events(0, 10_000))
        if len(events) >= least and len(events) == count:
            return events
        count = len(events)
        time.sleep(5)
    raise AssertionError(f"expected at least {least} events, got {count}")
