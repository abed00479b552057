"""The file of a batch: a manifest of what is appended to which file, the bytes themselves, and the events they give.

A batch is written as one object before any of it is in a file of a destination. Layout: the preamble `CUSTNGB`, a
record of kind 1 with the manifest as JSON, then a record of kind 2 for the bytes of each append, in their order. The
page docs/formats/ngsi-batch.md describes this file, and the JSON objects of what is in no file. Add kinds and keys,
never change one.

One SEND event stands for the rows that some notifications added to one file. Its transit URI is the file's, its parents
are the FlowFiles that the notifications were received as, so the lineage of either shows the other. A batch always
gives the same events: whoever finishes it after a crash appends only those that are missing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames
from custody.format.identifiers import uuid_of_name
from custody.model import Event, EventType

# The last byte is the version. Part of the format, as the kinds of records are: add, never change.
PREAMBLE = b"CUSTNGB\x01"
KIND_BATCH, KIND_PART = 1, 2
BATCHES, COLUMNS, SKIPPED, QUARANTINED, DEFERRED = "batches", "columns", "left", "aside", "deferred"
"""Kinds of the sink's objects, which are the names of their folders. Part of the format: add, never change."""


class Source(msgspec.Struct, frozen=True, array_like=True, order=True, gc=False):
    """An event whose entity is in a batch, and the FlowFile that it received."""

    writer: str
    event_id: int
    flowfile_uuid: str


class FileAppend(msgspec.Struct, frozen=True, gc=False):
    """Bytes to append to one file, at `offset`: the length of the file before the batch."""

    path: str
    offset: int
    length: int
    sha256: str
    sources: tuple[int, ...] = ()
    """The sources of the batch that it has rows of, as positions in the batch's list."""
    place: int = 0
    """Position among the appends that the batch had at first: with the batch's id it identifies the append for good."""

    @classmethod
    def of(cls, path: str, offset: int, data: bytes, sources: Sequence[int] = (), place: int = 0) -> FileAppend:
        """Return the description of some bytes."""
        return cls(path, offset, len(data), hashlib.sha256(data).hexdigest(), tuple(sources), place)


class BatchManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a batch.

    Every entity of the events before its cursors is in this batch or an earlier one, is skipped or in the quarantine.
    """

    id: str
    """Of this batch and no other one."""
    number: int
    time_ms: int
    told_from: int
    """SEND events of this batch have ids from here on."""
    cursors: dict[str, int]
    """By writer, the first event id that was not taken yet."""
    sources: tuple[Source, ...] = ()
    parts: tuple[FileAppend, ...] = ()
    problem: str | None = None
    """Why it is deferred."""

    def deferring(self, place: int, problem: str) -> BatchManifest:
        """Return a batch of one append of this one, with the reason why that is deferred."""
        append = self.parts[place]
        return msgspec.structs.replace(
            self,
            # Only the sources of this append go along, numbered anew. The id and the place stay: they name its SEND
            # events.
            sources=tuple(self.sources[source] for source in append.sources),
            parts=(msgspec.structs.replace(append, sources=tuple(range(len(append.sources)))),),
            problem=problem,
        )


_MANIFEST = msgspec.json.Decoder(BatchManifest)


class Skipped(msgspec.Struct, frozen=True):
    """An event whose entity will never be in a file, and why."""

    writer: str
    event_id: int
    reason: str


class Notified(msgspec.Struct, frozen=True, kw_only=True):
    """A notification as a user looks at it: the event that received it, and its body."""

    source: Source
    service: str | None
    service_path: str | None
    body: str


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """Events that should have been written and were not: they wait to be submitted again."""

    code: str
    message: str
    notifications: tuple[Notified, ...]


SKIPPED_DECODER = msgspec.json.Decoder(list[Skipped])
QUARANTINED_DECODER = msgspec.json.Decoder(Quarantined)


@dataclass(frozen=True, slots=True)
class FileBatch:
    """A manifest with the bytes of its appends, in their order."""

    manifest: BatchManifest
    contents: tuple[memoryview, ...]

    def __iter__(self) -> Iterator[tuple[FileAppend, memoryview]]:
        return zip(self.manifest.parts, self.contents, strict=True)


def encode(manifest: BatchManifest, contents: Iterable[bytes | memoryview]) -> bytes:
    """Return the object of a batch; `contents` are the bytes of each append, in their order."""
    parts = (frame(KIND_PART, bytes(content)) for content in contents)
    return b"".join((PREAMBLE, frame(KIND_BATCH, msgspec.json.encode(manifest)), *parts))


def decode(data: bytes, place: str) -> FileBatch:
    """Return the batch that an object holds.

    Raises:
        CorruptionError: it is damaged; the message names `place`.
        FormatVersionError: it is of a version that this code does not know.
    """
    # Another version is told from damage first: such a file is whole, only this custody is too old for it.
    if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
        raise FormatVersionError(f"{place} @7: expected batch version 1, got {data[7]}. Use a newer custody.")
    items = list(frames(data, len(PREAMBLE))) if data[:7] == PREAMBLE[:7] else []
    records = [item for item in items if isinstance(item, Frame)]
    kinds = [record.kind for record in records]
    # The object was written in one piece and synced: unlike a journal it has no torn tail that could be forgiven.
    if items and len(records) == len(items) and kinds == [KIND_BATCH] + [KIND_PART] * (len(records) - 1):
        manifest = _MANIFEST.decode(records[0].payload)
        contents = tuple(record.payload for record in records[1:])
        # Checksums vouch for each record by itself; the lengths show that records and manifest belong together.
        if [append.length for append in manifest.parts] == [len(content) for content in contents]:
            return FileBatch(manifest, contents)
    raise CorruptionError(
        f"{place} @0: expected a batch and its parts with their checksums, got other bytes. "
        "Bring it back from a backup."
    )


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
