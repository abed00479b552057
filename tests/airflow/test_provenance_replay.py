"""A replay in a real Airflow: a run of the form starts the DAG that consumes the queue; a backfill goes day by day."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from custody.clock import ManualClock
from custody.examples.web_crawler import SEEN, CrawlOptions, crawl
from custody.examples.web_site import web_site
from custody.model import Event
from custody.repository import Repository
from custody_local.airflow import LocalAirflow
from custody_local.airflow_api import AirflowClient

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID, CONSUMER, QUEUE = "provenance_replay", "web_crawler", "crawl_keyword_lines"
MAILED = "component_id:web_crawler.put_email AND event_type:DROP"
MAILS = 3
CRAWLED = (datetime.now(UTC) - timedelta(days=2)).replace(hour=12, minute=0, second=0, microsecond=0)
RUN_SECONDS_MAX = 900


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository whose site was crawled by the program two days ago; the queue of its mails names its DAG."""
    root = tmp_path_factory.mktemp("replay") / "repository"
    Repository.create(root)
    crawled = Repository(Repository.open(root).settings, clock=ManualClock(int(CRAWLED.timestamp() * 1000)))
    with web_site() as port, crawled.flowfiles() as flow:
        flow.connect(QUEUE, consumer=CONSUMER)
        assert crawl(flow, CrawlOptions(root.with_name(f"{root.name}-crawled"), port))["PutEmail"] == MAILS
    return Repository.open(root)


@pytest.fixture(scope="module")
def client(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AirflowClient]:
    home = tmp_path_factory.mktemp("airflow")
    # The schedule is left as it is: backfills need it. Its own runs have no query and are skipped.
    settings = {"CUSTODY_ROLLOVER_SCHEDULE": ""}
    airflow = LocalAirflow(PROJECT, home=home, repository=repository.settings.root, settings=settings)
    with airflow, airflow.client() as client:
        for dag_id in (DAG_ID, CONSUMER):
            client.wait_for_dag(dag_id)
            client.unpause(dag_id)
        yield client


def form(**values: object) -> dict[str, object]:
    """What the form of the page sends: each of its fields, as it was or as it was filled in."""
    empty = {"query": None, "plan": None, "user": "airflow"}
    unchecked = dict.fromkeys(("plan_only", "within_interval", "skip_changed"), False)
    return {**empty, **unchecked, **values}


def run(client: AirflowClient, conf: dict[str, object]) -> tuple[str, dict[str, str | None]]:
    """Start a run and wait for it; return its name and the states of its tasks."""
    run_id = client.trigger(DAG_ID, conf)
    assert client.wait_for_run(DAG_ID, run_id, timeout_s=RUN_SECONDS_MAX).state == "success"
    return run_id, states(client, run_id)


def states(client: AirflowClient, run_id: str) -> dict[str, str | None]:
    return {task.task_id: task.state for task in client.task_instances(DAG_ID, run_id)}


def document(client: AirflowClient, run_id: str, task_id: str) -> dict[str, Any]:
    value = client.xcom(DAG_ID, run_id, task_id)
    assert isinstance(value, dict)
    return value


def found(repository: Repository, query: str) -> list[Event]:
    return [stored.event for stored in repository.search(query, limit=1000, oldest_first=True).events]


def require_consumed(client: AirflowClient, repository: Repository, report: dict[str, Any], mails: int) -> None:
    """Fail unless the consumer ran once for the replay, with its reference as conf, and did what was sent to it."""
    plan = report["plan"]
    [triggered] = [one for one in client.runs(CONSUMER) if one.run_id.startswith(f"replay__{plan}__")]
    assert triggered.run_id == f"replay__{plan}__{QUEUE}__{MAILS}"
    assert client.wait_for_run(CONSUMER, triggered.run_id, timeout_s=RUN_SECONDS_MAX).state == "success"
    conf = client.params(CONSUMER, triggered.run_id)
    assert {name: conf[name] for name in ("queue", "replay_plan", "flowfiles")} == {
        "queue": QUEUE,
        "replay_plan": plan,
        "flowfiles": MAILS,
    }
    waiting = {status.connection.name: status.count for status in repository.queues().queues() if status.count}
    assert waiting == {SEEN: 1}, "the crawl itself was not done again"
    replays = found(repository, "event_type:REPLAY")
    assert len(replays) == mails
    sent = found(repository, f'event_type:SEND AND process_group_id:"{triggered.run_id}"')
    assert {event.component_id for event in sent} == {"web_crawler.round_1.put_email"}
    children = {uuid for event in replays for uuid in event.child_uuids}
    assert len(sent) == MAILS
    assert {event.flowfile_uuid for event in sent} <= children


def test_a_run_from_the_form_replays_each_event_once_and_its_consumer_works(
    client: AirflowClient, repository: Repository
) -> None:
    planned, states_of_plan = run(client, form(query=MAILED, plan_only=True))
    assert states_of_plan["wanted"] == "success"
    assert {states_of_plan[task] for task in ("replay", "consumers", "check")} == {"skipped"}
    assert found(repository, "event_type:REPLAY") == []

    plan = document(client, planned, "plan")
    assert (plan["events"], plan["refused"]) == (MAILS, {})
    replayed, states_of_run = run(client, form(plan=plan["file"], user="alice"))
    assert set(states_of_run.values()) == {"success"}
    report = document(client, replayed, "replay")
    assert (report["plan"], report["replayed"], report["stopped"]) == (plan["plan"], MAILS, None)
    require_consumed(client, repository, report, MAILS)
    assert {event.details for event in found(repository, "event_type:REPLAY")} == {"Replay requested by alice"}

    again, _ = run(client, form(plan=plan["file"], user="alice"))
    assert document(client, again, "replay")["replayed"] == 0
    require_consumed(client, repository, report, MAILS)


def test_a_run_without_a_query_is_skipped(client: AirflowClient) -> None:
    _, states_of_run = run(client, form())
    assert set(states_of_run.values()) == {"skipped"}


def test_a_backfill_replays_the_events_of_each_of_its_days(client: AirflowClient, repository: Repository) -> None:
    before = len(found(repository, "event_type:REPLAY"))
    midnight = CRAWLED.replace(hour=0)
    conf = {"query": MAILED, "within_interval": True}
    days = client.backfill(DAG_ID, midnight - timedelta(days=2), midnight, conf=conf)
    client.wait_for_backfill(days, timeout_s=RUN_SECONDS_MAX)
    runs = [one for one in client.runs(DAG_ID) if one.run_id.startswith("backfill__")]
    assert {one.state for one in runs} == {"success"}
    reports = [document(client, one.run_id, "replay") for one in runs]
    assert sorted(report["replayed"] for report in reports) == [0, 0, MAILS]
    [report] = [report for report in reports if report["replayed"]]
    require_consumed(client, repository, report, before + MAILS)
