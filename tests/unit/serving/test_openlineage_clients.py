"""The Python client of OpenLineage, blocking and asynchronous, against the server: nothing is lost or stored twice."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import (
    DatasetEvent,
    InputDataset,
    Job,
    JobEvent,
    OutputDataset,
    Run,
    RunEvent,
    StaticDataset,
)
from openlineage.client.event_v2 import RunState as State
from openlineage.client.facet_v2 import error_message_run, schema_dataset
from openlineage.client.serde import Serde

from custody.repository import Repository
from custody.serving.access import Scope
from tests.unit.serving.serve_process import Served, served, token

TIME = "2026-11-01T10:00:{:02d}.123456+00:00"
WITH_TOKENS = {"CUSTODY__SERVE__TOKEN_FILE": "tokens"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("clients") / "repository"
    Repository.create(root)
    return root


@pytest.fixture(scope="module")
def key(root: Path) -> str:
    return token(root, "airflow", Scope.APPEND)["authorization"].split()[1]


@pytest.fixture(scope="module")
def at(root: Path, key: str) -> Iterator[Served]:
    assert key
    with served(root, "--quiet", **WITH_TOKENS) as server:
        yield server


def client(kind: str, url: str, key: str, **options: Any) -> OpenLineageClient:
    auth = {"type": "api_key", "apiKey": key}
    return OpenLineageClient(config={"transport": {"type": kind, "url": url, "auth": auth, **options}})


def events(number: int) -> list[Any]:
    """The events of one run, of a dataset and of a job."""
    run = Run(runId=str(uuid.UUID(int=number << 80 | 7 << 76 | 2 << 62 | 1)))
    job = Job(namespace="garden", name=f"grow_{number}")
    schema = schema_dataset.SchemaDatasetFacet(fields=[schema_dataset.SchemaDatasetFacetFields("height", "double")])
    seed = InputDataset(namespace="lake://east", name="seed", facets={"schema": schema})
    tree = OutputDataset(namespace="lake://east", name="tree")
    run_events = [
        RunEvent(eventTime=TIME.format(second), run=run, job=job, eventType=state, inputs=[seed], outputs=[tree])
        for second, state in enumerate((State.START, State.RUNNING, State.RUNNING, State.COMPLETE))
    ]
    error = error_message_run.ErrorMessageRunFacet("no water: näss", "PYTHON", "trace\nback")
    failed = Run(runId=str(uuid.UUID(int=number << 80 | 7 << 76 | 2 << 62 | 2)), facets={"errorMessage": error})
    return [
        *run_events,
        RunEvent(eventTime=TIME.format(5), run=failed, job=job, eventType=State.FAIL),
        DatasetEvent(eventTime=TIME.format(6), dataset=StaticDataset(namespace="lake://east", name=f"pot_{number}")),
        JobEvent(eventTime=TIME.format(7), job=job, inputs=[seed], outputs=[tree]),
    ]


def stored(root: Path, number: int) -> list[dict[str, Any]]:
    documents = [json.loads(event.extra or "")["openlineage"] for event in Repository.open(root).events()]
    return [one for one in documents if str(number) in json.dumps([one.get("job"), one.get("dataset")])]


def in_order(documents: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(documents, key=lambda document: str(document["eventTime"]))


@pytest.mark.parametrize(("kind", "number"), [("http", 1001), ("async_http", 2002)])
@pytest.mark.parametrize("compression", [None, "gzip"])
def test_each_event_of_a_client_is_stored_once_as_the_client_made_it(
    at: Served, root: Path, key: str, kind: str, number: int, compression: str | None
) -> None:
    number += 10 * (compression is not None)
    sent = events(number)
    for _ in range(2):  # as after an answer that was lost
        sender = client(kind, at.url, key, compression=compression)
        for event in sent:
            sender.emit(event)
        assert sender.close(timeout=30) is not False
    kept = stored(root, number)
    assert in_order(kept) == in_order([json.loads(Serde.to_json(event)) for event in sent])
    assert list(Repository.open(root).quarantine.entries()) == []


@pytest.mark.parametrize(("path", "number"), [("/openlineage/", 3003), ("", 3013), ("/", 3023)])
def test_the_client_reaches_the_server_at_each_documented_url(
    at: Served, root: Path, key: str, path: str, number: int
) -> None:
    sender = client("http", f"{at.url}{path}", key)
    for event in events(number):
        sender.emit(event)
    assert len(stored(root, number)) == len(events(number))


def test_a_wrong_key_is_an_error_that_the_client_sees(at: Served, root: Path) -> None:
    sender = client("http", at.url, "custody_wrong-key-of-a-client")
    with pytest.raises(Exception, match="401"):
        sender.emit(events(4004)[0])
    assert stored(root, 4004) == []


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(("kind", "number"), [("http", 5005), ("async_http", 6006)])
def test_a_client_that_is_told_to_come_again_does_and_loses_nothing(tmp_path: Path, kind: str, number: int) -> None:
    root = tmp_path / "repository"
    Repository.create(root)
    key = token(root, "airflow", Scope.APPEND)["authorization"].split()[1]
    looker = token(root, "looker", Scope.READ)
    limits = {
        "CUSTODY__JOURNAL__WAITING_BYTES_MAX": "6000",
        "CUSTODY__JOURNAL__SEAL_BYTES": "4096",
        "CUSTODY__JOURNAL__SEAL_SECONDS": "0.1",
        "CUSTODY__JOURNAL__BACKPRESSURE_SECONDS": "0",
    }
    sent = events(number)
    with served(root, "--quiet", **WITH_TOKENS, **limits) as at:
        sender = client(kind, at.url, key, retry={"total": 12, "backoff_factor": 0.3})
        # The journals are full soon; a rollover now and then makes room.
        done = Event()
        rolling = Thread(target=roll_over_until, args=(root, done))
        rolling.start()
        try:
            for event in sent:
                sender.emit(event)
            sender.close(timeout=60)
        finally:
            done.set()
            rolling.join()
        measures = at.measures(looker)
    assert measures['custody_refusals_total{door="openlineage",reason="backpressure"}'] > 0
    assert in_order(stored(root, number)) == in_order([json.loads(Serde.to_json(event)) for event in sent])


def roll_over_until(root: Path, done: Event) -> None:
    while not done.wait(2):
        Repository.open(root).roll_over()
