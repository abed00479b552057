"""Writing contents: small ones share resource claims, a large one streams into one of its own.

A content is acknowledged when its bytes, its record and the name of its file are durable; only then may an event speak
of it. A crash between the two leaves a content that no event speaks of. Nothing is appended to a file of an earlier
process, so a torn tail stays where it is until the file goes.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self

from custody.clock import Clock
from custody.errors import ClosedError, StorageError
from custody.flow.content.claims import StoredContent
from custody.flow.content.file import ClaimHeader, Digest
from custody.flow.content.lane import ContentLane, OpenClaim
from custody.format.names import ContentPaths, claim_name, claim_section
from custody.vfs import FileSystem

RETRY_SECONDS = 10.0
"""How long a container that refused is passed over while others work."""


@dataclass(frozen=True, slots=True)
class ContentOptions:
    """How contents are written; sizes in bytes."""

    containers: tuple[str, ...] = ("1",)
    claim_bytes: int = 1 << 20
    """A resource claim of this size takes no more contents; a content that is larger gets one of its own."""
    is_synced: bool = True
    """False only where events may be lost by a power failure too."""


class ContentWriter:
    """Stores contents under one writer name, whose lock the caller holds; any number of threads may use it.

    No file is made before the first content.
    """

    def __init__(
        self, fs: FileSystem, store: Path, writer: str, clock: Clock, options: ContentOptions | None = None
    ) -> None:
        self._fs = fs
        self._paths = ContentPaths(store, writer)
        self._clock = clock
        self._options = options or ContentOptions()
        self._numbers = count()
        self._turns = count()
        self._lock = Lock()
        self._resting: dict[str, float] = {}
        self._is_closed = False
        self._lanes = {
            name: ContentLane(partial(self._make, name), self._options.claim_bytes) for name in self._options.containers
        }

    def put(self, data: bytes) -> StoredContent:
        """Store one content; raises and promises as `put_many` does."""
        return self.put_many([data])[0]

    def put_many(self, contents: Sequence[bytes]) -> list[StoredContent]:
        """Store several contents with as few syncs as possible.

        Durability: on return they survive power loss. On raise none of them counts as stored.

        Raises:
            StorageError: no container took them.
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
            done = self._put_small([piece for _, piece in small])
            stored.update(zip((number for number, _ in small), done, strict=True))
        return [stored[number] for number in range(len(contents))]

    def put_stream(self, chunks: Iterable[bytes]) -> StoredContent:
        """Store one content piece by piece, never holding more of it than a resource claim takes.

        Durability and errors as of `put_many`; what the iterable raises leaves nothing that counts as stored.
        """
        with self.open() as sink:
            for chunk in chunks:
                sink.write(chunk)
            return sink.finish()

    def open(self) -> ContentSink:
        """Begin a content of unknown length."""
        return ContentSink(self)

    def close(self) -> None:
        """End; contents under way are finished first."""
        self._is_closed = True
        for lane in self._lanes.values():
            lane.close()

    def own_claim(self) -> OpenClaim:
        """Return a new resource claim for one large content, on the first container that takes it."""
        failure: OSError | None = None
        for name in self._order():
            try:
                return self._make(name)
            except OSError as error:
                failure = error
                self._rest(name)
        raise failure or StorageError("no content container is configured.")

    @property
    def small_bytes_max(self) -> int:
        """Up to this length a content is held in memory and shares a resource claim."""
        return self._options.claim_bytes

    def put_small(self, data: bytes, digest: Digest) -> StoredContent:
        """Store one content that is known already."""
        return self._put_small([(data, digest)])[0]

    def _put_small(self, pieces: Sequence[tuple[bytes, Digest]]) -> list[StoredContent]:
        failure: OSError | None = None
        for name in self._order():
            try:
                return self._lanes[name].put(pieces)
            except OSError as error:
                failure = error
                self._rest(name)
        raise failure or StorageError("no content container is configured.")

    def _order(self) -> list[str]:
        """Return the containers in turn, those that refused a moment ago last."""
        if self._is_closed:
            raise ClosedError("the content writer is closed. Open the repository's writer again.")
        names = self._options.containers
        with self._lock:
            shift = next(self._turns) % len(names)
            turned = names[shift:] + names[:shift]
            now = time.monotonic()
            return sorted(turned, key=lambda name: self._resting.get(name, 0.0) > now)

    def _rest(self, name: str) -> None:
        with self._lock:
            self._resting[name] = time.monotonic() + RETRY_SECONDS

    def _make(self, container: str) -> OpenClaim:
        now_ms = self._clock.now_ms()
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
        return OpenClaim(self._fs, path, header, is_synced=self._options.is_synced)


class ContentSink:
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
        record = self._digest.record(self._start)
        self._claim.write(record.encode(self._claim.key))
        self._claim.acknowledge()
        self._claim.close()
        self._stored = StoredContent(self._claim.resource.claim(record.offset, record.length), record.sha256.hex())
        return self._stored

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A process that dies cleans up nothing: only what Python's own errors leave is removed.
        if self._claim is not None and self._stored is None and (error is None or isinstance(error, Exception)):
            self._claim.abandon()
