"""The rollover in a real Airflow: triggered as its web page does, every task a real spark-submit."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from custody.airflow_runs import AirflowApi, Credentials, Reconciliation
from custody.model import Event
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.spool_sender import sender_into
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient
from tests.airflow.pipeline import EVENTS

pytestmark = pytest.mark.airflow

DAG_ID = "provenance_rollover"


@pytest.fixture(scope="module")
def repository(pipeline_repository: Repository) -> Repository:
    return pipeline_repository


@pytest.fixture(scope="module")
def airflow(pipeline_airflow: LocalAirflow) -> LocalAirflow:
    return pipeline_airflow


@pytest.fixture(scope="module")
def client(airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with airflow.client() as client:
        for dag_id in (DAG_ID, "provenance_maintenance", "follower"):
            client.wait_for_dag(dag_id)
            client.unpause(dag_id)
        yield client


def _run(client: AirflowClient, conf: dict[str, object] | None = None) -> tuple[str, dict[str, str | None]]:
    run_id = client.trigger(DAG_ID, conf)
    client.wait_for_run(DAG_ID, run_id)
    return run_id, {task.task_id: task.state for task in client.task_instances(DAG_ID, run_id)}


def test_a_triggered_run_makes_every_event_live_and_each_task_reports(
    client: AirflowClient, repository: Repository
) -> None:
    run_id, states = _run(client)
    skipped = dict.fromkeys(["wait_for_leftovers", "recover"], "skipped")
    assert states == {**dict.fromkeys(["wait_for_journals", *STEPS], "success"), **skipped}
    waited = client.xcom(DAG_ID, run_id, "wait_for_journals")
    assert isinstance(waited, dict)
    assert waited["sealed_groups"] == 1
    for step in ("rollover", "compress", "index", "commit"):
        report = client.xcom(DAG_ID, run_id, step)
        assert isinstance(report, dict)
        assert (report["step"], report["events"], report["failed"]) == (step, EVENTS, 0)
    assert repository.search("", limit=1).total == EVENTS
    assert "spark-submit" in client.task_log(DAG_ID, run_id, "compress")


def test_which_run_wrote_an_event_log_is_told_by_airflow_and_the_reports_of_the_steps(
    airflow: LocalAirflow, client: AirflowClient, repository: Repository, tmp_path: Path
) -> None:
    [run] = client.runs(DAG_ID)
    # Into a repository of its own: the events of the other one are counted.
    runs = Repository.create(tmp_path / "runs")
    api = AirflowApi(airflow.url, Credentials(airflow.user, airflow.password))
    with sender_into(runs, tmp_path) as sender:
        reports = repository.settings.runs
        Reconciliation(api, sender, tmp_path, deployment="airflow", reports=reports, settle_ms=0).run()
    workspace = repository.workspace()
    state = workspace.catalog.load()
    [log], [shard] = state.files, state.shards.values()
    for written, task in ((workspace.log_path(log), "compress"), (workspace.shard_path(shard), "index")):
        [wrote] = runs.search(f'transit_uri:"{written.as_uri()}"').events
        assert wrote.event.component_id == f"{DAG_ID}.{task}", written
        assert wrote.event.updated_attributes["airflow.run_id"] == run.run_id
    commit = runs.search("component_name:commit AND event_type:SEND").events
    assert [stored.event.transit_uri for stored in commit] == ["custody://provenance/commits"]


def test_a_commit_is_an_event_that_starts_the_dags_that_follow_it(
    client: AirflowClient, repository: Repository
) -> None:
    [run] = client.wait_for_runs("follower", 1)
    assert (run.state, run.kind) == ("success", "asset_triggered")
    catalog = repository.workspace().catalog.load()
    [told] = _as_list(client.xcom("follower", run.run_id, "look"))
    assert told == {
        "repository": str(repository.settings.root),
        "since": {},
        "revisions": {"main": catalog.revision},
        "files": len(catalog.files),
        "events": EVENTS,
        "bytes": sum(file.size_bytes for file in catalog.files.values()),
    }
    [event] = client.asset_events("provenance_commits")
    assert (event["uri"], event["extra"]) == ("custody://provenance/commits", told)


def test_a_run_with_nothing_new_is_skipped_and_changes_nothing(client: AirflowClient, repository: Repository) -> None:
    before = sorted(path for path in repository.settings.root.rglob("*") if path.is_file())
    _, states = _run(client)
    assert states == dict.fromkeys(["wait_for_journals", "wait_for_leftovers", *STEPS], "skipped")
    assert sorted(path for path in repository.settings.root.rglob("*") if path.is_file()) == before
    assert len(client.asset_events("provenance_commits")) == 1


@pytest.mark.in_parts(2)
def test_a_run_that_waits_goes_on_once_events_arrive_and_recovers_what_their_dead_writer_left(
    client: AirflowClient, repository: Repository
) -> None:
    run_id = client.trigger(DAG_ID, {"wait_seconds": 120})
    _wait_for_state(client, run_id, "deferred")
    _index(repository, "order.region")
    assert _old_shards(repository) == 1
    torn = _leave_torn(repository)
    assert client.wait_for_run(DAG_ID, run_id).state == "success"
    states = {task.task_id: task.state for task in client.task_instances(DAG_ID, run_id)}
    assert set(states.values()) == {"success"}
    assert repository.status().pending.sealed_groups == 0
    report = client.xcom(DAG_ID, run_id, "recover")
    assert isinstance(report, dict)
    assert report["units"] == 1
    assert repository.search("", limit=1).total == EVENTS + len(torn)
    # And the old shard was built anew: a run does as many as the setting allows.
    report = client.xcom(DAG_ID, run_id, "index")
    assert isinstance(report, dict)
    assert (report["units"], report["failed"]) == (2, 0)
    assert _old_shards(repository) == 0
    first, second = client.wait_for_runs("follower", 2)
    [before] = _as_list(client.xcom("follower", first.run_id, "look"))
    [told] = _as_list(client.xcom("follower", second.run_id, "look"))
    assert (told["since"], told["files"], told["events"]) == (before["revisions"], 1, len(torn))


def test_the_maintenance_builds_all_old_shards_anew_when_asked_for_that_alone(
    client: AirflowClient, repository: Repository
) -> None:
    _index(repository, "order.region", "log.kind")
    shards = len(repository.workspace().catalog.load().shards)
    assert _old_shards(repository, "log.kind", "access") == shards > 0
    dag_id = "provenance_maintenance"
    run_id = client.trigger(dag_id, {"steps": ["rebuild"]})
    assert client.wait_for_run(dag_id, run_id).state == "success"
    states = {task.task_id: task.state for task in client.task_instances(dag_id, run_id)}
    assert states == {
        "absorb": "skipped",
        "compact": "skipped",
        "rebuild": "success",
        "scrub": "skipped",
        "handed_over": "skipped",
    }
    assert _old_shards(repository, "log.kind", "access") == 0


def test_a_value_out_of_the_form_s_bounds_is_refused(client: AirflowClient) -> None:
    with pytest.raises(Exception, match=r"wait_seconds|3600"):
        client.trigger(DAG_ID, {"wait_seconds": 1_000_000})


def test_the_page_of_the_dag_shows_its_documentation(client: AirflowClient) -> None:
    details = client.dag(DAG_ID)
    assert "one catalog transaction" in str(details["doc_md"])
    assert "wait_seconds" in json.dumps(details["params"])


def _index(repository: Repository, *attributes: str) -> None:
    """Change which attributes are indexed: shards that are there do not know them."""
    settings = f"[index]\nattributes = {json.dumps(attributes)}\nbackfill_shards_max = 1\n"
    (repository.settings.root / "custody.toml").write_text(settings)


def _leave_torn(repository: Repository) -> range:
    """Leave what a writer leaves that dies: a journal that is still open, and whose last record broke off."""
    with repository.writer() as writer:
        ids = writer.append([repository.get(0), repository.get(1)])
        journals = repository.settings.containers[0] / "main" / "journals"
        [journal] = journals.glob("*.journal")
        torn = journal.read_bytes() + b"\x40\x00\x00\x00half a record"
    [sealed] = journals.glob("*.sealed")
    sealed.rename(journal)
    journal.write_bytes(torn)
    return ids


def _wait_for_state(client: AirflowClient, run_id: str, state: str) -> None:
    for _ in range(240):
        if any(task.state == state for task in client.task_instances(DAG_ID, run_id)):
            return
        time.sleep(0.5)
    pytest.fail(f"no task came to be {state}")


def _old_shards(repository: Repository, attribute: str = "order.region", value: str = "emea") -> int:
    """Return how many shards do not know an attribute; what is found does not depend on that."""
    opened = Repository.open(repository.settings.root)
    found = opened.search(f"attribute.{attribute}:{value}", limit=100_000)
    expected = [event.event_id for event in opened.events(0, 100_000) if _attributes(event).get(attribute) == value]
    assert expected
    assert sorted(stored.event.event_id for stored in found.events) == expected
    return found.explained["main"].old


def _attributes(event: Event) -> dict[str, str | None]:
    return {**event.previous_attributes, **event.updated_attributes}


def _as_list(value: object) -> list[dict[str, Any]]:
    assert isinstance(value, list)
    return value
