"""The spool of a producer: events on a local disk, until a server has acknowledged them.

A spool is a folder (docs/formats/spool.md). Each process writes segments of its own, so that none waits for another's
sync, and a segment is never written again once its process let go of it. The source of the events is the spool, and
their ordinals are the number of the segment and their place in it: whoever delivers an event twice delivers a
repetition. So the number of a segment is never given out again, which `POSITIONS` keeps when the segment is gone.
"""

from __future__ import annotations

import os
import re
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

import msgspec

from custody.errors import BackpressureError, ClosedError, CorruptionError, InvalidInputError, LockedError, StorageError
from custody.format.framing import DocumentFormat, Frame, Gap, frame, frames, read_head
from custody.vfs import FileSystem, PosixFileSystem, WritableFile

IDENTITY = "spool.id"
POSITIONS = "delivered"
DELIVERY_LOCK = "delivery.lock"
REFUSED = "refused"
SEGMENT_SUFFIX = ".events"
LOCK_SUFFIX = ".lock"
PREAMBLE = b"CUSTSPL\x01"
KIND_HEADER = 1
KIND_EVENTS = 2
NUMBER_DIGITS = 10
INDEX_BITS = 20
SEGMENT_BYTES = 4 << 20
"""A segment of this size takes no more events."""
FRAME_BYTES_MAX = 1 << 20
"""Events that are appended together form frames of about this size."""
BYTES_MAX = 1 << 30
SEGMENTS_MAX = 100_000
"""Segments that wait at most: each process that appends leaves one, and a first append looks at all."""
_SEGMENT = re.compile(r"(\d{10})\.events")
_SOURCE_CHARACTERS_MAX = 120
_LOOK_SECONDS = 1.0
"""How often a process looks at the size of the others' segments."""


class SpoolIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Who a spool is."""

    source: str
    """The source of its events that name none."""


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a segment."""

    source: str
    number: int


_HEADER = msgspec.json.Decoder(SegmentHeader)


class Positions(msgspec.Struct, frozen=True, kw_only=True):
    """What was delivered."""

    next_number: int = 0
    """Below this, every number of a segment has been given out."""
    frames: dict[int, int] = {}
    """Of each segment that is there: how many of its frames were delivered."""
    finished: tuple[int, ...] = ()
    """Segments all of whose events were delivered; whoever finds their files removes them."""


IDENTITY_FORMAT = DocumentFormat(
    b"CUSTSPI\x01",
    1,
    msgspec.json.Decoder(SpoolIdentity),
    "spool identity",
    "a spool's source",
    "Restore the file from a backup.",
)
POSITIONS_FORMAT = DocumentFormat(
    b"CUSTSPD\x01",
    1,
    msgspec.json.Decoder(Positions),
    "spool positions",
    "what was delivered",
    "Restore the file from a backup; what is delivered again counts as repeated.",
)


@dataclass(frozen=True, slots=True)
class SpoolState:
    """What a spool holds; all counts are as of one look."""

    source: str
    waiting_events: int
    waiting_bytes: int
    segments: int
    refused: int
    """Files of events that a server did not take; they stay until somebody removes them."""
    damaged_bytes: int


