"""The SEND events of a batch: provenance of what the sink wrote.

One SEND event stands for the rows that some notifications added to one file. Its transit URI is the file's, its parents
are the FlowFiles that the notifications were received as, so the lineage of either shows the other. A batch always
gives the same events: whoever finishes it after a crash appends only those that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from custody.capture.identity import uuid_of_name
from custody.model import Event, EventType
from custody.ngsi_sink.batch_file import BatchManifest, FileAppend

WRITER = "ngsi-sink"
"""The writer name of these events. Nobody else appends under it, so that earlier events of a batch can be found."""
SOURCE_FORMAT = "ngsi-sink"
_PARENTS_MAX = 100
"""Of one event. The lineage of a notification leads to all that share its event, so they are kept few."""


class SendJournal(Protocol):
    """Stores SEND events and reads them back; only the sink appends here."""

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


def events_of(manifest: BatchManifest, uri: Callable[[str], str]) -> Iterator[Event]:
    """Yield the SEND events of a batch; an append without bytes has none."""
    for part in manifest.parts:
        # In a fixed order, each once: every try has to cut the same pieces, for a piece is part of an event's name.
        parents = list(dict.fromkeys(manifest.sources[source].flowfile_uuid for source in part.sources))
        for first in range(0, len(parents) if part.length else 0, _PARENTS_MAX):
            # A name from the batch, not a random one: it is how a second try recognizes the events of the first.
            rows = uuid_of_name("ngsi-rows", manifest.id, str(part.place), str(first))
            yield _event(manifest, part, rows, parents[first : first + _PARENTS_MAX], uri(part.path))


def append_missing(manifest: BatchManifest, journal: SendJournal, uri: Callable[[str], str], *, is_new: bool) -> int:
    """Append those SEND events of a batch that are not stored yet; return how many.

    `is_new` says that nobody can have appended any before, so that nothing has to be looked up.

    Durability: on return all of them are acknowledged.
    """
    events = list(events_of(manifest, uri))
    if events and not is_new:
        # The batch noted this id before any event of it was appended: earlier ones need not be read.
        stored = {event.flowfile_uuid for event in journal.since(manifest.told_from)}
        events = [event for event in events if event.flowfile_uuid not in stored]
    if events:
        journal.append(events)
    return len(events)


def _event(manifest: BatchManifest, part: FileAppend, rows: str, parents: Sequence[str], uri: str) -> Event:
    folder, _, name = part.path.rpartition("/")
    return Event(
        event_type=EventType.SEND,
        # Not the time of this try: whoever finishes the batch has to make equal events.
        event_time=manifest.time_ms,
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
            "ngsi.batch": str(manifest.number),
            "ngsi.offset": str(part.offset),
            "ngsi.length": str(part.length),
            "ngsi.sha256": part.sha256,
        },
        platform="ngsi",
        source_format=SOURCE_FORMAT,
    )
