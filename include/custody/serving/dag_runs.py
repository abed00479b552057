"""Runs of Airflow's DAGs, as the events tell that its listener stored: which there were, and what one read and wrote.

A run, and each try of a task in it, is a FlowFile; the assets that a task wrote are FlowFiles with a SEND event, and
those that it read are parents of its end. Whoever may see some events only is told of what these say.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from custody.model import Event, EventType
from custody.read.search import SearchResult, StoredEvent
from custody.read.time_travel import AsOf
from custody.repository import Repository

EVENTS_MAX = 1000
NAMES_MAX = 50
"""So many of the assets that a run read are looked up by name."""
_RUN_TYPE = "AirflowDagRun"
_RUN_ID, _STATE, _MAP_INDEX = "airflow.run_id", "airflow.state", "airflow.map_index"


class DagRunOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a DAG; times in ms since the epoch."""

    dag_id: str
    run_id: str
    state: str | None
    """As Airflow said last."""
    started_ms: int | None
    ended_ms: int | None


class DagRuns(msgspec.Struct, frozen=True, kw_only=True):
    """Runs of a DAG, the newest first."""

    items: list[DagRunOverview]
    notices: tuple[str, ...] = ()


class RunAsset(msgspec.Struct, frozen=True, kw_only=True):
    """An asset that a run read or wrote."""

    flowfile_uuid: str
    name: str | None
    """Its URI; None where no event says one."""
    component: str | None
    """Who wrote it in this run; None for what was read."""
    writer: str | None
    event_id: int | None
    """The event that says so, of `writer`."""
    time_ms: int | None


class DagRunEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that was told of a run."""

    writer: str
    event_id: int
    event_type: str
    time_ms: int
    component: str | None
    state: str | None
    flowfile_uuid: str


class DagRun(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run, or of one of its tasks; `is_cut` where more was told than is looked at."""

    dag_id: str
    run_id: str
    task_id: str | None
    wrote: list[RunAsset]
    read: list[RunAsset]
    events: list[DagRunEvent]
    is_cut: bool
    notices: tuple[str, ...] = ()


def dag_runs(
    repository: Repository, dag_id: str | None, limit: int, writer: str | None = None, as_of: AsOf | None = None
) -> DagRuns:
    """Return the newest runs of a DAG, or of all, at most `limit`."""
    wanted = [{"field": "component_type", "equals": _RUN_TYPE}]
    if dag_id is not None:
        wanted.append({"field": "component_id", "equals": dag_id})
    # A run has an event when it starts, and one when it ends.
    found = repository.search({"and": wanted}, limit=2 * limit, writer=writer, as_of=as_of)
    runs: dict[tuple[str, str], list[Event]] = {}
    for stored in found.events:
        # Case never matters in a query, and in a name it does.
        run_id = stored.event.attributes.get(_RUN_ID)
        if run_id is not None and dag_id in (None, stored.event.component_id):
            runs.setdefault((stored.event.component_id, run_id), []).append(stored.event)
    items = [_overview(*of_run, events) for of_run, events in list(runs.items())[:limit]]
    return DagRuns(items=items, notices=tuple(found.notices))


def dag_run(
    repository: Repository,
    dag_id: str,
    run_id: str,
    task_id: str | None = None,
    map_index: int | None = None,
    writer: str | None = None,
    as_of: AsOf | None = None,
) -> DagRun:
    """Return what is known of a run, or of one of its tasks; with `map_index` of one of its mapped ones."""
    if task_id is None:
        name = {"or": [{"field": "filename", "equals": run_id}, {"field": "filename", "prefix": f"{run_id}/"}]}
        wanted = [{"field": "process_group_id", "equals": dag_id}, name]
    else:
        wanted = [
            {"field": "component_id", "equals": f"{dag_id}.{task_id}"},
            {"field": "filename", "equals": f"{run_id}/{task_id}"},
        ]
    found = repository.search({"and": wanted}, limit=EVENTS_MAX, oldest_first=True, writer=writer, as_of=as_of)
    told = [stored for stored in found.events if _is_of_run(stored.event, run_id, map_index)]
    wrote = [_written(stored) for stored in told if stored.event.event_type == EventType.SEND]
    own = {stored.event.flowfile_uuid for stored in told if stored.event.event_type == EventType.CREATE}
    parents = dict.fromkeys(uuid for stored in told for uuid in stored.event.parent_uuids if uuid not in own)
    names = _names(repository, list(parents)[:NAMES_MAX], writer, as_of)
    return DagRun(
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        wrote=wrote,
        read=[_read(uuid, names.get(uuid)) for uuid in parents],
        events=[_told(stored) for stored in told],
        is_cut=found.total > len(found.events),
        notices=tuple(found.notices),
    )


def _overview(dag_id: str, run_id: str, events: list[Event]) -> DagRunOverview:
    starts = [event.event_time for event in events if event.event_type == EventType.CREATE]
    ends = [event.event_time for event in events if event.event_type != EventType.CREATE]
    newest = max(events, key=lambda event: (event.event_time, event.event_type != EventType.CREATE))
    return DagRunOverview(
        dag_id=dag_id,
        run_id=run_id,
        state=newest.attributes.get(_STATE),
        started_ms=min(starts, default=None),
        ended_ms=max(ends, default=None),
    )


def _is_of_run(event: Event, run_id: str, map_index: int | None) -> bool:
    known = event.attributes
    return known.get(_RUN_ID) == run_id and (map_index is None or known.get(_MAP_INDEX) in (None, str(map_index)))


def _names(
    repository: Repository, uuids: Iterable[str], writer: str | None, as_of: AsOf | None
) -> dict[str, StoredEvent]:
    """Return for assets an event that says their name: of whoever wrote them last."""
    named: dict[str, StoredEvent] = {}
    for uuid in uuids:
        wanted = [{"field": "flowfile_uuid", "equals": uuid}, {"field": "transit_uri", "exists": True}]
        answer: SearchResult = repository.search({"and": wanted}, limit=1, writer=writer, as_of=as_of)
        for stored in answer.events:
            named[uuid] = stored
    return named


def _written(stored: StoredEvent) -> RunAsset:
    event = stored.event
    return RunAsset(
        flowfile_uuid=event.flowfile_uuid,
        name=event.transit_uri,
        component=event.component_name or event.component_id,
        writer=stored.writer,
        event_id=event.event_id,
        time_ms=event.event_time,
    )


def _read(uuid: str, stored: StoredEvent | None) -> RunAsset:
    return RunAsset(
        flowfile_uuid=uuid,
        name=None if stored is None else stored.event.transit_uri,
        component=None,
        writer=None if stored is None else stored.writer,
        event_id=None if stored is None else stored.event.event_id,
        time_ms=None if stored is None else stored.event.event_time,
    )


def _told(stored: StoredEvent) -> DagRunEvent:
    event = stored.event
    return DagRunEvent(
        writer=stored.writer,
        event_id=event.event_id,
        event_type=event.event_type,
        time_ms=event.event_time,
        component=event.component_name,
        state=event.attributes.get(_STATE),
        flowfile_uuid=event.flowfile_uuid,
    )
