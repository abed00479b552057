"""Each operation of the API that reads events answers of an earlier moment as it would have answered then."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from custody.airflow_runs import RunFacts, end_events, start_events
from custody.model import Event
from custody.repository import EventSelection, Repository
from custody.serving.application import Access
from tests.support import append, event, run_steps
from tests.unit.serving.test_api_changes import client_of
from tests.unit.serving.test_dag_runs import START

NOT_OF_EVENTS = {
    "/": "names of writers",
    "/fields": "settings",
    "/status": "what is live and waits now",
    "/timeline/{writer}": "the transactions themselves, `before` a revision",
    "/timeline/{writer}/difference": "two moments of its own",
    "/timeline/{writer}/chain": "the transactions themselves, up to the newest",
    "/quarantine": "what is no event",
    "/quarantine/{key}": "what is no event",
    "/quarantine/resubmissions": "what is no event",
    "/quarantine/removals": "what is no event",
    "/runs": "reports of steps",
    "/runs/{run}": "reports of steps",
    "/jobs": "what goes on now",
    "/jobs/{job_id}": "what goes on now",
    "/holds": "what is held from now on",
    "/attestations": "each is of a revision of its own, compared with the newest",
    "/hold-counts": "what is held now",
    "/hold-releases": "what is held from now on",
    "/retention/plan": "what goes next",
    "/retention/runs": "what goes now",
    "/forget-plans": "what goes next",
    "/forget-plans/{plan}/runs": "what goes next",
    "/replay-plans/{plan}": "of the moment for which the plan was made",
    "/replay-plans/{plan}/check": "whether it can be sent now",
    "/replay-plans/{plan}/runs": "what is sent now",
}
ASKED: dict[str, dict[str, Any]] = {
    "/events": {"q": "event_type:SEND OR event_type:CREATE", "limit": 100},
    "/events/facets": {"field": ["event_type", "day"]},
    "/events/histogram": {"since": "2026-03-01", "until": "2026-03-04", "buckets": 7},
    "/events/export": {"format": "ndjson"},
    "/lineage": {"flowfile": "the-fork", "depth": 3},
    "/lineage/export": {"flowfile": "the-fork", "format": "dot"},
    "/dag-runs": {"dag_id": "orders"},
    "/dag-run": {"dag_id": "orders", "run_id": "a run"},
}
BODIES: dict[str, dict[str, Any]] = {
    "/events/search": {"query": "", "limit": 100},
    "/sql": {"query": "SELECT event_id, event_type FROM events ORDER BY event_id"},
    "/replay-plans": {"query": ""},
}


def told(run_id: str, outlet: str) -> list[Event]:
    facts: dict[str, Any] = {
        "deployment": "airflow",
        "dag_id": "orders",
        "run_id": run_id,
        "run_after": START,
        "state": "success",
    }
    task: dict[str, Any] = {"task_id": "sort", "inlets": ["hdfs://in"], "outlets": [outlet]}
    documents: list[Any] = []
    for more in (task, {}):
        one = RunFacts(**facts, **more, start=START, end=START)
        documents += [*start_events(one), *end_events(one)]
    return [msgspec.convert(document, Event) for document in documents]


def some(first: int, child: str, run_id: str) -> list[Event]:
    fork = event(first, flowfile_uuid="the-fork", event_type="FORK", parent_uuids=("the-fork",), child_uuids=(child,))
    return [*(event(number) for number in range(first + 1, first + 6)), fork, *told(run_id, f"hdfs://{run_id}")]


@pytest.fixture(scope="module")
def moments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, TestClient, int]]:
    """The API of a repository as it is now, that of a copy that was made before, and the revision of the copy."""
    root = tmp_path_factory.mktemp("moments") / "now"
    repository = Repository.create(root)
    with repository.flowfiles() as flow:
        flow.connect("orders")
    repository.append_with_content([event(0, file_size=7)], b"of then")
    append(repository, some(1, "a-child", "a run"))
    run_steps(repository.settings)
    then = shutil.copytree(root, root.with_name("then"))
    revision = repository.workspace("main").catalog.load().revision
    append(repository, some(100, "another-child", "a run"))
    append(repository, some(200, "a-third-child", "a later run"))
    run_steps(repository.settings)
    with client_of(Repository.open(root), Access()) as now, client_of(Repository.open(then), Access()) as before:
        yield now, before, revision


def answered(client: TestClient, method: str, path: str, as_of: str | None) -> Any:
    here = path.replace("{writer}", "main").replace("{event_id}", "0").lstrip("/")
    if method == "post":
        body = {**BODIES[path], **({} if as_of is None else {"as_of": as_of, "writer": "main"})}
        return client.post(here, json=body, params={"wait": 10} if path == "/replay-plans" else None)
    named = {} if as_of is None else {"as_of": as_of}
    return client.request(method, here, params={**ASKED.get(path, {}), **named})


def told_by(answer: Any) -> Any:
    """What an answer says of events, without the addresses and names that differ by the question."""
    if not answer.headers["content-type"].startswith("application/json"):
        return answer.content
    document = answer.json()
    if "owner" in document:
        return (document["state"], document["done"], document["result"]["refused"])
    if "event" in document:
        # The same event, found in another revision.
        document.pop("as_of")
    for place in (document.get("content"), document.get("previous_content")):
        if isinstance(place, dict):
            place.pop("href", None)
    return {name: value for name, value in document.items() if name not in ("next", "links")}


def test_each_operation_that_reads_events_answers_of_an_earlier_moment(
    moments: tuple[TestClient, TestClient, int],
) -> None:
    now, then, revision = moments
    paths = now.get("openapi.json").json()["paths"]
    looked_at, changed = set(), set()
    for path, operations in paths.items():
        for method, operation in operations.items():
            # Plans that were made are listed at the path where one is made.
            if path in NOT_OF_EVENTS or (method, path) == ("get", "/replay-plans"):
                continue
            names = [one["name"] for one in operation.get("parameters", [])]
            assert method == "post" or "as_of" in names, f"{method} {path} reads events and knows no as_of"
            before, as_of, today = (
                answered(then, method, path, None),
                answered(now, method, path, str(revision)),
                answered(now, method, path, None),
            )
            assert as_of.status_code == before.status_code, (path, as_of.text)
            assert told_by(as_of) == told_by(before), path
            looked_at.add(path)
            if told_by(today) != told_by(before):
                changed.add(path)
    assert looked_at == set(paths) - set(NOT_OF_EVENTS)
    # The question has another answer today, where it is not of one event.
    assert changed == {path for path in looked_at if "{event_id}" not in path}


def test_an_event_that_came_later_was_not_there(moments: tuple[TestClient, TestClient, int]) -> None:
    now, _, revision = moments
    newest = now.get("events", params={"limit": 1}).json()["items"][0]["event"]["event_id"]
    for end in ("", "/nifi", "/content", "/content/previous", "/software"):
        address = f"events/main/{newest}{end}"
        assert now.get(address, params={"as_of": str(revision)}).status_code == 404, address
    assert now.get(f"events/main/{newest}").status_code == 200


def test_what_an_event_of_then_links_to_is_of_then(moments: tuple[TestClient, TestClient, int]) -> None:
    now, _, revision = moments
    one = now.get("events/main/0", params={"as_of": str(revision)}).json()
    assert now.get(one["content"]["href"]).content == b"of then"
    assert f"as_of={revision}" in one["content"]["href"]
    assert now.get(one["links"]["nifi"]).json()["entityId"] == one["event"]["flowfile_uuid"]
    assert f"as_of={revision}" in one["links"]["lineage"]


def test_a_forgotten_event_is_in_no_earlier_moment_either(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "repository")
    repository.append_with_content([event(0, file_size=7)], b"of then")
    run_steps(repository.settings)
    revision = repository.workspace("main").catalog.load().revision
    repository.forget(EventSelection(event_ids=[0]), "a test", "main")
    with client_of(Repository.open(repository.settings.root), Access()) as client:
        for end in ("", "/nifi", "/content", "/software"):
            answer = client.get(f"events/main/0{end}", params={"as_of": str(revision)})
            assert answer.status_code == 404, (end, answer.text)
