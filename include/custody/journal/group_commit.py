"""A lane: one journal file that many threads append to, with group commit.

Threads queue their records; one of them becomes the leader, writes all that is queued in one call and syncs once; then
all of them return. While it syncs, the next ones queue. The file is made by the first append.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from threading import Condition

from custody.errors import ClosedError, StorageError
from custody.format.framing import joined
from custody.format.names import SEALED_SUFFIX
from custody.journal.file import KIND_GROUP, JournalEnd, JournalHeader, write_header
from custody.journal.sealing import KeepCut, cut_durably, finish, let_go
from custody.vfs import FileSystem, WritableFile, temporary

_UNIT_BYTES_MAX = 256 << 20
SLOW_SECONDS = 5.0
"""A write that takes longer is told to the log."""
_LOGGER = logging.getLogger(__name__)


class SyncPolicy(StrEnum):
    """What an acknowledgement promises."""

    ALWAYS = "always"
    """The events survive power loss."""
    INTERVAL = "interval"
    """The events survive the end of the process; power loss may cost those of the last interval."""
    NEVER = "never"
    """The events survive the end of the process; the operating system decides about power loss."""


@dataclass(frozen=True, slots=True)
class Appended:
    """The events of one append, framed, and the ids that they got."""

    records: list[bytes]
    first_event_id: int
    count: int


class Lane:
    """One journal of an open group.

    A lane that failed to write or to sync is broken for good: what the disk holds of it is unknown. Events that were
    acknowledged before stay safe; recovery cuts what follows them.
    """

    def __init__(self, fs: FileSystem, path: Path, header: JournalHeader, policy: SyncPolicy) -> None:
        self._fs = fs
        self.path = path
        self._header = header
        self._policy = policy
        self._file: WritableFile | None = None
        self._changed = Condition()
        self._queue: list[Appended] = []
        self._queued = 0
        self._done = 0
        self._is_led = False
        self._is_synced = True
        self._end = JournalEnd(events=0)
        self._kept_bytes = 0
        """Length of the file with all that `_end` counts, and nothing behind it."""
        self._is_made = False
        self._is_sealed = False
        self.bytes = 0
        self.is_out = False
        """Whether its container was taken out; what it holds is sealed if that can still be done."""
        self.error: BaseException | None = None

    def append(self, appended: Appended) -> None:
        """Append the records of one append; return when the sync policy's promise holds.

        Raises:
            ClosedError: an earlier append broke the lane.
            StorageError: the disk refused; which of the records survive is unknown.
        """
        with self._changed:
            self._refuse_if_broken()
            self._queue.append(appended)
            self._queued += 1
            ticket = self._queued
            while self._is_led and self._done < ticket and self.error is None:
                self._changed.wait()
            if self._done >= ticket:
                return
            if self.error is not None:
                raise self._failed_with(self.error)
            self._is_led = True
            waiting, self._queue = self._queue, []
        self._lead(waiting)

    def sync(self) -> None:
        """Make durable what was appended; for the policies that do not do it at once."""
        with self._changed:
            while self._is_led:
                self._changed.wait()
            if self._is_synced or self._file is None or self.error is not None:
                return
            self._is_led = True
        self._lead([], force=True)

    def close(self) -> Path | None:
        """Sync, close and seal; return the sealed name, None when there is nothing to seal or the lane is broken."""
        with self._changed:
            while self._is_led:
                self._changed.wait()
            file, self._file = self._file, None
        if file is None:
            return None
        if self.error is not None:
            file.close()
            return None
        sealed = finish(self._fs, self.path, file, self._end)
        self._is_sealed = True
        return sealed

    @property
    def is_left_open(self) -> bool:
        """Whether a failure kept a file of it from being sealed."""
        return self._is_made and not self._is_sealed

    def salvage(self, keep_cut: KeepCut = let_go) -> Path | None:
        """Seal what a failure left open, on a disk that takes writes again; return its name, None for nothing.

        What follows the last append that was answered is cut, when `keep_cut` has a copy: a write that failed, or was
        not synced, is in no part to be relied on. Can be done again after it failed.

        Durability: on return the events that the lane acknowledged are in a sealed journal that survives power loss.
        """
        fs, folder = self._fs, self.path.parent
        sealed = self.path.with_suffix(SEALED_SUFFIX)
        fs.remove(temporary(self.path))
        if fs.exists(self.path):
            cut = fs.read(self.path)[self._kept_bytes :]
            if cut:
                keep_cut(self.path, self._kept_bytes, cut, "what a write that failed left, which nobody was told of")
        if fs.exists(self.path) and self._end.events == 0:
            fs.remove(self.path)
        if fs.exists(self.path):
            cut_durably(fs, self.path, self._kept_bytes)
            finish(fs, self.path, fs.append(self.path), self._end)
        fs.sync_directory(folder)
        self._is_sealed = True
        return sealed if self._end.events else None

    def _lead(self, waiting: list[Appended], *, force: bool = False) -> None:
        """Write and sync for all that queued; nobody else touches the file meanwhile."""
        error: BaseException | None = None
        try:
            for unit in _units([record for appended in waiting for record in appended.records]):
                self._write(unit)
            if force and not self._is_synced:
                self._sync()
        except BaseException as failure:
            error = failure
            raise
        finally:
            with self._changed:
                self._is_led = False
                self.error = self.error or error
                if error is None:
                    self._done += len(waiting)
                    for appended in waiting:
                        self._end = self._end.with_events(appended.first_event_id, appended.count)
                    self._kept_bytes = self._kept_bytes if self._file is None else self._file.tell()
                self._changed.notify_all()

    def _write(self, data: bytes) -> None:
        file = self._file or self._open()
        begun = time.monotonic()
        file.write(data)
        self.bytes += len(data)
        self._is_synced = False
        if self._policy is SyncPolicy.ALWAYS:
            self._sync()
        seconds = time.monotonic() - begun
        if seconds > SLOW_SECONDS:
            _LOGGER.warning("%s: the disk took %.1f s for one write", self.path, seconds)

    def _sync(self) -> None:
        if self._file is not None:
            self._file.sync()
        self._is_synced = True

    def _open(self) -> WritableFile:
        """Make the file: its header is durable before it has its name, and the name before the first record."""
        partial = temporary(self.path)
        self._is_made = True
        file = self._fs.create(partial)
        self._file = file
        write_header(file, self._header)
        file.sync()
        self._fs.rename(partial, self.path)
        self._fs.sync_directory(self.path.parent)
        return file

    def _failed_with(self, error: BaseException) -> StorageError:
        failure = StorageError(f"{self.path}: an append of another thread failed ({error}), this one with it.")
        failure.errno = error.errno if isinstance(error, OSError) else None
        return failure

    def _refuse_if_broken(self) -> None:
        if self.error is not None:
            raise ClosedError(f"{self.path}: an earlier append failed ({self.error}); nothing more is written to it.")


def _units(records: list[bytes]) -> Iterator[bytes]:
    """Yield what one write and one sync cover, each as one record: after a power loss it is all there or torn.

    As records of their own the first could be lost and the second survive, which would look like damage.
    """
    unit: list[bytes] = []
    size = 0
    for record in records:
        if unit and size + len(record) > _UNIT_BYTES_MAX:
            yield unit[0] if len(unit) == 1 else joined(KIND_GROUP, unit)
            unit, size = [], 0
        unit.append(record)
        size += len(record)
    if unit:
        yield unit[0] if len(unit) == 1 else joined(KIND_GROUP, unit)
