"""A batch as one object, before any of it is in a file of a destination: what goes where, and the bytes.

Layout: the preamble `CUSTNGB\\x01`, a record of kind 1 with the description as JSON, then a record of kind 2 for each
part, in their order. The page docs/formats/ngsi-batch.md describes it; add kinds and keys, never change one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from custody.errors import CorruptionError, FormatVersionError
from custody.format.framing import Frame, frame, frames

PREAMBLE = b"CUSTNGB\x01"
KIND_BATCH, KIND_PART = 1, 2


class Part(msgspec.Struct, frozen=True):
    """Bytes of one file: they begin at `offset`, which is how long the file was before."""

    path: str
    offset: int
    length: int
    sha256: str


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch consists of. It holds all entities of events from `first_event_id` up to `next_event_id`."""

    first_event_id: int
    next_event_id: int
    parts: tuple[Part, ...]


class Left(msgspec.Struct, frozen=True):
    """An event whose entity has no destination, and why."""

    event_id: int
    reason: str


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch with the bytes of its parts, in their order."""

    staged: Staged
    contents: tuple[memoryview, ...]

    def __iter__(self) -> Iterator[tuple[Part, memoryview]]:
        return zip(self.staged.parts, self.contents, strict=True)


def part(path: str, offset: int, data: bytes) -> Part:
    """Return the description of a part."""
    return Part(path, offset, len(data), hashlib.sha256(data).hexdigest())


def encode(staged: Staged, contents: Mapping[str, bytes]) -> bytes:
    """Return the object of a batch; `contents` has the bytes of each part's path."""
    parts = (frame(KIND_PART, contents[item.path]) for item in staged.parts)
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
