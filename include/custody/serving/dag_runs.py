"""Runs of Airflow's DAGs, as the events tell that its listener stored: which there were, and what one read and wrote.

A run, and each try of a task in it, is a FlowFile; the assets that a task wrote are FlowFiles with a SEND event, and
those that it read are parents of its end. Whoever may see some events only is told of what these say.

Airflow's events have no contents. Those of an asset are told by whoever moved it: by events whose `transit_uri` is the
asset, or a file below it. Of what a task read they are the newest before its end. Of what it wrote they are those of
its own time; where there are none, those of whoever took it afterwards, until somebody sends it again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from custody.model import Event, EventType
from custody.read.search import StoredEvent
from custody.read.time_travel import AsOf
from custody.repository import Repository
from custody.serving.content_place import ContentPlace, ContentPlaces

EVENTS_MAX = 1000
NAMES_MAX = 50
"""So many of the assets that a run read, and of those that it wrote, are looked up by name."""
CONTENTS_MAX = 10
"""So many events are named that have contents of an asset."""
_PAGES_MAX = 20
"""How many pages of events of a DAG are read where the name of the run cannot be asked for."""
_LOOKED_AT = 100
"""Events that are read for it where no index says which of them have a content."""
_RUN_TYPE = "AirflowDagRun"
_CLAIM_FIELD = "content_claim_identifier"
_TAKEN = (EventType.RECEIVE, EventType.FETCH, EventType.DOWNLOAD)
"""Types of events whose content came from where `transit_uri` says."""
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


class AssetContent(msgspec.Struct, frozen=True, kw_only=True):
    """An event that has contents of an asset, or of a file below it; the time in ms since the epoch."""

    writer: str
    event_id: int
    event_type: str
    time_ms: int
    component: str | None
    name: str
    """The URI that the event has."""
    content: ContentPlace | None
    """After the event."""
    previous_content: ContentPlace | None


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
    contents: list[AssetContent] | None = None
    """None where they were not looked for: without a name, or behind the first of many assets."""


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
    places: ContentPlaces,
    dag_id: str,
    run_id: str,
    task_id: str | None = None,
    map_index: int | None = None,
    writer: str | None = None,
    as_of: AsOf | None = None,
) -> DagRun:
    """Return what is known of a run, or of one of its tasks; with `map_index` of one of its mapped ones."""
    told, notices, is_cut = _told_of_run(repository, dag_id, run_id, task_id, map_index, writer, as_of)
    look = _Look(repository, places, writer, as_of)
    own = {stored.event.flowfile_uuid for stored in told if stored.event.event_type == EventType.CREATE}
    # Until when each was read: the end of the last try that names it.
    parents: dict[str, int] = {}
    for event in (stored.event for stored in told):
        parents |= {uuid: event.event_time for uuid in event.parent_uuids if uuid not in own}
    sent = [stored for stored in told if stored.event.event_type == EventType.SEND]
    starts = _starts(told)
    return DagRun(
        dag_id=dag_id,
        run_id=run_id,
        task_id=task_id,
        wrote=[_written(stored, look if at < NAMES_MAX else None, starts) for at, stored in enumerate(sent)],
        read=[_read(uuid, look if at < NAMES_MAX else None, end) for at, (uuid, end) in enumerate(parents.items())],
        events=[_told(stored) for stored in told],
        is_cut=is_cut,
        notices=tuple(dict.fromkeys((*notices, *look.notices))),
    )


def _told_of_run(
    repository: Repository,
    dag_id: str,
    run_id: str,
    task_id: str | None,
    map_index: int | None,
    writer: str | None,
    as_of: AsOf | None,
) -> tuple[list[StoredEvent], list[str], bool]:
    """Return the events of a run, oldest first, with the notices of the search, and whether there may be more."""
    wanted: list[dict[str, object]] = [
        {"field": "process_group_id", "equals": dag_id}
        if task_id is None
        else {"field": "component_id", "equals": f"{dag_id}.{task_id}"}
    ]
    # To whom file names are masked, the index finds none. What is asked for stands in an attribute as well: all events
    # of the DAG, or of the task, are read then, as far as a request may take.
    is_by_name = "filename" in repository.searchable.standard
    if is_by_name and task_id is None:
        wanted.append({"or": [{"field": "filename", "equals": run_id}, {"field": "filename", "prefix": f"{run_id}/"}]})
    elif is_by_name:
        wanted.append({"field": "filename", "equals": f"{run_id}/{task_id}"})
    told: list[StoredEvent] = []
    notices: list[str] = []
    cursor: str | None = None
    for _ in range(1 if is_by_name else _PAGES_MAX):
        # The newest first where other runs are read, too: it is they who are asked for.
        found = repository.search(
            {"and": wanted}, limit=EVENTS_MAX, oldest_first=is_by_name, cursor=cursor, writer=writer, as_of=as_of
        )
        told += [stored for stored in found.events if _is_of_run(stored.event, run_id, map_index)]
        notices += found.notices
        cursor = found.cursor
        if cursor is None:
            break
    if not is_by_name:
        told.reverse()
        if cursor is not None:
            notices.append(f"file names are masked: only the newest {_PAGES_MAX * EVENTS_MAX:,} events were looked at.")
    return told[:EVENTS_MAX], notices, cursor is not None or len(told) > EVENTS_MAX


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


def _starts(told: Sequence[StoredEvent]) -> dict[tuple[str, str, int], int]:
    """Return when the tries began that wrote assets, by component, the asset's uuid and the end of the try."""
    starts: dict[tuple[str, str, int], int] = {}
    for event in (stored.event for stored in told):
        start = event.event_time - max(event.event_duration, 0)
        starts |= {(event.component_id, uuid, event.event_time): start for uuid in event.child_uuids}
    return starts


