"""A run of a DAG and its tasks, as Airflow's REST API tells of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_ENDED = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a DAG."""

    dag_id: str
    run_id: str
    state: str
    start: datetime | None
    end: datetime | None
    kind: str = "manual"
    """What started it: manual, scheduled, asset_triggered or backfill."""

    @property
    def has_ended(self) -> bool:
        """Whether the run will not change any more by itself."""
        return self.state in _ENDED


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One task of one run; `state` is None while the scheduler has not looked at it."""

    task_id: str
    map_index: int
    state: str | None
    try_number: int
    start: datetime | None
    end: datetime | None
    duration_s: float | None


def parse_time(text: str | None) -> datetime | None:
    """Read one of Airflow's times; None where it gave none."""
    return datetime.fromisoformat(text) if text else None


def parse_run(entry: Mapping[str, Any]) -> Run:
    """Read a run from the answer of the REST API."""
    return Run(
        dag_id=entry["dag_id"],
        run_id=entry["dag_run_id"],
        state=entry["state"],
        start=parse_time(entry["start_date"]),
        end=parse_time(entry["end_date"]),
        kind=entry["run_type"],
    )


def parse_task(entry: Mapping[str, Any]) -> TaskRun:
    """Read a task instance from the answer of the REST API."""
    return TaskRun(
        task_id=entry["task_id"],
        map_index=entry["map_index"],
        state=entry["state"],
        try_number=entry["try_number"],
        start=parse_time(entry["start_date"]),
        end=parse_time(entry["end_date"]),
        duration_s=entry["duration"],
    )