class Spool:
    """A spool that this process writes to; any number of processes and threads may.

    Args:
        folder: made where it is not there.
        source: the name of the source of a new spool; a random part is added. An old spool keeps its own.
        bytes_max: of all that waits; more is refused.
        segments_max: of all that wait; a further one is refused. Processes that look at once may exceed it by one each.
        fs: where the folder lies.

    Raises:
        CorruptionError, FormatVersionError: the spool's identity cannot be read.
        StorageError: the disk refused.
    """

    def __init__(
        self,
        folder: Path,
        source: str = "spool",
        *,
        bytes_max: int = BYTES_MAX,
        segments_max: int = SEGMENTS_MAX,
        fs: FileSystem | None = None,
    ) -> None:
        if not 0 < len(source) <= _SOURCE_CHARACTERS_MAX:
            raise InvalidInputError(f"source: expected 1 to {_SOURCE_CHARACTERS_MAX} characters, got {len(source)}")
        self._fs: FileSystem = fs or PosixFileSystem()
        self._folder = Path(folder)
        self._bytes_max = bytes_max
        self._segments_max = segments_max
        self._fs.make_directory(self._folder)
        self.source = open_identity(self._fs, self._folder, source)
        """The source of events that name none."""
        self._lock = Lock()
        self._segment: _OpenSegment | None = None
        self._others_bytes = 0
        self._looked = 0.0
        self._is_closed = False

    def append(self, events: Sequence[object]) -> None:
        """Keep events: mappings or structs with the keys of the event model, see docs/sources.md.

        Durability: on return the events survive power loss, and will be delivered. On raise it is unknown which will.

        Raises:
            InvalidInputError: one is no object, or names a source and no ordinal; nothing was kept.
            BackpressureError: the spool is full; nothing was kept.
            StorageError: the disk refused.
        """
        documents = [_document(event, place) for place, event in enumerate(events)]
        with self._lock:
            if self._is_closed:
                raise ClosedError("the spool is closed. Open it again.")
            # Numbers are given out for the longest text that they may have, so that the size is known before.
            size = sum(len(msgspec.json.encode(document)) for document in documents)
            self._refuse_if_full(size)
            try:
                self._write(documents)
            except BaseException:
                # What the disk holds of it is unknown: the next events go to a segment of their own.
                self._end_segment()
                raise

    def close(self) -> None:
        """Let go of the segment; a second call does nothing."""
        with self._lock:
            self._is_closed = True
            self._end_segment()

    def _write(self, documents: Sequence[dict[str, object]]) -> None:
        start = 0
        while start < len(documents):
            segment = self._segment or self._begin_segment()
            self._segment = segment
            start += segment.append(documents[start:])
            if segment.is_full:
                # Synced by its end: an append is acknowledged as a whole.
                self._end_segment(is_synced=True)
        if self._segment is not None:
            self._segment.sync()

    def _refuse_if_full(self, size: int) -> None:
        own = 0 if self._segment is None else self._segment.bytes
        if time.monotonic() - self._looked > _LOOK_SECONDS or self._others_bytes + own + size > self._bytes_max:
            numbers = self._numbers()
            # Before their sizes are asked for, one by one: whoever appends next must not wait for that either.
            if self._segment is None and len(numbers) >= self._segments_max:
                raise BackpressureError(
                    f"{self._folder}: {len(numbers)} segments wait to be delivered, of at most {self._segments_max}. "
                    "Nothing was kept. Run `custody spool deliver`."
                )
            total = sum(_size(self._fs, self._folder / segment_name(number)) for number in numbers)
            self._others_bytes, self._looked = total - own, time.monotonic()
        if self._others_bytes + own + size > self._bytes_max:
            raise BackpressureError(
                f"{self._folder}: {self._others_bytes + own} bytes wait to be delivered, of at most {self._bytes_max}. "
                "Nothing was kept. Run `custody spool deliver`, or give the spool more room."
            )

    def _begin_segment(self) -> _OpenSegment:
        for attempt in count():
            # The names before the positions: a segment that is gone from the names has its number in the positions.
            numbers = self._numbers()
            free = max([*numbers, read_positions(self._fs, self._folder).next_number - 1], default=-1) + 1
            # Processes that lost a race for one number would meet again at the next one.
            number = free + (os.getpid() % 16 if attempt else 0)
            held = ExitStack()
            if self._fs.is_locked(self._folder / lock_name(number)):
                continue
            try:
                held.enter_context(self._fs.lock(self._folder / lock_name(number)))
            except LockedError:
                continue
            with held:
                # Only now, behind the lock, and in this order: who had the number before may have been delivered and
                # removed since the first look.
                path = self._folder / segment_name(number)
                if self._fs.exists(path) or read_positions(self._fs, self._folder).next_number > number:
                    continue
                return _OpenSegment(self._fs, path, SegmentHeader(source=self.source, number=number), held.pop_all())
        raise AssertionError("unreachable")

    def _end_segment(self, *, is_synced: bool = False) -> None:
        segment, self._segment = self._segment, None
        if segment is not None:
            try:
                if is_synced:
                    segment.sync()
            finally:
                segment.close()
                self._looked = 0.0

    def _numbers(self) -> list[int]:
        return segment_numbers(self._fs, self._folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _OpenSegment:
    """A segment that is being written; its lock says so to whoever delivers."""

    def __init__(self, fs: FileSystem, path: Path, header: SegmentHeader, held: ExitStack) -> None:
        self._fs = fs
        self._path = path
        self._header = header
        self._held = held
        self._events = 0
        self._is_named = False
        try:
            self._file: WritableFile = fs.create(path)
            self._file.write(PREAMBLE + frame(KIND_HEADER, msgspec.json.encode(header)))
        except BaseException:
            held.close()
            raise

    @property
    def bytes(self) -> int:
        """Its length."""
        return self._file.tell()

    @property
    def is_full(self) -> bool:
        """Whether it takes no more events."""
        return self.bytes >= SEGMENT_BYTES or self._events >= 1 << INDEX_BITS

    def append(self, documents: Sequence[dict[str, object]]) -> int:
        """Write the first of some events as one frame; return how many. Not durable."""
        lines = bytearray()
        room = (1 << INDEX_BITS) - self._events
        for number, document in enumerate(documents[:room]):
            if lines and len(lines) >= FRAME_BYTES_MAX:
                break
            lines += msgspec.json.encode(self._numbered(document, self._events + number)) + b"\n"
        taken = lines.count(b"\n")
        self._file.write(frame(KIND_EVENTS, bytes(lines)))
        self._events += taken
        return taken

    def sync(self) -> None:
        """Make durable what was written, and the segment's name with the first of it."""
        self._file.sync()
        if not self._is_named:
            self._fs.sync_directory(self._path.parent)
            self._is_named = True

    def close(self) -> None:
        """Let go of it."""
        try:
            self._file.close()
        finally:
            self._held.close()

    def _numbered(self, document: dict[str, object], index: int) -> dict[str, object]:
        if document.get("source_ordinal") is not None:
            return document
        ordinal = self._header.number << INDEX_BITS | index
        return {**document, "source_node": self._header.source, "source_ordinal": ordinal}


@dataclass(frozen=True, slots=True)
class SegmentContent:
    """What can be read of a segment."""

    frames: tuple[bytes, ...]
    """Lines of JSON each; of damaged ones nothing."""
    damaged_bytes: int
    """Bytes before the last whole frame that are none: a crash leaves no such thing."""


def read_segment(fs: FileSystem, path: Path) -> SegmentContent:
    """Return the whole frames of a segment; one whose head was not written has none.

    Raises:
        FormatVersionError: it is of a version that this code does not know.
    """
    data = fs.read(path)
    try:
        _, start = read_head(memoryview(data), path, PREAMBLE, KIND_HEADER, _HEADER, name="spool segment")
    except CorruptionError:
        start = 0
    items = list(frames(data, start))
    whole = [item for item in items if isinstance(item, Frame) and item.kind == KIND_EVENTS]
    end = whole[-1].offset if whole else 0
    damaged = sum(item.length for item in items if isinstance(item, Gap) and item.offset < end)
    return SegmentContent(tuple(bytes(item.payload) for item in whole), damaged)


def spool_state(folder: Path, fs: FileSystem | None = None) -> SpoolState:
    """Look at a spool, without changing anything.

    Raises:
        CorruptionError, FormatVersionError: it is none, or its files cannot be read.
    """
    fs = fs or PosixFileSystem()
    identity = fs.read(folder / IDENTITY) if fs.exists(folder / IDENTITY) else b""
    source = IDENTITY_FORMAT.decode(identity, folder / IDENTITY).source
    positions = read_positions(fs, folder)
    events = size = segments = damaged = 0
    for number in segment_numbers(fs, folder):
        if number in positions.finished:
            continue
        try:
            content = read_segment(fs, folder / segment_name(number))
        except StorageError:
            continue  # delivered and removed in this moment
        waiting = content.frames[positions.frames.get(number, 0) :]
        segments += 1
        events += sum(lines.count(b"\n") for lines in waiting)
        size += sum(map(len, waiting))
        damaged += content.damaged_bytes
    refused = len([name for name in fs.list(folder / REFUSED) if name.endswith(".json")])
    return SpoolState(source, events, size, segments, refused, damaged)


def open_identity(fs: FileSystem, folder: Path, source: str) -> str:
    """Return the source of a spool; the first who asks gives it one."""
    path = folder / IDENTITY
    if not fs.exists(path):
        document = SpoolIdentity(source=f"{source}/{uuid.uuid4().hex[:16]}")
        fs.publish_if_absent(path, IDENTITY_FORMAT.encode(document))
    return IDENTITY_FORMAT.decode(fs.read(path), path).source


def read_positions(fs: FileSystem, folder: Path) -> Positions:
    """Return what was delivered of a spool."""
    path = folder / POSITIONS
    return POSITIONS_FORMAT.decode(fs.read(path), path) if fs.exists(path) else Positions()


def write_positions(fs: FileSystem, folder: Path, positions: Positions) -> None:
    """Keep what was delivered, durably."""
    fs.write_durably(folder / POSITIONS, POSITIONS_FORMAT.encode(positions))


def segment_numbers(fs: FileSystem, folder: Path) -> list[int]:
    """Return the numbers of the segments in a folder, in their order."""
    return [int(match[1]) for name in fs.list(folder) if (match := _SEGMENT.fullmatch(name))]


def segment_name(number: int) -> str:
    """Return the name of a segment's file."""
    return f"{number:0{NUMBER_DIGITS}d}{SEGMENT_SUFFIX}"


def lock_name(number: int) -> str:
    """Return the name of the lock that a segment's writer holds."""
    return f"{number:0{NUMBER_DIGITS}d}{LOCK_SUFFIX}"


def _document(event: object, place: int) -> dict[str, object]:
    document = dict(event) if isinstance(event, Mapping) else msgspec.to_builtins(event)
    if not isinstance(document, dict):
        raise InvalidInputError(
            f"event {place}: expected an object with the keys of an event, got {type(event).__name__}"
        )
    if document.get("source_node") is not None and document.get("source_ordinal") is None:
        raise InvalidInputError(
            f"event {place}: source_node: expected it with a source_ordinal, or neither: then the spool numbers it"
        )
    try:
        msgspec.json.encode(document)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(f"event {place}: expected values of JSON: {error}") from None
    return document


def _size(fs: FileSystem, path: Path) -> int:
    try:
        return fs.size(path)
    except StorageError:
        return 0  # delivered and removed in this moment
