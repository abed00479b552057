"""The events that a session leaves when it is committed, derived from what it did.

Events show their FlowFile as it is at the commit, except those that were frozen when they were reported. What nobody
reported is found here: FlowFiles that were made, contents and attributes that were changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

import msgspec

from custody.flow.flowfile import ALTERNATE_IDENTIFIER, Component, FlowFile
from custody.model import ContentClaim, Event, EventType

FROZEN = frozenset((EventType.SEND, EventType.UPLOAD, EventType.CLONE, EventType.EXPIRE))
"""Events that show their FlowFile as it was when they were reported."""
_BIRTHS = frozenset(
    (EventType.CREATE, EventType.FORK, EventType.CLONE, EventType.JOIN, EventType.RECEIVE, EventType.FETCH)
)


@dataclass(slots=True)
class FlowFileRecord:
    """One FlowFile in one session: how it came, how it is now, and how an event tells of both."""

    original: FlowFile | None
    """As it came into the session; None when it was made here."""
    current: FlowFile
    start_ms: int
    """When the session began to handle it."""
    queue: str | None = None
    """Where it was taken from."""
    has_new_content: bool = False
    has_ended: bool = False
    """Whether nothing more can be done with it here."""
    is_removed: bool = False
    """Whether it ended by being taken out of the flow, dropped or expired."""

    @property
    def is_new(self) -> bool:
        """Whether it was made in this session."""
        return self.original is None

    @property
    def uuid(self) -> str:
        """The FlowFile's uuid."""
        return self.current.uuid

    def updates(self) -> dict[str, str | None]:
        """Return the attributes that differ from those at the start; None for one that is gone."""
        # Only the difference counts: an attribute that was set and set back is no change.
        before = self.original.attributes if self.original else {}
        after = self.current.attributes
        changed: dict[str, str | None] = {k: v for k, v in after.items() if before.get(k) != v}
        return {**changed, **{name: None for name in before if name not in after}}

    def draft(self, kind: str, component: Component, time_ms: int, **fields: object) -> Event:
        """Return an event that tells of the FlowFile, without its attributes and its content."""
        return Event(
            event_type=kind,
            event_time=time_ms,
            component_id=component.id,
            component_type=component.type,
            component_name=component.name,
            process_group_id=component.process_group_id,
            process_group_name=component.process_group_name,
            flowfile_uuid=self.uuid,
            file_size=self.current.size,
            flowfile_entry_date=self.current.entry_date,
            lineage_start_date=self.current.lineage_start_date,
            source_queue_identifier=self.queue,
            **fields,  # type: ignore[arg-type]
        )

    def completed(self, event: Event, time_ms: int) -> Event:
        """Return a draft with the FlowFile's attributes and content as they are now."""
        before = self.original
        return msgspec.structs.replace(
            event,
            file_size=self.current.size,
            content_claim=_claim(self.current),
            updated_attributes=self.updates(),
            previous_attributes=dict(before.attributes) if before else {},
            previous_file_size=before.size if before else None,
            previous_content_claim=_claim(before) if before else None,
            event_duration=max(time_ms - self.start_ms, 0) if event.event_duration < 0 else event.event_duration,
        )

    def expired(self, event: Event) -> Event:
        """Return a draft that tells of a FlowFile that nobody worked on: all is as it was before."""
        claim = _claim(self.current)
        return msgspec.structs.replace(
            event,
            previous_attributes=dict(self.current.attributes),
            previous_file_size=self.current.size,
            content_claim=claim,
            previous_content_claim=claim,
        )


@dataclass(slots=True)
class Fork:
    """The children that one FlowFile got in a session: one event."""

    time_ms: int
    children: list[str] = field(default_factory=list)


@dataclass(slots=True)
class SessionChanges:
    """The changes of a session so far, before its commit."""

    component: Component
    """Who reports."""
    records: dict[str, FlowFileRecord] = field(default_factory=dict)
    """The FlowFiles of the session, by uuid."""
    forks: dict[str, Fork] = field(default_factory=dict)
    """The children of each parent, by its uuid."""
    joins: dict[str, Event] = field(default_factory=dict)
    """The JOIN of each joined child, by its uuid."""
    reported: list[Event] = field(default_factory=list)
    terminated: list[Event] = field(default_factory=list)
    """The ends of FlowFiles on a relationship that leads nowhere."""
    already_stored: set[str] = field(default_factory=set)
    """Uuids of FlowFiles of which an event was stored before the commit."""

    def mentions(self, uuid: str) -> bool:
        """Whether anything was done with a FlowFile that an event tells of."""
        if uuid in self.forks or uuid in self.already_stored:
            return True
        parents = (parent for event in (*self.joins.values(), *self.reported) for parent in event.parent_uuids)
        return uuid in parents or any(event.flowfile_uuid == uuid for event in self.reported)

    def retract(self, uuids: set[str], events: Collection[Event]) -> None:
        """Drop FlowFiles that were made here, with all that was reported of them, and some more events."""
        for uuid in uuids:
            del self.records[uuid]
            self.joins.pop(uuid, None)
        for fork in self.forks.values():
            fork.children = [child for child in fork.children if child not in uuids]
        # Some more events are told by themselves, as others may look the same.
        dropped = {id(event) for event in events}
        self.reported = [
            event
            for event in self.reported
            if id(event) not in dropped and uuids.isdisjoint((event.flowfile_uuid, *event.child_uuids))
        ]