@dataclass
class _Look:
    """Looks events up that speak of an asset, among those that may be seen."""

    repository: Repository
    places: ContentPlaces
    writer: str | None
    as_of: AsOf | None

    def __post_init__(self) -> None:
        self.notices: list[str] = []
        self._has_claims = _CLAIM_FIELD in self.repository.searchable.standard

    def named(self, uuid: str) -> StoredEvent | None:
        """Return the event that says the name of an asset: of whoever wrote it last."""
        exists = {"field": "transit_uri", "exists": True}
        return next(iter(self._events([{"field": "flowfile_uuid", "equals": uuid}, exists], 1)), None)

    def read_before(self, name: str, end: int) -> list[AssetContent]:
        """Return the newest contents of an asset that were told of until a moment."""
        return self._contents(name, None, end)

    def written_in(self, name: str, start: int, end: int) -> list[AssetContent]:
        """Return the contents of an asset that a try wrote from `start` to `end`."""
        own = self._contents(name, start, end)
        if own:
            return own
        sent = self._events([_is_at(name), _is_in(end + 1), {"field": "event_type", "equals": EventType.SEND}], 1, True)
        return self._contents(name, end + 1, sent[0].event.event_time if sent else None, taken_only=True)

    def _contents(
        self, name: str, first: int | None, last: int | None, *, taken_only: bool = False
    ) -> list[AssetContent]:
        wanted = [_is_at(name), _is_in(first, last)]
        if taken_only:
            wanted.append({"or": [{"field": "event_type", "equals": kind} for kind in _TAKEN]})
        if self._has_claims:
            wanted.append({"field": _CLAIM_FIELD, "exists": True})
        found = self._events(wanted, CONTENTS_MAX if self._has_claims else _LOOKED_AT, taken_only)
        # Case never matters in a query, and in a name it does.
        contents = [_content(each, self.places) for each in found if _is_below(each.event.transit_uri, name)]
        return [one for one in contents if one.content or one.previous_content][:CONTENTS_MAX]

    def _events(self, wanted: list[dict[str, object]], limit: int, oldest_first: bool = False) -> Sequence[StoredEvent]:
        answer = self.repository.search(
            {"and": wanted}, limit=limit, oldest_first=oldest_first, writer=self.writer, as_of=self.as_of
        )
        self.notices += answer.notices
        return answer.events


def _is_at(name: str) -> dict[str, object]:
    """Return the condition that an event speaks of an asset, or of a file below it."""
    below = {"field": "transit_uri", "prefix": f"{name.rstrip('/')}/"}
    return {"or": [{"field": "transit_uri", "equals": name}, below]}


def _is_below(uri: str | None, name: str) -> bool:
    return uri is not None and f"{uri}/".startswith(f"{name.rstrip('/')}/")


def _is_in(first: int | None, last: int | None = None) -> dict[str, object]:
    ends = {"from": first, "to": last}
    return {"field": "event_time", **{key: value for key, value in ends.items() if value is not None}}


def _content(stored: StoredEvent, places: ContentPlaces) -> AssetContent:
    event = stored.event
    return AssetContent(
        writer=stored.writer,
        event_id=event.event_id,
        event_type=event.event_type,
        time_ms=event.event_time,
        component=event.component_name or event.component_id,
        name=event.transit_uri or "",
        content=places.after(stored.writer, event),
        previous_content=places.before(stored.writer, event),
    )


def _written(stored: StoredEvent, look: _Look | None, starts: dict[tuple[str, str, int], int]) -> RunAsset:
    event, end = stored.event, stored.event.event_time
    name, uuid = event.transit_uri, event.flowfile_uuid
    start = starts.get((event.component_id, uuid, end), end)
    return RunAsset(
        flowfile_uuid=uuid,
        name=name,
        component=event.component_name or event.component_id,
        writer=stored.writer,
        event_id=event.event_id,
        time_ms=end,
        contents=None if look is None or name is None else look.written_in(name, start, end),
    )


def _read(uuid: str, look: _Look | None, end: int) -> RunAsset:
    stored = None if look is None else look.named(uuid)
    name = None if stored is None else stored.event.transit_uri
    return RunAsset(
        flowfile_uuid=uuid,
        name=name,
        component=None,
        writer=None if stored is None else stored.writer,
        event_id=None if stored is None else stored.event.event_id,
        time_ms=None if stored is None else stored.event.event_time,
        contents=None if look is None or name is None else look.read_before(name, end),
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
