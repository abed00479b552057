"""A batch as one object, before any of it is in a file of a destination: what goes where, and the bytes.

Layout: one line of JSON (`Staged`), a newline, then the bytes of the parts one after the other. The page
docs/formats/ngsi-batch.md describes it; add keys, never change one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from custody.errors import CorruptionError, FormatVersionError

VERSION = 1


class Part(msgspec.Struct, frozen=True):
    """Bytes of one file: they begin at `offset`, which is how long the file was before."""

    path: str
    offset: int
    length: int
    sha256: str


class Left(msgspec.Struct, frozen=True):
    """An event whose entity has no destination, and why."""

    event_id: int
    reason: str


class Staged(msgspec.Struct, frozen=True, kw_only=True):
    """What a batch consists of. It holds all entities of events from `first_event_id` up to `next_event_id`."""

    first_event_id: int
    next_event_id: int
    parts: tuple[Part, ...]
    version: int = VERSION


def encode(staged: Staged, contents: Mapping[str, bytes]) -> bytes:
    """Return the object of a batch; `contents` has the bytes of each part's path."""
    return b"".join((msgspec.json.encode(staged), b"\n", *(contents[part.path] for part in staged.parts)))


def part(path: str, offset: int, data: bytes) -> Part:
    """Return the description of a part."""
    return Part(path, offset, len(data), hashlib.sha256(data).hexdigest())


def decode(data: bytes, place: str) -> tuple[Staged, memoryview]:
    """Return what a batch consists of, and the bytes of its parts.

    Raises:
        CorruptionError: it is no batch, or its length is another one; the message names `place`.
        FormatVersionError: a newer custody wrote it.
    """
    head, _, _ = data.partition(b"\n")
    try:
        staged = msgspec.json.decode(head, type=Staged)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptionError(f"{place}: expected a batch of NGSI ({error}). Bring it back from a backup.") from error
    if staged.version != VERSION:
        raise FormatVersionError(
            f"{place}: expected version {VERSION} of a batch, got {staged.version}. Use a newer custody."
        )
    body = memoryview(data)[len(head) + 1 :]
    expected = sum(item.length for item in staged.parts)
    if len(body) != expected:
        raise CorruptionError(
            f"{place} @{len(head) + 1}: expected {expected} bytes of parts, got {len(body)}. "
            "Bring it back from a backup."
        )
    return staged, body


def contents(staged: Staged, body: memoryview) -> Iterator[tuple[Part, memoryview]]:
    """Yield each part with its bytes."""
    start = 0
    for item in staged.parts:
        yield item, body[start : start + item.length]
        start += item.length
