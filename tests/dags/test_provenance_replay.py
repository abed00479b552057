"""The replay DAG as Airflow reads it, and its operators against a repository."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from custody.repository import Repository
from tests.unit.replay.replay_fixtures import drain, fill, found

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")

DROPS = "event_type:DROP"
START, END = "2026-03-02T00:00:00+00:00", "2026-03-03T00:00:00+00:00"


@pytest.fixture
def dag(load_dag: Callable[..., Any]) -> Any:
    return load_dag("provenance_replay")


@pytest.fixture
def operators(repository: Repository, monkeypatch: pytest.MonkeyPatch, load_dag: Callable[..., Any]) -> Any:
    """The module of the operators, for a repository whose flow sent three FlowFiles through."""
    load_dag("provenance_replay")
    fill(repository, 3)
    monkeypatch.setenv("CUSTODY_REPOSITORY", str(repository.settings.root))
    from custody_airflow import replay

    return replay


def context(run_id: str = "manual__1") -> Any:
    return {"ti": SimpleNamespace(dag_id="provenance_replay", run_id=run_id)}


def planned(operators: Any, run_id: str = "manual__1", **arguments: str) -> dict[str, Any]:
    operator = operators.ReplayPlanOperator(task_id="plan", **{"query": DROPS, **arguments})
    return cast(dict[str, Any], operator.execute(context(run_id)))


def replayed(operators: Any, plan: str) -> dict[str, Any]:
    operator = operators.ReplayOperator(task_id="replay", plan=plan, user="alice")
    return cast(dict[str, Any], operator.execute(context()))


def test_the_tasks_follow_one_another_and_are_documented(dag: Any) -> None:
    order = ["plan", "wanted", "replay", "consumers", "trigger", "check"]
    assert [task.task_id for task in dag.topological_sort()] == order
    for task_id in order:
        assert f"`{task_id}`" in dag.doc_md
    assert dag.max_active_runs == 1
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)


def test_the_form_is_typed(dag: Any) -> None:
    assert {name: dag.params.get_param(name).schema["type"] for name in dag.params} == {
        "query": ["null", "string"],
        "plan": ["null", "string"],
        "user": "string",
        "plan_only": "boolean",
        "within_interval": "boolean",
        "skip_changed": "boolean",
    }
    wanted = dag.get_task("wanted").python_callable
    assert (wanted("True"), wanted("False")) == (False, True)


def test_a_backfill_has_intervals(load_dag: Callable[..., Any]) -> None:
    dag = load_dag("provenance_replay")
    assert (dag.timetable.expression, dag.catchup, dag.timetable.can_be_scheduled) == ("0 0 * * *", False, True)
    assert load_dag("provenance_replay", CUSTODY_REPLAY_SCHEDULE="").schedule is None


def test_a_run_without_query_and_plan_is_skipped(operators: Any) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    with pytest.raises(AirflowSkipException, match="nothing to replay"):
        planned(operators, query="")


def test_a_run_makes_one_plan_however_often_it_tries(operators: Any) -> None:
    first = planned(operators)
    assert (first["events"], first["bytes"], first["refused"]) == (3, 21, {})
    assert planned(operators) == first
    assert planned(operators, "manual__2")["plan"] != first["plan"]
    assert planned(operators, query="event_type:DROP OR event_type:SEND")["plan"] != first["plan"]
    assert planned(operators, "manual__3", query="", plan=first["file"])["plan"] == first["plan"]
    assert planned(operators, "manual__4", query="event_type:CREATE")["refused"] == {"no-source-queue": 3}


def test_a_replay_names_the_dag_of_the_queue_and_its_conf(operators: Any, repository: Repository) -> None:
    plan = planned(operators)
    report = replayed(operators, plan["file"])
    assert (report["replayed"], report["done"], report["stopped"]) == (3, 3, None)
    assert report["triggers"] == [
        {
            "trigger_dag_id": "sort_orders",
            "trigger_run_id": f"replay__{plan['plan']}__orders__3",
            "conf": {"queue": "orders", "replay_plan": plan["plan"], "flowfiles": 3},
        }
    ]
    assert {item.details for item in found(repository, "event_type:REPLAY")} == {"Replay requested by alice"}
    # A try whose worker died behind the replay sends nothing, and triggers the same run.
    assert replayed(operators, plan["file"])["triggers"] == report["triggers"]
    with repository.flowfiles() as flow:
        assert len(drain(flow)) == 3


def test_a_full_queue_fails_the_run_at_its_end_and_the_replay_goes_on_later(
    operators: Any, repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    monkeypatch.setattr("custody.replay.replay_run.BATCH_EVENTS", 2)
    with repository.flowfiles() as flow:
        flow.connect("orders", count_max=2, consumer="sort_orders")
    plan = planned(operators)
    first = replayed(operators, plan["file"])
    assert (first["done"], len(first["triggers"])) == (2, 1)
    with pytest.raises(AirflowFailException, match=r"2 of 3 events are done.* Clear the task `replay`"):
        operators.ReplayCheckOperator(task_id="check", stopped=first["stopped"]).execute(context())
    with repository.flowfiles() as flow:
        drain(flow)
    second = replayed(operators, plan["file"])
    assert (second["replayed"], second["stopped"]) == (1, None)
    assert second["triggers"][0]["trigger_run_id"] != first["triggers"][0]["trigger_run_id"]
    operators.ReplayCheckOperator(task_id="check", stopped="").execute(context())


def test_the_interval_bounds_the_query_up_to_its_end(operators: Any, repository: Repository) -> None:
    query = operators.bounded("a:b OR c:d", START, END)
    assert query == "(a:b OR c:d) AND event_time:[1772409600000 TO 1772495999999]"
    assert planned(operators, "backfill__1", within_interval="True", start=START, end=END)["events"] == 0
    today = found(repository, DROPS)[0].event_time
    around = {"start": _text(today - 60_000), "end": _text(today + 60_000)}
    assert planned(operators, "backfill__2", within_interval="True", **around)["events"] == 3


def test_a_run_by_hand_has_no_interval(operators: Any) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="Bound the query itself"):
        planned(operators, within_interval="True", start="", end="")


def test_plans_lie_in_the_repository(operators: Any, repository: Repository) -> None:
    assert Path(planned(operators)["file"]).parent == repository.settings.root / "replays"


def _text(milliseconds: int) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat()
