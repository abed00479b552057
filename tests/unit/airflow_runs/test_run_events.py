"""Events of runs: their identity is made of names, whoever tells of them, and a file that was written is an event."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from custody.airflow_runs import RunFacts, asset_uuid, end_events, start_events
from custody.airflow_runs.run_events import FILES_MAX
from custody.capture import contradictions
from custody.model import Event, check_event
from tests.support import INCLUDE

DUE = datetime(2026, 3, 2, 6, tzinfo=UTC)
START, END = DUE + timedelta(seconds=3), DUE + timedelta(seconds=9, milliseconds=500)
REPORT = "file:///data/report%20$%7Bx%7D's.parquet"
TRY = RunFacts(
    deployment="airflow",
    dag_id="sales",
    run_id="scheduled__2026-03-02T06:00:00+00:00",
    run_after=DUE,
    state="success",
    start=START,
    end=END,
    task_id="report",
    try_number=2,
)
RUN = replace(TRY, task_id=None, try_number=0)


def told(facts: RunFacts) -> list[Event]:
    return [msgspec.convert(document, Event) for document in (*start_events(facts), *end_events(facts))]


def ordinals(facts: RunFacts) -> list[int | None]:
    return [event.source_ordinal for event in told(facts)]


def test_each_event_is_valid_and_says_what_happened_when() -> None:
    facts = replace(TRY, outlets=["s3://lake/orders"], files=[REPORT, "s3://lake/orders"], host="worker-7")
    events = told(facts)
    assert [problem for event in events for problem in check_event(event)] == []
    assert [(event.event_type, event.transit_uri) for event in events] == [
        ("CREATE", None),
        ("FORK", None),
        ("SEND", "s3://lake/orders"),
        ("SEND", REPORT),
    ]
    start, end = events[0], events[1]
    assert start.updated_attributes["airflow.state"] == "running"
    assert end.updated_attributes["airflow.state"] == "success"
    assert (end.event_time - start.event_time, end.event_duration) == (6500, 6500)
    assert end.child_uuids == (asset_uuid("s3://lake/orders"), asset_uuid(REPORT))
    assert {event.source_host for event in events} == {"worker-7"}


def test_the_identity_of_an_event_is_the_same_in_all_versions() -> None:
    # Changed numbers would store again what was stored.
    assert ordinals(replace(TRY, files=[REPORT])) == [
        4_330_688_415_193_047_839,
        4_330_686_335_394_243_910,
        4_330_694_695_222_796_708,
    ]
    assert ordinals(RUN) == [4_330_686_285_635_560_084, 4_330_689_644_738_265_646]


@pytest.mark.parametrize(
    "other",
    [
        {"deployment": "other"},
        {"dag_id": "sales.report", "task_id": ""},
        {"run_id": "manual__1"},
        {"task_id": "report2"},
        {"map_index": 0},
        {"try_number": 1},
    ],
)
def test_other_names_are_other_events(other: dict[str, Any]) -> None:
    assert not set(ordinals(TRY)) & set(ordinals(replace(TRY, **other)))


def test_a_state_is_an_event_of_its_own_and_what_else_is_known_of_it_is_not() -> None:
    failed = replace(TRY, state="failed")
    assert ordinals(TRY)[0] == ordinals(failed)[0]
    assert ordinals(TRY)[1] != ordinals(failed)[1]
    elsewhere = replace(
        TRY,
        start=START + timedelta(milliseconds=7),
        end=END + timedelta(seconds=1),
        log_url="http://other.example/",
        host="worker-8",
        operator="PythonOperator",
        outlets=["s3://lake/orders"],
    )
    for one, other in zip(told(TRY), told(elsewhere), strict=False):
        assert one.source_ordinal == other.source_ordinal
        assert contradictions(one, other) == []
    # A digest that two tries shared would not go unnoticed.
    assert contradictions(told(TRY)[0], told(replace(TRY, try_number=3))[0]) == ["flowfile_uuid"]


def test_a_run_that_was_cleared_has_its_events_once_more() -> None:
    again = replace(RUN, start=START + timedelta(hours=1), end=END + timedelta(hours=1))
    assert not set(ordinals(RUN)) & set(ordinals(again))
    assert ordinals(RUN) == ordinals(replace(RUN, run_type="manual"))


def test_what_was_not_successful_wrote_nothing_and_what_has_not_ended_has_no_end() -> None:
    failed = replace(TRY, state="failed", outlets=["s3://lake/orders"], files=[REPORT])
    assert [event.event_type for event in told(failed)] == ["CREATE", "DROP"]
    assert [event.event_type for event in told(replace(TRY, end=None))] == ["CREATE"]
    assert [event.event_type for event in told(replace(TRY, start=None))] == ["DROP"]


def test_files_beyond_the_bound_are_counted() -> None:
    many = replace(TRY, files=[f"file:///data/{number}" for number in range(FILES_MAX + 7)])
    events = told(many)
    assert len(events) == 2 + FILES_MAX
    assert events[1].updated_attributes["airflow.files_left_out"] == "7"
    assert len(events[1].child_uuids) == FILES_MAX


def test_they_load_no_heavy_library() -> None:
    source = "import custody.airflow_runs.run_events, custody.client.spool, sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", source], env={"PYTHONPATH": str(INCLUDE)}, capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert "custody.client.spool" in loaded
    assert not loaded & {"pyarrow", "numpy", "pyspark", "airflow", "urllib3", "pydantic"}
