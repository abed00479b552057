"""What was written is told: SEND events from a batch, the same ones however often they are made.

A SEND event stands for the rows that some notifications added to one file: its transit URI is the file's, its parents
are the FlowFiles that the notifications were received as. So the lineage of either shows the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from custody.capture.identity import uuid_of_name
from custody.model import Event, EventType
from custody.ngsi_sink.batch_file import Part, Staged

WRITER = "ngsi-sink"
"""The writer name of these events. Nobody else appends under it, so that what was told is found again."""
SOURCE_FORMAT = "ngsi-sink"
_PARENTS_MAX = 100
"""Of one event. The lineage of a notification leads to those that share its event, so they are kept few."""


class Journal(Protocol):
    """Where the events go to, and what is there already; only the sink appends here."""

    @property
    def next_event_id(self) -> int:
        """No event has this id or a greater one."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events and return their ids once they are acknowledged."""
        ...

    def since(self, event_id: int) -> Iterator[Event]:
        """Yield the acknowledged events from an id on."""
        ...


def told(staged: Staged, uri: Callable[[str], str]) -> Iterator[Event]:
    """Yield the events that tell of a batch; a part without bytes has none."""
    for part in staged.parts:
        parents = list(dict.fromkeys(staged.sources[source].flowfile_uuid for source in part.sources))
        for first in range(0, len(parents) if part.length else 0, _PARENTS_MAX):
            rows = uuid_of_name("ngsi-rows", staged.id, str(part.place), str(first))
            yield _event(staged, part, rows, parents[first : first + _PARENTS_MAX], uri(part.path))


def tell(staged: Staged, journal: Journal, uri: Callable[[str], str], *, is_new: bool) -> int:
    """Append those events of a batch that are not there yet; return how many.

    `is_new` says that nobody can have told of it before, so that nothing has to be looked up.

    Durability: on return all of them are acknowledged.
    """
    events = list(told(staged, uri))
    if events and not is_new:
        there = {event.flowfile_uuid for event in journal.since(staged.told_from)}
        events = [event for event in events if event.flowfile_uuid not in there]
    if events:
        journal.append(events)
    return len(events)


def _event(staged: Staged, part: Part, rows: str, parents: Sequence[str], uri: str) -> Event:
    folder, _, name = part.path.rpartition("/")
    return Event(
        event_type=EventType.SEND,
        event_time=staged.time_ms,
        component_id=WRITER,
        component_type="NGSIToHDFS",
        flowfile_uuid=rows,
        file_size=part.length,
        transit_uri=uri,
        parent_uuids=tuple(parents),
        child_uuids=(rows,),
        updated_attributes={
            "filename": name,
            "path": folder,
            "ngsi.batch": str(staged.number),
            "ngsi.offset": str(part.offset),
            "ngsi.length": str(part.length),
            "ngsi.sha256": part.sha256,
        },
        platform="ngsi",
        source_format=SOURCE_FORMAT,
    )