def events_at_commit(changes: SessionChanges, now_ms: int) -> list[Event]:
    """Return the events of a session that is committed now; the session stays as it is.

    Forks come first and joins after them, so that a FlowFile's first event tells where it came from; then reported
    events; then those that nobody reported, and the names that FlowFiles were given; at last the ends of FlowFiles on a
    relationship that leads nowhere.
    """
    events = [*_forks(changes), *_joins(changes), *_reported(changes)]
    named = list(_named(changes, now_ms))
    automatic = _automatic(changes, [*events, *named], now_ms)
    events = list(_each_once([*events, *automatic, *named, *changes.terminated]))
    return [
        # Frozen events were completed when they were reported.
        event if event.event_type in FROZEN else changes.records[event.flowfile_uuid].completed(event, now_ms)
        for event in events
    ]


def _forks(changes: SessionChanges) -> Iterator[Event]:
    """Yield an event for each FlowFile that has children which stay."""
    for parent, fork in changes.forks.items():
        # A child that was dropped here again never was, for others.
        children = tuple(child for child in fork.children if not _was_forgotten(changes.records[child]))
        if children:
            record = changes.records[parent]
            relatives = {"parent_uuids": (parent,), "child_uuids": children}
            yield record.draft("FORK", changes.component, fork.time_ms, **relatives)


def _joins(changes: SessionChanges) -> Iterator[Event]:
    for child, event in changes.joins.items():
        if not _was_forgotten(changes.records[child]):
            yield event


def _reported(changes: SessionChanges) -> Iterator[Event]:
    """Yield what was reported, without the DROP of a new FlowFile that no other event mentions."""
    mentioned = changes.already_stored | {
        uuid
        for event in (*_forks(changes), *_joins(changes), *changes.reported)
        if event.event_type != EventType.DROP
        for uuid in (event.flowfile_uuid, *event.parent_uuids, *event.child_uuids)
    }
    for event in changes.reported:
        # One that was received or sent needs its DROP: otherwise it would seem to live on.
        is_end = event.event_type == EventType.DROP and changes.records[event.flowfile_uuid].is_new
        if not is_end or event.flowfile_uuid in mentioned:
            yield event


def _named(changes: SessionChanges, now_ms: int) -> Iterator[Event]:
    """Yield an ADDINFO for each FlowFile that got another alternate identifier as its attribute, and reported none."""
    reported = {
        (event.flowfile_uuid, event.alternate_identifier_uri)
        for event in changes.reported
        if event.event_type == EventType.ADDINFO
    }
    for record in changes.records.values():
        identifier = (record.updates().get(ALTERNATE_IDENTIFIER) or "").strip()
        if identifier and not record.is_removed and (record.uuid, identifier) not in reported:
            yield record.draft("ADDINFO", changes.component, now_ms, alternate_identifier_uri=identifier)


def _automatic(changes: SessionChanges, events: Iterable[Event], now_ms: int) -> Iterator[Event]:
    """Yield what happened and was not reported."""
    types: dict[str, set[str]] = defaultdict(set)
    born: set[str] = set()
    for event in events:
        for flowfile in (event.flowfile_uuid, *event.child_uuids):
            types[flowfile].add(event.event_type)
        if event.event_type in _BIRTHS:
            # A parent of a fork or a clone is not born by it.
            born.update(event.child_uuids or (event.flowfile_uuid,))
    for record in changes.records.values():
        kind = None if record.is_removed else _missing(record, types[record.uuid], record.uuid in born)
        if kind is not None:
            yield record.draft(kind, changes.component, now_ms)


def _missing(record: FlowFileRecord, types: set[str], is_born: bool) -> str | None:
    """Return the type of the event that a FlowFile lacks; an event of any type shows changed attributes too."""
    if record.is_new:
        return None if is_born else EventType.CREATE
    if record.has_new_content:
        return None if EventType.CONTENT_MODIFIED in types else EventType.CONTENT_MODIFIED
    return EventType.ATTRIBUTES_MODIFIED if record.updates() and not types else None


def _each_once(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events without repetitions; a SEND that looks like another one is a second delivery and stays."""
    seen = set()
    for event in events:
        if event.event_type in FROZEN:
            yield event
            continue
        # With details and alternate identifiers, which NiFi leaves out: it loses a second ADDINFO by that.
        key = (
            event.event_type,
            event.flowfile_uuid,
            event.transit_uri,
            event.relationship,
            frozenset(event.parent_uuids),
            frozenset(event.child_uuids),
            event.alternate_identifier_uri,
            event.source_system_flowfile_identifier,
            event.details,
        )
        if key not in seen:
            seen.add(key)
            yield event


def _was_forgotten(record: FlowFileRecord) -> bool:
    """Whether a FlowFile was made and dropped here, so that for others it never was."""
    return record.is_new and record.is_removed


def _claim(flowfile: FlowFile) -> ContentClaim | None:
    """Return where the content lies; the claim's size is the FlowFile's."""
    claim = flowfile.content_claim
    return None if claim is None else msgspec.structs.replace(claim, size=flowfile.size)
