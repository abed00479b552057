"""A lane: the one resource claim of a container that small contents are appended to, with group commit.

Threads queue their contents; one of them becomes the leader, writes all that is queued in one call and syncs once;
then all of them return. While it syncs, the next ones queue. A file that failed is never written again: the next
contents go to a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition

from custody.errors import ClosedError, StorageError
from custody.flow.content.claims import ResourceClaim, StoredContent
from custody.flow.content.file import ClaimHeader, Digest, head
from custody.vfs import FileSystem, WritableFile, temporary

OPEN_SECONDS_MAX = 600.0
"""How long contents are appended to one file. An older one can be removed as soon as no event speaks of it."""


class OpenClaim:
    """A resource claim that is written: its header is durable before it has its name, and the name before contents."""

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
            self._file.write(head(header))
            self._file.sync()
            fs.rename(partial, path)
            fs.sync_directory(path.parent)
        except BaseException as error:
            self._file.close()
            if isinstance(error, OSError):
                with suppress(OSError):  # a full disk is asked again and again: nothing piles up
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
        with suppress(OSError):  # what is left is a leftover, and the failure before this one is the one to tell
            self._file.close()
            if not self.is_used:
                self._fs.remove(self.path)


@dataclass
class _Waiting:
    pieces: Sequence[tuple[bytes, Digest]]
    stored: list[StoredContent] = field(default_factory=list)
    error: BaseException | None = None
    is_done: bool = False


class ContentLane:
    """Appends small contents for any number of threads.

    Args:
        make: opens a new resource claim.
        claim_bytes: the size from which on nothing more is appended to one.
    """

    def __init__(self, make: Callable[[], OpenClaim], claim_bytes: int) -> None:
        self._make = make
        self._claim_bytes = claim_bytes
        self._open: OpenClaim | None = None
        self._changed = Condition()
        self._queue: list[_Waiting] = []
        self._is_led = False
        self._is_closed = False

    def put(self, pieces: Sequence[tuple[bytes, Digest]]) -> list[StoredContent]:
        """Append contents, each with its digest; return them once they are durable.

        Raises:
            ClosedError: the lane was closed.
            StorageError: the disk refused; none of the contents counts as stored.
        """
        mine = _Waiting(pieces)
        with self._changed:
            if self._is_closed:
                raise ClosedError("the content writer is closed. Open the repository's writer again.")
            self._queue.append(mine)
            while self._is_led and not mine.is_done:
                self._changed.wait()
            if not mine.is_done:
                self._is_led = True
                waiting, self._queue = self._queue, []
        if not mine.is_done:
            self._lead(waiting)
        if mine.error is not None:
            raise _failed_with(mine.error)
        return mine.stored

    def close(self) -> None:
        """Let the file go; what is under way ends first."""
        with self._changed:
            self._is_closed = True
            while self._is_led or self._queue:
                self._changed.wait()
            claim, self._open = self._open, None
        if claim is not None:
            claim.close()

    def _lead(self, waiting: list[_Waiting]) -> None:
        """Write and sync for all that queued; nobody else touches the file meanwhile."""
        error: BaseException | None = None
        try:
            self._store(waiting)
        except BaseException as failure:
            error = failure
            if self._open is not None:
                self._open.abandon()
                self._open = None
            raise
        finally:
            with self._changed:
                self._is_led = False
                for item in waiting:
                    item.error, item.is_done = error, True
                self._changed.notify_all()

    def _store(self, waiting: list[_Waiting]) -> None:
        buffer: list[bytes] = []
        size = 0
        for item in waiting:
            for data, digest in item.pieces:
                claim = self._open
                if claim is not None and (claim.bytes + size >= self._claim_bytes or claim.is_old):
                    self._flush(claim, buffer)
                    claim.close()
                    claim = self._open = None
                    buffer, size = [], 0
                if claim is None:
                    claim = self._open = self._make()
                record = digest.record(claim.bytes + size)
                behind = record.encode(claim.key)
                buffer += (data, behind)
                size += len(data) + len(behind)
                item.stored.append(
                    StoredContent(claim.resource.claim(record.offset, record.length), record.sha256.hex())
                )
        if self._open is not None:
            self._flush(self._open, buffer)

    def _flush(self, claim: OpenClaim, buffer: list[bytes]) -> None:
        if buffer:
            claim.write(b"".join(buffer))
            claim.acknowledge()


def _failed_with(error: BaseException) -> StorageError:
    failure = StorageError(f"a content of another thread could not be stored ({error}), nor could this one with it.")
    failure.errno = error.errno if isinstance(error, OSError) else None
    return failure
