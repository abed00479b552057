"""Writing contents: small ones share resource claims, a large one streams into one of its own.

A content is acknowledged when its bytes, its record and the name of its file are durable; only then may an event speak
of it. A crash between the two leaves a content that no event speaks of. Nothing is appended to a file of an earlier
process, so a torn tail stays where it is until the file goes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from custody.clock import Clock
from custody.config import ContentStore, Settings
from custody.errors import ClosedError, StorageError
from custody.flow.content.claim_file import ClaimHeader, ContentRecord, Digest, ResourceClaim, StoredContent, head
from custody.flow.content.containers import ContentContainers
from custody.format.names import ContentPaths, claim_name, claim_section
from custody.vfs import FileSystem, WritableFile, temporary
from custody.vfs.group_commit import GroupCommitQueue

OPEN_SECONDS_MAX = 600.0
"""How long contents are appended to one file. An older one can be removed as soon as no event speaks of it."""
RETRY_SECONDS = 10.0
"""How long a container that refused is passed over while others work."""
_CLOSED = "the content writer is closed. Open the repository's writer again."


@dataclass(frozen=True, slots=True)
class ContentOptions:
    """Options of writing contents; sizes in bytes."""

    containers: tuple[str, ...] = ("1",)
    claim_bytes: int = 1 << 20
    """A resource claim of this size takes no more contents; a content that is larger gets one of its own."""
    is_synced: bool = True
    """False only where events may be lost by a power failure too."""

    @classmethod
    def of(cls, settings: Settings) -> ContentOptions:
        """Return the options that the settings ask for; a policy that may lose events may lose contents."""
        content = settings.content
        return cls(content.container_names, content.claim_bytes, is_synced=settings.journal.sync != "never")


class OpenClaim:
    """A resource claim that is being written.

    Its header is durable before the file gets its name, and the name before the first content.
    """

    def __init__(self, fs: FileSystem, path: Path, header: ClaimHeader, *, is_synced: bool) -> None:
        self._fs = fs
        self.path = path
        self._is_synced = is_synced
        self.resource = ResourceClaim(header.writer, header.container, header.section, header.identifier)
        self.key = header.key
        fs.make_directory(path.parent)
        partial = temporary(path)
        self._file: WritableFile = fs.create(partial)
        try:
            # Header, then name, then contents: a claim that has its name can always be read, and no acknowledged
            # content lies in a file whose name a power failure may take.
            self._file.write(head(header))
            self._file.sync()
            fs.rename(partial, path)
            fs.sync_directory(path.parent)
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError):
                with suppress(OSError):  # a full disk is tried again and again: nothing may pile up
                    fs.remove(partial)
            raise
        self.bytes = self._file.tell()
        self._opened = time.monotonic()
        self.is_used = False
        """Whether a content of it was acknowledged."""

    @property
    def is_old(self) -> bool:
        """Whether it was open for long enough."""
        return time.monotonic() - self._opened > OPEN_SECONDS_MAX

    def write(self, data: bytes) -> None:
        """Append bytes; not durable."""
        self._file.write(data)
        self.bytes += len(data)

    def acknowledge(self) -> None:
        """Make durable what was written."""
        if self._is_synced:
            self._file.sync()
        self.is_used = True

    def close(self) -> None:
        """Write no more."""
        self._file.close()

    def abandon(self) -> None:
        """Write no more, and remove a file that holds nothing that was acknowledged, if the disk lets us."""
        with suppress(OSError):  # the file is a leftover then, and the failure before this one is the one to report
            self._file.close()
            if not self.is_used:
                self._fs.remove(self.path)


@dataclass(slots=True)
class _Append:
    """Contents that one caller appends together."""

    contents: Sequence[tuple[bytes, Digest]]
    stored: list[StoredContent] = field(default_factory=list)


class ClaimAppender:
    """The one open resource claim of a container, to which small contents are appended with group commit.

    A file that failed is never written again: what the disk holds of it is unknown, and the next contents go to a new
    one.

    Args:
        container: the container's name.
        create: makes a new resource claim.
        claim_bytes: the size from which on nothing more is appended to one.
    """

    def __init__(self, container: str, create: Callable[[], OpenClaim], claim_bytes: int) -> None:
        self._create = create
        self._claim_bytes = claim_bytes
        self._open: OpenClaim | None = None
        # Not poisoned by a failure: the next commit goes to a new file. What was acknowledged in the old one was
        # synced.
        self._queue: GroupCommitQueue[_Append] = GroupCommitQueue(
            f"content container {container!r}", self._commit, is_worth_waiting=lambda _: True
        )

    def append(self, contents: Sequence[tuple[bytes, Digest]]) -> list[StoredContent]:
        """Append contents, each with its digest; return them once they are durable.

        Raises:
            ClosedError: the appender was closed.
            StorageError: the disk refused; none of the contents counts as stored.
        """
        append = _Append(contents)
        self._queue.put(append)
        return append.stored

    def close(self) -> None:
        """Close the file once what is under way has ended."""
        self._queue.close(_CLOSED)
        claim, self._open = self._open, None
        if claim is not None:
            claim.close()

    def _commit(self, batch: list[_Append]) -> None:
        """Store what several threads append; the queue keeps all others off the file meanwhile."""
        try:
            self._store(batch)
        except BaseException:
            if self._open is not None:
                self._open.abandon()
                self._open = None
            raise

    def _store(self, batch: list[_Append]) -> None:
        buffer: list[bytes] = []
        size = 0
        for append in batch:
            for data, digest in append.contents:
                claim = self._open
                if claim is not None and (claim.bytes + size >= self._claim_bytes or claim.is_old):
                    # Their records say offsets in this file, so they have to be written before the next one begins.
                    _flush(claim, buffer)
                    claim.close()
                    claim = self._open = None
                    buffer, size = [], 0
                if claim is None:
                    claim = self._open = self._create()
                record = digest.record(claim.bytes + size)
                encoded = record.encode(claim.key)
                buffer += (data, encoded)
                size += len(data) + len(encoded)
                # The caller sees it only when the commit has returned.
                append.stored.append(_stored(claim, record))
        if self._open is not None:
            _flush(self._open, buffer)


class ContentWriter:
    """The writer of contents under one writer name, whose lock the caller holds; any number of threads may use it.

    No file is made before the first content.
    """

    def __init__(
        self, fs: FileSystem, store: ContentStore, writer: str, clock: Clock, options: ContentOptions | None = None
    ) -> None:
        self._fs = fs
        self._paths = ContentPaths(store, writer)
        self._containers = ContentContainers(fs, store, writer)
        self._is_adopted = False
        self._clock = clock
        self._options = options or ContentOptions()
        self._numbers = count()
        self._turns = count()
        self._lock = Lock()
        self._retry_at: dict[str, float] = {}
        self._is_closed = False
        self._appenders = {
            name: ClaimAppender(name, partial(self._new_claim, name), self._options.claim_bytes)
            for name in self._options.containers
        }

    def put(self, data: bytes) -> StoredContent:
        """Store one content; raises and promises as `put_many` does."""
        return self.put_many([data])[0]

    def put_many(self, contents: Sequence[bytes]) -> list[StoredContent]:
        """Store several contents with as few syncs as possible.

        Durability: on return they survive power loss. On raise none of them counts as stored.

        Raises:
            StorageError: no container took them; the disks of some may be away (ContentContainerMissingError).
            ClosedError: the writer was closed.
        """
        stored: dict[int, StoredContent] = {}
        small: list[tuple[int, tuple[bytes, Digest]]] = []
        for number, data in enumerate(contents):
            if len(data) > self._options.claim_bytes:
                stored[number] = self.put_stream([data])
            else:
                digest = Digest()
                digest.update(data)
                small.append((number, (data, digest)))
        if small:
            stored_small = self._put_small([content for _, content in small])
            stored.update(zip((number for number, _ in small), stored_small, strict=True))
        return [stored[number] for number in range(len(contents))]

    def put_stream(self, chunks: Iterable[bytes]) -> StoredContent:
        """Store one content piece by piece, never holding more of it than a resource claim takes.

        Durability and errors as of `put_many`; what the iterable raises leaves nothing that counts as stored.
        """
        with self.open() as sink:
            for chunk in chunks:
                sink.write(chunk)
            return sink.finish()

    def open(self) -> ContentStream:
        """Begin a content of unknown length."""
        return ContentStream(self)

    def close(self) -> None:
        """End; contents under way are finished first."""
        # First, so that no content enters behind the last one.
        self._is_closed = True
        for appender in self._appenders.values():
            appender.close()

    def own_claim(self) -> OpenClaim:
        """Return a new resource claim for one large content, on the first container that takes it."""
        failure: OSError | None = None
        for name in self._order():
            try:
                return self._new_claim(name)
            except OSError as error:
                failure = error
                self._pass_over(name)
        raise failure or StorageError("no content container is configured.")

    @property
    def small_bytes_max(self) -> int:
        """Up to this length a content is held in memory and shares a resource claim."""
        return self._options.claim_bytes

    def put_small(self, data: bytes, digest: Digest) -> StoredContent:
        """Store one content that is known already."""
        return self._put_small([(data, digest)])[0]

    def _put_small(self, contents: Sequence[tuple[bytes, Digest]]) -> list[StoredContent]:
        failure: OSError | None = None
        for name in self._order():
            try:
                return self._appenders[name].append(contents)
            # Tried elsewhere, unlike events: a content has no id that could be given out twice.
            except OSError as error:
                failure = error
                self._pass_over(name)
        raise failure or StorageError("no content container is configured.")

    def _order(self) -> list[str]:
        """Return the containers in turn, those that refused a moment ago last."""
        if self._is_closed:
            raise ClosedError(_CLOSED)
        names = self._options.containers
        with self._lock:
            # Each call begins at the next container, so that threads spread over the disks.
            shift = next(self._turns) % len(names)
            turned = names[shift:] + names[:shift]
            now = time.monotonic()
            # All of them, those that refused last: when every container refused, each is tried all the same.
            return sorted(turned, key=lambda name: self._retry_at.get(name, 0.0) > now)

    def _pass_over(self, name: str) -> None:
        with self._lock:
            self._retry_at[name] = time.monotonic() + RETRY_SECONDS

    def _new_claim(self, container: str) -> OpenClaim:
        now_ms = self._clock.now_ms()
        place = self._containers.get(container)
        with self._lock:
            if not self._is_adopted:
                self._containers.adopt(self._options.containers, now_ms)
                self._is_adopted = True
            # Nothing is written where the container's disk is not.
            place.add(now_ms)
        while True:
            with self._lock:
                number = next(self._numbers)
            section, identifier = claim_section(number), claim_name(now_ms, number)
            path = self._paths.claim(container, section, identifier)
            # The writer's lock is held, so only an earlier process can have taken the name: a clock that went back.
            if not self._fs.exists(path):
                break
        header = ClaimHeader(
            writer=self._paths.writer,
            container=container,
            section=section,
            identifier=identifier,
            created_ms=now_ms,
            nonce=uuid.uuid4().hex,
        )
        claim = OpenClaim(self._fs, path, header, is_synced=self._options.is_synced)
        try:
            # The disk may have gone since: the file would lie below the place where it is mounted again.
            place.check()
        except StorageError:
            claim.abandon()
            raise
        return claim


class ContentStream:
    """One content that is written piece by piece; what leaves the block without `finish` is not stored."""

    def __init__(self, writer: ContentWriter) -> None:
        self._writer = writer
        self._digest = Digest()
        self._held = bytearray()
        self._claim: OpenClaim | None = None
        self._start = 0
        self._stored: StoredContent | None = None

    def write(self, data: bytes) -> int:
        """Append bytes; return how many.

        Raises:
            StorageError: the disk refused; the content is lost.
        """
        self._digest.update(data)
        # Only now is it known to be large; small contents share a file, which costs fewer syncs.
        if self._claim is None and self._digest.length > self._writer.small_bytes_max:
            self._claim = self._writer.own_claim()
            self._start = self._claim.bytes
            self._claim.write(bytes(self._held))
            self._held.clear()
        if self._claim is None:
            self._held += data
        else:
            self._claim.write(data)
        return len(data)

    def finish(self) -> StoredContent:
        """End the content.

        Durability: on return it survives power loss.
        """
        if self._claim is None:
            self._stored = self._writer.put_small(bytes(self._held), self._digest)
            return self._stored
        # The record comes last: length and digest of a stream are known at its end.
        record = self._digest.record(self._start)
        self._claim.write(record.encode(self._claim.key))
        self._claim.acknowledge()
        self._claim.close()
        self._stored = _stored(self._claim, record)
        return self._stored

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A process that dies cleans up nothing: only what Python's own errors leave is removed.
        if self._claim is not None and self._stored is None and (error is None or isinstance(error, Exception)):
            self._claim.abandon()


def _flush(claim: OpenClaim, buffer: list[bytes]) -> None:
    if buffer:
        # One write and one sync for all contents of the batch.
        claim.write(b"".join(buffer))
        claim.acknowledge()


def _stored(claim: OpenClaim, record: ContentRecord) -> StoredContent:
    return StoredContent(claim.resource.claim(record.offset, record.length), record.sha256.hex())
