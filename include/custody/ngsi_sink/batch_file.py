"""A batch as one object, before any of it is in a file of a destination: what goes where, and the bytes.

Layout: the preamble `CUSTNGB\x01`, a record of kind 1 with the description as JSON, then a record of kind 2 for each
part, in their order. The page docs/formats/ngsi-batch.md describes it; add kinds and keys, never change one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames

PREAMBLE = b"CUSTNGB\x01"
KIND_BATCH, KIND_PART = 1, 2
BATCHES, COLUMNS, LEFT, ASIDE, DEFERRED = "batches", "columns", "left", "aside", "deferred"
"""Kinds of the sink's objects: the folders that they lie in. Part of the format; add, never change."""


class Source(msgspec.Struct, frozen=True, array_like=True, order=True):
    """An event whose entity is in a batch, and the FlowFile that it received."""

    writer: str
    event_id: int
    flowfile_uuid: str


class Part(msgspec.Struct, frozen=True):
    """Bytes of one file: they begin at `offset`, which is how long the file was before."""

    path: str
    offset: int
    length: int
    sha256: str
    sources: tuple[int, ...] = ()
    """Which sources of the batch it has rows of, by their places."""
    place: int = 0
    """Among the parts that the batch had at first: with the batch's id it says which part this is, for good."""


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch consists of; all entities of events before its cursors are in it or an earlier one, or put aside."""

    id: str
    """Of this batch and no other one."""
    number: int
    time_ms: int
    told_from: int
    """Events that tell of it have ids from here on."""
    cursors: dict[str, int]
    """By writer, the event up to which all were taken."""
    sources: tuple[Source, ...] = ()
    parts: tuple[Part, ...] = ()
    problem: str | None = None
    """Why it is deferred."""


class Left(msgspec.Struct, frozen=True):
    """An event whose entity is in no file for good, and why."""

    writer: str
    event_id: int
    reason: str


class Notified(msgspec.Struct, frozen=True, kw_only=True):
    """A notification as a user looks at it: the event that received it, and what came."""

    source: Source
    service: str | None
    service_path: str | None
    body: str


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """Events of which nothing was written although it should be: they wait to be submitted again."""

    code: str
    message: str
    notifications: tuple[Notified, ...]


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with the bytes of its parts, in their order."""

    staged: Staged
    contents: tuple[memoryview, ...]

    def __iter__(self) -> Iterator[tuple[Part, memoryview]]:
        return zip(self.staged.parts, self.contents, strict=True)


def part(path: str, offset: int, data: bytes, sources: Sequence[int] = (), place: int = 0) -> Part:
    """Return the description of a part."""
    return Part(path, offset, len(data), hashlib.sha256(data).hexdigest(), tuple(sources), place)


def only(staged: Staged, place: int, problem: str) -> Staged:
    """Return a batch with one of its parts, and why that is deferred."""
    part = staged.parts[place]
    return msgspec.structs.replace(
        staged,
        sources=tuple(staged.sources[source] for source in part.sources),
        parts=(msgspec.structs.replace(part, sources=tuple(range(len(part.sources)))),),
        problem=problem,
    )


def encode(staged: Staged, contents: Iterable[bytes | memoryview]) -> bytes:
    """Return the object of a batch; `contents` are the bytes of each part, in their order."""
    parts = (frame(KIND_PART, bytes(content)) for content in contents)
    return b"".join((PREAMBLE, frame(KIND_BATCH, msgspec.json.encode(staged)), *parts))


def decode(data: bytes, place: str) -> Batch:
    """Return the batch that an object holds.

    Raises:
        CorruptionError: it is damaged; the message names `place`.
        FormatVersionError: it is of a version that this code does not know.
    """
    if data[:7] == PREAMBLE[:7] and data[7:8] not in (b"", PREAMBLE[7:8]):
        raise FormatVersionError(f"{place} @7: expected batch version 1, got {data[7]}. Use a newer custody.")
    found = list(frames(data, len(PREAMBLE))) if data[:7] == PREAMBLE[:7] else []
    records = [item for item in found if isinstance(item, Frame)]
    kinds = [record.kind for record in records]
    if found and len(records) == len(found) and kinds == [KIND_BATCH] + [KIND_PART] * (len(records) - 1):
        staged = msgspec.json.decode(records[0].payload, type=Staged)
        contents = tuple(record.payload for record in records[1:])
        if [item.length for item in staged.parts] == [len(content) for content in contents]:
            return Batch(staged, contents)
    raise CorruptionError(
        f"{place} @0: expected a batch and its parts with their checksums, got other bytes. "
        "Bring it back from a backup."
    )
