"""A run of a DAG is told as its events are, by the events that the listener of runs makes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.testclient import TestClient

from custody.airflow_runs import RunFacts, end_events, start_events
from custody.model import Event
from custody.repository import Repository
from custody.serving import dag_runs
from custody.serving.application import Access
from tests.support import append, event, run_steps
from tests.unit.serving.test_api_changes import client_of

START = datetime(2026, 3, 2, tzinfo=UTC)
RUN = "manual__2026-03-02T00:00:00.123456+00:00"
ODD = 'a run "of mine" \\ /*'


def told(run_id: str, task_id: str | None = None, minute: int = 0, **facts: Any) -> list[Event]:
    start = START + timedelta(minutes=minute)
    one = RunFacts(
        deployment="airflow",
        dag_id="orders",
        run_id=run_id,
        run_after=START,
        state="success",
        start=start,
        end=start + timedelta(seconds=30),
        task_id=task_id,
        **facts,
    )
    return [msgspec.convert(document, Event) for document in (*start_events(one), *end_events(one))]


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    repository = Repository.create(tmp_path_factory.mktemp("runs") / "repository")
    landing, lake = ["hdfs://landing/orders"], ["hdfs://lake/orders"]
    append(
        repository,
        [
            *told("earlier", "land", outlets=landing),
            *told("earlier"),
            *told(RUN, "sort", 1, inlets=landing, outlets=lake),
            *told(RUN, "load", 1, inlets=["s3://nobody/told"], outlets=["db://a"], map_index=0),
            *told(RUN, "load", 1, inlets=lake, outlets=["db://b"], map_index=1),
            *told(RUN, minute=1),
            *told(ODD, "sort", 2, inlets=lake, outlets=["hdfs://odd"]),
            *told(ODD, minute=2),
            event(1),
        ],
    )
    run_steps(repository.settings)
    return Repository.open(repository.settings.root)


@pytest.fixture(scope="module")
def client(repository: Repository) -> Iterator[TestClient]:
    with client_of(repository, Access()) as client:
        yield client


def asked(client: TestClient, run_id: str, **more: str) -> dict[str, Any]:
    answer = client.get("dag-run", params={"dag_id": "orders", "run_id": run_id, **more})
    assert answer.status_code == 200, answer.text
    known: dict[str, Any] = answer.json()
    return known


def names(assets: list[dict[str, Any]]) -> list[str | None]:
    return [asset["name"] for asset in assets]


def test_the_runs_of_a_dag_are_listed_with_their_states_and_times(client: TestClient) -> None:
    runs = client.get("dag-runs", params={"dag_id": "orders"}).json()["items"]
    assert [run["run_id"] for run in runs] == [ODD, RUN, "earlier"]
    assert {run["state"] for run in runs} == {"success"}
    assert [run["ended_ms"] - run["started_ms"] for run in runs] == [30_000] * 3
    assert len(client.get("dag-runs", params={"dag_id": "orders", "limit": 1}).json()["items"]) == 1
    assert client.get("dag-runs", params={"dag_id": "order"}).json()["items"] == []
    # Without a name, the newest of all.
    everything = client.get("dag-runs").json()["items"]
    assert [run for run in everything if run["dag_id"] == "orders"] == runs
    assert len(client.get("dag-runs", params={"limit": 1}).json()["items"]) == 1


@pytest.mark.parametrize("run_id", [RUN, ODD])
def test_a_run_read_and_wrote_what_its_tasks_did(client: TestClient, run_id: str) -> None:
    known = asked(client, run_id)
    if run_id == ODD:
        assert (names(known["wrote"]), names(known["read"])) == (["hdfs://odd"], ["hdfs://lake/orders"])
        return
    assert sorted(map(str, names(known["wrote"]))) == ["db://a", "db://b", "hdfs://lake/orders"]
    # Of what nobody wrote there is no name, and it is not left out.
    assert names(known["read"]) == ["hdfs://landing/orders", None, "hdfs://lake/orders"]
    assert not known["is_cut"]


def test_a_task_and_one_of_its_mapped_instances_have_their_own(client: TestClient) -> None:
    assert names(asked(client, RUN, task_id="sort")["wrote"]) == ["hdfs://lake/orders"]
    assert names(asked(client, RUN, task_id="sort", map_index="-1")["wrote"]) == ["hdfs://lake/orders"]
    assert sorted(map(str, names(asked(client, RUN, task_id="load")["wrote"]))) == ["db://a", "db://b"]
    assert names(asked(client, RUN, task_id="load", map_index="1")["wrote"]) == ["db://b"]


def test_runs_of_one_writer_may_be_of_a_revision_of_it(client: TestClient) -> None:
    for more, known in (({}, 3), ({"writer": "main"}, 3), ({"writer": "main", "as_of": "0"}, 3)):
        assert len(client.get("dag-runs", params={"dag_id": "orders", **more}).json()["items"]) == known
    assert names(asked(client, ODD, writer="main", as_of="0")["read"]) == ["hdfs://lake/orders"]
    assert client.get("dag-runs", params={"dag_id": "orders", "writer": "nobody"}).json()["items"] == []


@pytest.mark.parametrize("more", [{"run_id": "nobody"}, {"run_id": RUN, "task_id": "none"}, {"run_id": RUN.upper()}])
def test_of_a_run_that_nobody_told_of_nothing_is_known(client: TestClient, more: dict[str, str]) -> None:
    answer = client.get("dag-run", params={"dag_id": "orders", **more}).json()
    assert (answer["events"], answer["wrote"], answer["read"]) == ([], [], [])


def test_a_question_without_a_run_is_refused(client: TestClient, tmp_path: Path) -> None:
    assert client.get("dag-run", params={"dag_id": "orders"}).status_code == 400


@contextmanager
def masked(repository: Repository, *masks: str) -> Iterator[TestClient]:
    """The API with masks for everybody."""
    query = repository.settings.query.model_copy(update={"mask_attributes": masks})
    with client_of(Repository(repository.settings.model_copy(update={"query": query})), Access()) as client:
        yield client


QUESTIONS: tuple[dict[str, str], ...] = (
    {"run_id": RUN},
    {"run_id": RUN, "task_id": "sort"},
    {"run_id": RUN, "task_id": "load", "map_index": "1"},
    {"run_id": ODD},
    {"run_id": "nobody"},
)


def test_who_sees_no_file_names_gets_the_same_answer(
    repository: Repository, client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [client.get("dag-run", params={"dag_id": "orders", **question}).json() for question in QUESTIONS]
    assert 8 < len(expected[0]["events"]) <= 12
    monkeypatch.setattr(dag_runs, "EVENTS_MAX", 12)  # several pages of events
    with masked(repository, "filename") as clerk:
        assert [clerk.get("dag-run", params={"dag_id": "orders", **each}).json() for each in QUESTIONS] == expected
        # As far as a request goes, and it says so.
        monkeypatch.setattr(dag_runs, "EVENTS_MAX", 4)
        monkeypatch.setattr(dag_runs, "_PAGES_MAX", 2)
        cut = asked(clerk, RUN)
        assert cut["is_cut"]
        assert "file names are masked: only the newest 8 events were looked at." in cut["notices"]


def test_who_does_not_see_the_names_of_runs_is_told_of_none(repository: Repository) -> None:
    with masked(repository, "filename", "airflow.run_id") as clerk:
        assert [asked(clerk, run_id)["events"] for run_id in (RUN, ODD)] == [[], []]
