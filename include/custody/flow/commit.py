"""Which events a session leaves when it is committed, in their order.

Forks come first and joins after them, so that a FlowFile's first event tells where it came from; then what was
reported; then what nobody reported but happened; at last the ends of FlowFiles on a way that leads nowhere. All but
those that were frozen show their FlowFile as it is at the commit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from custody.flow.ledger import Ledger
from custody.flow.record import Record
from custody.model import Event, EventType

FROZEN = frozenset((EventType.SEND, EventType.UPLOAD, EventType.CLONE, EventType.EXPIRE))
"""Events that show their FlowFile as it was when they were reported."""
_BIRTHS = frozenset(
    (EventType.CREATE, EventType.FORK, EventType.CLONE, EventType.JOIN, EventType.RECEIVE, EventType.FETCH)
)


def events_at_commit(ledger: Ledger, now_ms: int) -> list[Event]:
    """Return the events of a session that is committed now; the session stays as it is."""
    made = [*_forks(ledger), *_joins(ledger), *_reported(ledger)]
    made = list(_each_once([*made, *_automatic(ledger, made, now_ms), *ledger.terminated]))
    return [
        event if event.event_type in FROZEN else ledger.records[event.flowfile_uuid].completed(event, now_ms)
        for event in made
    ]


def _forks(ledger: Ledger) -> Iterator[Event]:
    """Yield an event for each FlowFile that has children which stay."""
    for parent, fork in ledger.forks.items():
        children = tuple(child for child in fork.children if not _was_forgotten(ledger.records[child]))
        if children:
            record = ledger.records[parent]
            relatives = {"parent_uuids": (parent,), "child_uuids": children}
            yield record.draft("FORK", ledger.component, fork.time_ms, **relatives)


def _joins(ledger: Ledger) -> Iterator[Event]:
    for child, event in ledger.joins.items():
        if not _was_forgotten(ledger.records[child]):
            yield event


def _reported(ledger: Ledger) -> Iterator[Event]:
    """Yield what was reported. The end of a FlowFile that nothing else tells of is not told either."""
    told = ledger.told | {
        uuid
        for event in (*_forks(ledger), *_joins(ledger), *ledger.reported)
        if event.event_type != EventType.DROP
        for uuid in (event.flowfile_uuid, *event.parent_uuids, *event.child_uuids)
    }
    for event in ledger.reported:
        is_end = event.event_type == EventType.DROP and ledger.records[event.flowfile_uuid].is_new
        if not is_end or event.flowfile_uuid in told:
            yield event


def _automatic(ledger: Ledger, made: Iterable[Event], now_ms: int) -> Iterator[Event]:
    """Yield what happened and was not reported."""
    told: dict[str, set[str]] = defaultdict(set)
    born: set[str] = set()
    for event in made:
        for uuid in (event.flowfile_uuid, *event.child_uuids):
            told[uuid].add(event.event_type)
        if event.event_type in _BIRTHS:
            # A parent of a fork or a clone is not born by it.
            born.update(event.child_uuids or (event.flowfile_uuid,))
    for record in ledger.records.values():
        kind = None if record.is_removed else _missing(record, told[record.uuid], record.uuid in born)
        if kind is not None:
            yield record.draft(kind, ledger.component, now_ms)


def _missing(record: Record, told: set[str], is_born: bool) -> str | None:
    """Return the type of the event that a FlowFile lacks; an event of any type shows changed attributes too."""
    if record.is_new:
        return None if is_born else EventType.CREATE
    if record.has_new_content:
        return None if EventType.CONTENT_MODIFIED in told else EventType.CONTENT_MODIFIED
    return EventType.ATTRIBUTES_MODIFIED if record.updates() and not told else None


def _each_once(events: Iterable[Event]) -> Iterator[Event]:
    """Yield events without those that say the same again; a second delivery is another one."""
    seen = set()
    for event in events:
        if event.event_type in FROZEN:
            yield event
            continue
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


def _was_forgotten(record: Record) -> bool:
    """Whether a FlowFile was made and dropped here, so that for others it never was."""
    return record.is_new and record.is_removed
