"""Runs of DAGs and tasks as events: plain functions from what Airflow says of a run to events in custody's own form.

A try of a task is a FlowFile, and so is a run of a DAG; each has an event when it starts and one when it ends. The
assets that a task reads and writes are FlowFiles by their URI: a successful try has them as parents and children, and a
SEND event for each that it wrote. So the question which run wrote a file is a search for `transit_uri`.

Events are known by their run, try and phase, so that a try that is told of twice is stored once. This loads neither
Arrow nor the library's readers: it runs in every task's process.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

SOURCE_FORMAT = "airflow"
# Names of FlowFiles and numbers of events are made from it. Part of what is stored: never change it.
_NAMESPACE = uuid.UUID("5b0a1a52-0a3c-5c0e-8f6e-6f2d1c9b7e11")
_TASK_TYPE, _DAG_TYPE = "AirflowTask", "AirflowDagRun"


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What Airflow says of a run of a DAG, or of a try of a task in it."""

    deployment: str
    dag_id: str
    run_id: str
    state: str
    start: datetime | None
    end: datetime | None = None
    task_id: str | None = None
    """None for the run itself."""
    map_index: int = -1
    try_number: int = 0
    operator: str | None = None
    inlets: Sequence[str] = ()
    """URIs of the assets that are read."""
    outlets: Sequence[str] = ()
    log_url: str | None = None

    @property
    def names(self) -> tuple[str | int | None, ...]:
        """What tells this run, or this try, from all others."""
        return (self.deployment, self.dag_id, self.run_id, self.task_id, self.map_index, self.try_number)


def asset_uuid(uri: str) -> str:
    """Return the FlowFile uuid of an asset, whichever task reads or writes it."""
    return _uuid("asset", uri)


def start_events(facts: RunFacts) -> list[dict[str, object]]:
    """Return the event of a start; none where Airflow does not say when it was."""
    return [] if facts.start is None else [_event(facts, "start", "CREATE", facts.start)]


def end_events(facts: RunFacts) -> list[dict[str, object]]:
    """Return the event of an end, and one for each asset that a successful try wrote."""
    if facts.end is None:
        return []
    has_written = facts.state == "success" and bool(facts.outlets)
    relatives = {
        "parent_uuids": [asset_uuid(uri) for uri in facts.inlets] or [_uuid(*facts.names)],
        "child_uuids": [asset_uuid(uri) for uri in facts.outlets],
    }
    end = _event(facts, "end", "FORK" if has_written else "DROP", facts.end, **(relatives if has_written else {}))
    if facts.start is not None:
        end["event_duration"] = max(_milliseconds(facts.end) - _milliseconds(facts.start), 0)
    written = [
        _event(facts, f"wrote {uri}", "SEND", facts.end, flowfile_uuid=asset_uuid(uri), transit_uri=uri)
        for uri in (facts.outlets if has_written else ())
    ]
    return [end, *written]


def _event(facts: RunFacts, phase: str, kind: str, moment: datetime, **changes: object) -> dict[str, object]:
    attributes = {
        "filename": facts.run_id if facts.task_id is None else f"{facts.run_id}/{facts.task_id}",
        "airflow.dag_id": facts.dag_id,
        "airflow.run_id": facts.run_id,
        "airflow.state": facts.state,
        "airflow.log_url": facts.log_url,
    }
    if facts.task_id is not None:
        attributes |= {
            "airflow.task_id": facts.task_id,
            "airflow.map_index": str(facts.map_index),
            "airflow.try_number": str(facts.try_number),
            "airflow.operator": facts.operator,
        }
    return {
        "event_type": kind,
        "event_time": _milliseconds(moment),
        "component_id": facts.dag_id if facts.task_id is None else f"{facts.dag_id}.{facts.task_id}",
        "component_type": _DAG_TYPE if facts.task_id is None else _TASK_TYPE,
        "component_name": facts.task_id or facts.dag_id,
        "process_group_id": facts.dag_id,
        "process_group_name": facts.dag_id,
        "flowfile_uuid": _uuid(*facts.names),
        "file_size": 0,
        "updated_attributes": {name: value for name, value in attributes.items() if value is not None},
        "source_format": SOURCE_FORMAT,
        "source_node": f"airflow/{facts.deployment}",
        "source_ordinal": _ordinal(*facts.names, phase),
        **changes,
    }


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _uuid(*names: str | int | None) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps(names)))


def _ordinal(*names: str | int | None) -> int:
    return int.from_bytes(hashlib.sha256(json.dumps(names).encode()).digest()[:8]) >> 1
