"""The ingest DAG as Airflow reads it: its intervals, its form, and what the deployment decides."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
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
