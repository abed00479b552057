"""The group of journals that a writer has open, and each of its files.

Appends are spread over the files of the group, one file for each append that runs at the same time. Each file is
written with group commit: threads that append to it meanwhile share one write and one sync.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from threading import Condition, Lock

import msgspec

from custody.format.framing import join_records
from custody.format.names import SEALED_SUFFIX
from custody.journal.encoding import Record
from custody.journal.journal_file import KIND_GROUP, JournalEnd, JournalHeader, write_header
from custody.journal.sealing import KeepCut, cut_durably, discard_cut, finish
from custody.vfs import FileSystem, WritableFile, temporary, write_durably
from custody.vfs.group_commit import GroupCommitQueue

# What one write and one sync cover at most: so much can a torn write, and its copy in the quarantine, hold.
_UNIT_BYTES_MAX = 256 << 20
SMALL_BYTES_MAX = 64 << 10
"""An append of up to so many bytes takes longer to sync than to write."""
SLOW_SECONDS = 5.0
"""A write that takes longer is told to the log."""
_LOGGER = logging.getLogger(__name__)


class SyncPolicy(StrEnum):
    """The promise of an acknowledgement."""

    ALWAYS = "always"
    """The events survive power loss."""
    INTERVAL = "interval"
    """The events survive the end of the process; power loss may cost those of the last interval."""
    NEVER = "never"
    """The events survive the end of the process; the operating system decides about power loss."""


class JournalAppend(msgspec.Struct, gc=False):
    """The events of one append, framed, and the ids that they got."""

    records: list[Record]
    first_event_id: int
    count: int


class GroupCommitFile:
    """One journal of an open group, to which many threads append with group commit.

    The first append makes the file. One that failed to write or to sync is broken for good: what the disk holds of it
    is unknown. Events that were acknowledged before stay safe; recovery cuts what follows them.
    """

    def __init__(self, fs: FileSystem, path: Path, header: JournalHeader, policy: SyncPolicy) -> None:
        self._fs = fs
        self.path = path
        self._header = header
        self._policy = policy
        self._queue: GroupCommitQueue[JournalAppend] = GroupCommitQueue(
            str(path), self._commit, is_poisoned_by_failure=True
        )
        self._file: WritableFile | None = None
        self._is_synced = True
        self._end = JournalEnd(events=0)
        self._acknowledged_bytes = 0
        """Length of the file with all that `_end` counts, and nothing behind it."""
        self._was_created = False
        self._is_sealed = False
        self.bytes = 0
        self.is_retired = False
        """Whether its container was taken out; what it holds is sealed if that can still be done."""

    @property
    def is_working(self) -> bool:
        """Whether it takes appends."""
        return self._queue.failure is None and not self.is_retired

    @property
    def error(self) -> BaseException | None:
        """Why it is broken, None when it is not."""
        return self._queue.failure

    def append(self, appended: JournalAppend) -> None:
        """Append the records of one append; return when the sync policy's promise holds.

        Raises:
            ClosedError: an earlier append broke the file.
            StorageError: the disk refused; which of the records survive is unknown.
        """
        self._queue.put(appended)

    def sync(self) -> None:
        """Make durable what was appended; for the policies that do not do it at once."""
        self._queue.run_exclusively(self._sync_the_rest)

    def close(self) -> Path | None:
        """Sync, close and seal; return the sealed name, None when there is nothing to seal or the file is broken."""
        file = self._queue.run_exclusively(self._take_file)
        if file is None:
            return None
        # Left open: an end record would vouch for bytes that nobody knows.
        if self.error is not None:
            file.close()
            return None
        # Outside the queue: the group has waited for its appends, and a seal may take as long as a disk takes.
        sealed = finish(self._fs, self.path, file, self._end)
        self._is_sealed = True
        return sealed

    @property
    def is_left_open(self) -> bool:
        """Whether a failure kept the file from being sealed."""
        return self._was_created and not self._is_sealed

    def salvage(self, keep_cut: KeepCut = discard_cut) -> Path | None:
        """Seal what a failure left open, on a disk that takes writes again; return its name, None for nothing.

        What follows the last acknowledged append is cut once `keep_cut` has a copy: nothing of a write that failed, or
        was not synced, can be relied on. Can be repeated after it failed.

        Durability: on return the acknowledged events are in a sealed journal that survives power loss.
        """
        fs, folder = self._fs, self.path.parent
        sealed = self.path.with_suffix(SEALED_SUFFIX)
        fs.remove(temporary(self.path))
        if fs.exists(self.path):
            # The copy comes before the cut, because the cut is final.
            cut = fs.read(self.path)[self._acknowledged_bytes :]
            if cut:
                keep_cut(self.path, self._acknowledged_bytes, cut, "what a failed write left, never acknowledged")
        if fs.exists(self.path) and self._end.events == 0:
            # Nothing of it was acknowledged, and a start would seal what a failed write left.
            fs.remove(self.path)
        if fs.exists(self.path):
            cut_durably(fs, self.path, self._acknowledged_bytes)
            finish(fs, self.path, fs.append(self.path), self._end)
        # Also when there was nothing to do: an earlier try may have ended between its rename and its sync.
        fs.sync_directory(folder)
        self._is_sealed = True
        return sealed if self._end.events else None

    def _commit(self, batch: list[JournalAppend]) -> None:
        """Write and sync what several threads appended; the queue keeps all others off the file meanwhile."""
        if len(batch) == 1 and len(batch[0].records) == 1:
            self._write(batch[0].records[0])
        else:
            for unit in _units([b"".join(record) for appended in batch for record in appended.records]):
                self._write((unit,))
        # Counted only when all of it is written: what a failed batch left on the disk is unknown, and `salvage` cuts
        # it.
        count = sum([one.count for one in batch])
        first = min([one.first_event_id for one in batch])
        self._end = self._end.with_ids(count, first, max([one.first_event_id + one.count - 1 for one in batch]))
        self._acknowledged_bytes = self._acknowledged_bytes if self._file is None else self._file.tell()

    def _write(self, pieces: Record) -> None:
        file = self._file or self._create()
        before = file.tell()
        started = time.monotonic()
        self._is_synced = False
        if self._policy is SyncPolicy.ALWAYS:
            write_durably(file, *pieces)
            self._is_synced = True
        else:
            file.write(b"".join(pieces))
        self.bytes += file.tell() - before
        seconds = time.monotonic() - started
        if seconds > SLOW_SECONDS:
            _LOGGER.warning("%s: the disk took %.1f s for one write", self.path, seconds)

    def _sync_the_rest(self) -> None:
        # A broken file is left as it is: a second sync that succeeds does not bring back what the first one lost.
        if not self._is_synced and self.error is None:
            self._sync()

    def _sync(self) -> None:
        if self._file is not None:
            self._file.sync()
        self._is_synced = True

    def _take_file(self) -> WritableFile | None:
        file, self._file = self._file, None
        return file

    def _create(self) -> WritableFile:
        """Make the file: its header is durable before it has its name, and the name before the first record."""
        partial = temporary(self.path)
        # Before the call: a create that fails may have left the file.
        self._was_created = True
        file = self._fs.create(partial)
        # From here on `close` finds the descriptor, also when the header cannot be written.
        self._file = file
        write_header(file, self._header)
        # In this order: a journal that has its name has a whole header, and no acknowledged record lies in a file whose
        # name a power loss can take away.
        file.sync()
        self._fs.rename(partial, self.path)
        self._fs.sync_directory(self.path.parent)
        return file


def _units(records: list[bytes]) -> Iterator[bytes]:
    """Join the records that one write and one sync cover into one: after a power loss it is whole or torn.

    As records of their own the first could be lost and the second survive, which would look like damage.
    """
    # The bound keeps one record, and so a reader's memory, small whatever has queued.
    unit: list[bytes] = []
    size = 0
    for record in records:
        if unit and size + len(record) > _UNIT_BYTES_MAX:
            yield unit[0] if len(unit) == 1 else join_records(KIND_GROUP, unit)
            unit, size = [], 0
        unit.append(record)
        size += len(record)
    if unit:
        yield unit[0] if len(unit) == 1 else join_records(KIND_GROUP, unit)


class OpenGroup:
    """Journals with a common first event id, as long as events may be appended.

    `create_file(number)` gives file `number`, on the disks in turn. Small appends share one file a disk: what they cost
    is the sync, and one sync serves all that wait. Large ones use as many files as run at once: one thread fills one
    journal, sixteen threads fill sixteen, however many may be open.
    """

    def __init__(
        self,
        header: JournalHeader,
        files_max: int,
        create_file: Callable[[int], GroupCommitFile],
        opened_ms: int,
        disks: int = 1,
    ) -> None:
        self.header = header
        self.opened_ms = opened_ms
        self._files_max = files_max
        self._disks = disks
        self._create_file = create_file
        self._files: list[GroupCommitFile] = []
        self._running = 0
        self._is_closing = False
        # Entered by itself: through the condition that takes two more calls of Python each time.
        self._lock = Lock()
        self._changed = Condition(self._lock)

    def enter(self, append_bytes: int) -> GroupCommitFile:
        """Return the file for one append, which has to call `leave`: one in use, a new one, or the next in turn."""
        with self._lock:
            number = self._running if append_bytes > SMALL_BYTES_MAX else self._running % self._disks
            self._running += 1
            # The usual case first: of up to sixteen files not each has to be looked at.
            if number < len(self._files) and self._files[number].is_working:
                return self._files[number]
            working = [file for file in self._files if file.is_working]
            if number < len(working):
                return working[number]
            if len(self._files) < self._files_max:
                self._files.append(self._create_file(len(self._files)))
                return self._files[-1]
            # Without a working file the last one takes the append and refuses it with the reason.
            return working[number % len(working)] if working else self._files[-1]

    def leave(self) -> None:
        """Say that an append ended, well or not."""
        with self._lock:
            self._running -= 1
            if self._is_closing:
                self._changed.notify_all()

    def take_out(self, root: Path) -> None:
        """Append nothing more to the files of a container."""
        with self._lock:
            for file in self._files:
                file.is_retired = file.is_retired or file.path.is_relative_to(root)

    @property
    def bytes(self) -> int:
        """Bytes appended so far."""
        return sum([file.bytes for file in self._files])

    @property
    def has_failed(self) -> bool:
        """Whether a file is broken."""
        return any(file.error is not None for file in self._files)

    @property
    def left_open(self) -> list[GroupCommitFile]:
        """The files that could not be sealed."""
        return [file for file in self._files if file.is_left_open]

    def sync(self) -> list[tuple[GroupCommitFile, OSError]]:
        """Make durable what was appended; return the files that failed."""
        failed: list[tuple[GroupCommitFile, OSError]] = []
        # A copy: appends may add files meanwhile.
        for file in list(self._files):
            try:
                file.sync()
            except OSError as error:
                failed.append((file, error))
        return failed

    def close(self) -> tuple[list[Path], list[tuple[GroupCommitFile, OSError]]]:
        """Wait for the appends that run, then seal every file; return the sealed journals and the files that failed."""
        with self._lock:
            self._is_closing = True
            # No append enters any more: the writer has taken the group away under its own lock.
            while self._running:
                self._changed.wait()
        sealed: list[Path] = []
        failed: list[tuple[GroupCommitFile, OSError]] = []
        for file in self._files:
            try:
                path = file.close()
            except OSError as error:
                failed.append((file, error))
            else:
                sealed += [path] if path is not None else []
        return sealed, failed
