"""Runs of Airflow's DAGs and tasks as events: plain functions from what Airflow says of a run to custody's own form.

A try of a task is a FlowFile, and so is a run of a DAG; each has an event when it starts and one when it ends. The
assets and files that a task reads and writes are FlowFiles by their URI: a successful try has them as parents and
children, and a SEND event for each that it wrote. So the question which run wrote a file is a search for `transit_uri`.

The identity of an event is made of names alone: deployment, DAG, run, task, map index, try and state. Whoever tells of
a run, the listener or Airflow's REST API, makes the same event, and it is stored once. A run of a DAG has no number of
its try, and may be run again: its events are known by their moment, too.

This loads neither Arrow nor the library's readers: it runs in every task's process.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from custody.format.identifiers import digest_ordinal

SOURCE_FORMAT = "airflow"
RUNNING, SUCCESS, FAILED, SKIPPED = "running", "success", "failed", "skipped"
FILES_MAX = 1000
"""Files of a try that get an event each; how many there are besides is an attribute of its end."""
# Names of FlowFiles are made from it. Part of what is stored: never change it.
_NAMESPACE = uuid.UUID("5b0a1a52-0a3c-5c0e-8f6e-6f2d1c9b7e11")
_TASK_TYPE, _DAG_TYPE = "AirflowTask", "AirflowDagRun"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """What Airflow says of a run of a DAG, or of a try of a task in it."""

    deployment: str
    dag_id: str
    run_id: str
    run_after: datetime
    """When the run was due: everybody who tells of it knows the same."""
    state: str = RUNNING
    start: datetime | None = None
    end: datetime | None = None
    task_id: str | None = None
    """None for the run itself."""
    map_index: int = -1
    try_number: int = 0
    operator: str | None = None
    inlets: Sequence[str] = ()
    """URIs of the assets that are read."""
    outlets: Sequence[str] = ()
    files: Sequence[str] = ()
    """URIs of files that were written, besides the outlets."""
    log_url: str | None = None
    host: str | None = None
    logical_date: datetime | None = None
    run_type: str | None = None

    @property
    def names(self) -> tuple[str | int | None, ...]:
        """What tells this run, or this try, from all others."""
        return (self.deployment, self.dag_id, self.run_id, self.task_id, self.map_index, self.try_number)

    @property
    def written(self) -> tuple[str, ...]:
        """URIs of what a successful try wrote, each once."""
        return tuple(dict.fromkeys((*self.outlets, *self.files))) if self.state == SUCCESS else ()


def asset_uuid(uri: str) -> str:
    """Return the FlowFile uuid of an asset or a file, whichever task reads or writes it."""
    return _uuid("asset", uri)


def start_events(facts: RunFacts) -> list[dict[str, object]]:
    """Return the event of a start; none where Airflow does not say when it was."""
    return [] if facts.start is None else [_event(replace(facts, state=RUNNING), "CREATE", facts.start)]


def end_events(facts: RunFacts) -> list[dict[str, object]]:
    """Return the event of an end, and one for each asset and file that a successful try wrote."""
    if facts.end is None:
        return []
    moment, uris = facts.end, facts.written
    named = uris[:FILES_MAX]
    # What was read is told only of a try that succeeded: another one may not have come to it.
    relatives = {
        "parent_uuids": [asset_uuid(uri) for uri in dict.fromkeys(facts.inlets)] or [_uuid(*facts.names)],
        "child_uuids": [asset_uuid(uri) for uri in named],
    }
    end = _event(facts, "FORK" if named else "DROP", moment, **(relatives if named else {}))
    if facts.start is not None:
        end["event_duration"] = max(_milliseconds(moment) - _milliseconds(facts.start), 0)
    if len(uris) > len(named):
        attributes = end["updated_attributes"]
        assert isinstance(attributes, dict)  # noqa: S101 - made by `_event`
        attributes["airflow.files_left_out"] = str(len(uris) - len(named))
    written = [_event(facts, "SEND", moment, flowfile_uuid=asset_uuid(uri), transit_uri=uri) for uri in named]
    return [end, *written]


def _event(facts: RunFacts, kind: str, moment: datetime, **changes: object) -> dict[str, object]:
    task = facts.task_id
    written = changes.get("transit_uri")
    attributes: dict[str, str | None] = {
        "filename": facts.run_id if task is None else f"{facts.run_id}/{task}",
        "airflow.dag_id": facts.dag_id,
        "airflow.run_id": facts.run_id,
        "airflow.run_type": facts.run_type,
        "airflow.run_after": _text(facts.run_after),
        "airflow.logical_date": _text(facts.logical_date),
        "airflow.state": facts.state,
        "airflow.log_url": facts.log_url,
    }
    if task is not None:
        attributes |= {
            "airflow.task_id": task,
            "airflow.map_index": str(facts.map_index),
            "airflow.try_number": str(facts.try_number),
            "airflow.operator": facts.operator,
        }
    return {
        "event_type": kind,
        "event_time": _milliseconds(moment),
        "component_id": facts.dag_id if task is None else f"{facts.dag_id}.{task}",
        "component_type": _DAG_TYPE if task is None else _TASK_TYPE,
        "component_name": task or facts.dag_id,
        "process_group_id": facts.dag_id,
        "process_group_name": facts.dag_id,
        "flowfile_uuid": _uuid(*facts.names),
        "file_size": 0,
        "updated_attributes": {name: value for name, value in attributes.items() if value is not None},
        "source_format": SOURCE_FORMAT,
        "source_node": f"airflow/{facts.deployment}",
        "source_host": facts.host,
        "source_ordinal": _ordinal(facts, moment, written if isinstance(written, str) else None),
        **changes,
    }


def _ordinal(facts: RunFacts, moment: datetime, written: str | None) -> int:
    # A run that was cleared runs again under its id, and so does each of its states; a task gets another try.
    again = _milliseconds(moment) if facts.task_id is None else None
    parts = json.dumps([*facts.names, facts.state, again])
    return digest_ordinal(["airflow", parts, written], _milliseconds(facts.run_after))


def _milliseconds(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat()


def _uuid(*names: str | int | None) -> str:
    return str(uuid.uuid5(_NAMESPACE, json.dumps(names)))
