"""The ingest DAG as Airflow reads it: its intervals, its form, and what the deployment decides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from custody.errors import ConfigurationError, InvalidInputError

# Airflow's own warnings are not this project's errors.
pytestmark = pytest.mark.filterwarnings("default")


@pytest.fixture
def load(load_dag: Callable[..., Any]) -> Callable[..., Any]:
    """Returns the DAG as it is under an environment."""
    return partial(load_dag, "provenance_ingest")


def test_missed_intervals_are_made_up_from_the_named_day_on(load: Callable[..., Any]) -> None:
    dag = load()
    assert (dag.catchup, dag.timetable.expression) == (False, "0 * * * *")
    dag = load(CUSTODY_INGEST_SINCE="2026-11-01", CUSTODY_INGEST_SCHEDULE="0 0 * * *")
    assert (dag.catchup, dag.timetable.expression) == (True, "0 0 * * *")
    assert dag.start_date == datetime(2026, 11, 1, tzinfo=UTC)
    assert load(CUSTODY_INGEST_SCHEDULE="").schedule is None


def test_the_dag_is_documented_and_its_form_is_typed(load: Callable[..., Any]) -> None:
    dag = load()
    for task_id in dag.task_ids:
        assert f"`{task_id}`" in dag.doc_md
    assert dag.get_task("wait_for_files").downstream_task_ids == {"ingest"}
    assert {name: dag.params.get_param(name).schema["type"] for name in dag.params} == {
        "start": ["null", "string"],
        "end": ["null", "string"],
        "wait_seconds": "integer",
    }
    assert all(task.retries >= 2 and task.owner == "custody" for task in dag.tasks)


def test_a_day_that_is_none_is_refused_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    from custody_airflow.environment import ingest_since

    monkeypatch.setenv("CUSTODY_INGEST_SINCE", "monday")
    with pytest.raises(ConfigurationError, match=r"CUSTODY_INGEST_SINCE.*'monday'"):
        ingest_since()


def test_the_interval_of_a_run_is_that_of_its_form_or_schedule_or_the_last_hours() -> None:
    from custody_airflow.landing import interval_of

    after = datetime(2026, 11, 10, 7, 20, tzinfo=UTC)
    assert interval_of("", "", after).start == datetime(2026, 11, 10, 6, tzinfo=UTC)
    assert interval_of("", "", after).end == after
    named = interval_of("2026-11-01T00:00+00:00", "2026-11-02T00:00+00:00", after)
    assert named.end - named.start == timedelta(days=1)
    assert interval_of("2026-11-09T00:00", "", after).end == after
    with pytest.raises(InvalidInputError):
        interval_of("2026-11-01", "2026-10-01", after)


@pytest.mark.parametrize(
    ("run_type", "is_named", "ended_hours_ago", "hours"),
    [
        ("scheduled", False, 5, 5),
        ("scheduled", False, 1, 1),
        ("scheduled", False, None, 1),
        ("scheduled", False, -3, 1),
        ("backfill", False, 5, 1),
        ("manual", False, 5, 1),
        ("scheduled", True, 5, 1),
    ],
)
def test_a_scheduled_run_makes_up_for_missed_intervals(
    run_type: str, is_named: bool, ended_hours_ago: int | None, hours: int
) -> None:
    from custody.landing import Interval
    from custody_airflow.landing import with_missed

    end = datetime(2026, 11, 10, 8, tzinfo=UTC)
    ended = None if ended_hours_ago is None else end - timedelta(hours=ended_hours_ago)
    context: Any = {"dag_run": SimpleNamespace(run_type=run_type), "prev_data_interval_end_success": ended}
    interval = with_missed(Interval(end - timedelta(hours=1), end), context, is_named=is_named)
    assert (interval.end, interval.end - interval.start) == (end, timedelta(hours=hours))
