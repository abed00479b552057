"""The write-ahead log of a FlowFile repository, and its snapshots.

Folder: `snapshot`, `snapshot.partial` while one is written, `log/<first transaction>.log`, `swap/`, `lock`. Whoever
holds the lock may read what others appended, append, and write a snapshot. A process that dies while it appends leaves
a torn tail, which the next holder cuts: nothing of it was acknowledged.

A snapshot begins a new log, and removes the logs before it once it is durable. A process whose log is gone reads the
snapshot, which holds all that it missed.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from custody.errors import CorruptionError, FormatVersionError, LockedError, NotFoundError, StorageError
from custody.flowfile_repository.records import (
    KIND_END_OF_LOG,
    KIND_FLOWFILES,
    KIND_SUMMARY,
    KIND_TRANSACTION,
    LOG_PREAMBLE,
    SNAPSHOT_PREAMBLE,
    FileHeader,
    SnapshotSummary,
    Waiting,
    decode_flowfiles,
    decode_summary,
    decode_transaction,
    encode_flowfiles,
    encode_summary,
    head,
    read_head,
    whole_frames,
)
from custody.flowfile_repository.state import FlowFileState, ReadBlock
from custody.flowfile_repository.swap import read_swap_block
from custody.format.framing import Frame, frame, frames, judge_tail
from custody.journal import KeepCut, discard_cut
from custody.vfs import FileSystem, WritableFile, release_pages

_FLOWFILES_A_FRAME = 1000
_MAPPED_BYTES_MAX = 64 << 20
"""So much of a log counts as memory of the process while it is read."""


@dataclass(frozen=True)
class LogFolder:
    """The names in the folder of a FlowFile repository; each is put together once, as every commit asks for some."""

    home: Path

    @cached_property
    def lock(self) -> Path:
        """The lock of whoever reads on, appends, or writes a snapshot."""
        return self.home / "lock"

    @cached_property
    def snapshot(self) -> Path:
        """The last whole snapshot."""
        return self.home / "snapshot"

    @cached_property
    def partial(self) -> Path:
        """The snapshot that is being written."""
        return self.home / "snapshot.partial"

    @cached_property
    def logs(self) -> Path:
        """The folder of the logs."""
        return self.home / "log"

    @cached_property
    def swaps(self) -> Path:
        """The folder of the swap files."""
        return self.home / "swap"

    @cached_property
    def members(self) -> Path:
        """The folder of the locks that tell which processes live."""
        return self.home / "members"

    def log(self, first: int) -> Path:
        """Return the log that begins with this transaction."""
        return self.logs / f"{first:020d}.log"


class FlowFileLog:
    """The log of one repository as one process sees it; all methods need the lock of the folder.

    Args:
        fs: where the folder lies.
        folder: its names.
        keep_cut: keeps a copy of a torn tail before it is cut.
        is_read_only: reads without the lock and changes nothing: what was never acknowledged is passed over, not cut.
    """

    def __init__(
        self, fs: FileSystem, folder: LogFolder, keep_cut: KeepCut = discard_cut, *, is_read_only: bool = False
    ) -> None:
        self._fs = fs
        self._folder = folder
        self._keep_cut = keep_cut
        self._is_read_only = is_read_only
        self._path = Path()
        self._end = 0
        """Up to here the log was read and applied, or written."""
        self._file: WritableFile | None = None
        self._is_ended = False
        """Whether an end record was read behind what was applied."""
        self._last_ms = 0
        """The time of what was read last."""
        self._named = Path()
        """The log whose name is known to be durable."""
        self.repository = ""
        """The repository's id, from its first log."""

    def create(self, repository: str, now_ms: int) -> None:
        """Make the first log of a new repository."""
        fs, folder = self._fs, self._folder
        for path in (folder.home, folder.logs, folder.swaps, folder.members):
            fs.make_directory(path)
        fs.publish_if_absent(folder.log(0), head(LOG_PREAMBLE, FileHeader(repository=repository, created_ms=now_ms)))

    @property
    def exists(self) -> bool:
        """Whether the repository was made."""
        fs, folder = self._fs, self._folder
        return fs.exists(folder.snapshot) or fs.exists(folder.partial) or bool(self._logs())

    def recover(self, read_block: ReadBlock) -> FlowFileState:
        """Return the state that snapshot and logs tell.

        Raises:
            CorruptionError: one of them is damaged elsewhere than at the torn end of the last log.
        """
        self._close()
        snapshot = self._choose_snapshot()
        if snapshot is not None:
            header, flowfiles, summary = self._read_snapshot(snapshot)
            self.repository = header.repository
            state = FlowFileState.restored(read_block, header.number, flowfiles, summary)
        else:
            state = FlowFileState(read_block)
        # A log begins behind each snapshot, but a crash may have kept it from its name: then an older one leads there.
        firsts = [first for first in self._logs() if first <= state.last_transaction + 1]
        if not firsts:
            raise CorruptionError(
                f"{self._folder.logs}: expected the log with transaction {state.last_transaction + 1}, got none. "
                "A file of the repository was removed: restore it from a backup."
            )
        self._path, self._end = self._folder.log(firsts[-1]), 0
        try:
            self.follow(state)
        except NotFoundError as error:
            # Nobody writes a snapshot meanwhile: what is absent was removed by other hands.
            raise CorruptionError(str(error)) from error
        if not self._is_read_only:
            self._remove_later_logs(state.last_transaction + 1)
        return state

    def follow(self, state: FlowFileState) -> bool:
        """Apply what was appended since; return whether there was anything, which `sync` makes durable.

        A torn tail is cut: who holds the lock knows that nobody is writing.

        Raises:
            NotFoundError: the log that was read last is gone; `recover` begins anew.
            CorruptionError: the log is damaged.
        """
        before = self._path, state.last_transaction
        while not self._follow_one(state):
            self._close()
            following = self._folder.log(state.last_transaction + 1)
            if any(first > state.last_transaction + 1 for first in self._logs()):
                raise NotFoundError(f"{following}: expected this log, got later ones only. Restore it from a backup.")
            if self._fs.exists(following):
                self._path, self._end = following, 0
            elif self._is_read_only:
                break
            else:
                # Somebody died before the snapshot got its name, maybe before the end record was synced: a log that
                # begins behind transactions that a power loss takes would be a log of nothing.
                self.write_snapshot(state, self._last_ms)
        return (self._path, state.last_transaction) != before

    def append(self, frames: Sequence[bytes], *, is_synced: bool) -> None:
        """Append transactions, each encoded, in one piece.

        Durability: with `is_synced` they survive power loss on return. On raise it is unknown whether they are there:
        the caller closes, and recovers to find out.
        """
        if self._file is None:
            self._file = self._fs.append(self._path)
        data = b"".join(frames)
        self._file.write(data)
        if is_synced:
            self._file.sync()
        self._end += len(data)

    def sync(self) -> None:
        """Make durable what was appended, by whomever, and the name of the log."""
        self._fs.sync_file(self._path)
        if self._path != self._named:
            # Whoever began it may have died before the name was synced.
            self._fs.sync_directory(self._folder.logs)
            self._named = self._path

    def write_snapshot(self, state: FlowFileState, now_ms: int) -> None:
        """Write a snapshot of the state, and begin a new log behind it.

        Durability: on return both survive power loss, and what the snapshot does not need is gone.
        """
        fs, folder = self._fs, self._folder
        following = folder.log(state.last_transaction + 1)
        # What was appended without a sync is part of the snapshot: it must not be less durable than it.
        self.sync()
        self._write_partial(state, now_ms)
        if self._path != following and not self._is_ended:
            with fs.append(self._path) as file:
                file.write(frame(KIND_END_OF_LOG))
                file.sync()
        # Over the former one: at no moment is there none.
        fs.rename(folder.partial, folder.snapshot)
        fs.sync_directory(folder.home)
        # Behind the snapshot: where there is a log, nothing before it is needed any more, whatever a disk forgot of it.
        if self._path != following:
            self._close()
            self._begin_log(state.last_transaction + 1)
        for name in fs.list(folder.logs):
            # Also what a crash left of a log that had no name yet.
            if name != following.name:
                fs.remove(folder.logs / name)
        fs.sync_directory(folder.logs)

    def _write_partial(self, state: FlowFileState, now_ms: int) -> None:
        fs, partial = self._fs, self._folder.partial
        # Of an attempt that died.
        fs.remove(partial)
        header = FileHeader(repository=self.repository, number=state.last_transaction, created_ms=now_ms)
        try:
            with fs.create(partial) as file:
                file.write(head(SNAPSHOT_PREAMBLE, header))
                for chunk in _chunks(state.flowfiles()):
                    file.write(encode_flowfiles(chunk))
                file.write(encode_summary(state.summary()))
                file.sync()
        except BaseException:
            # At once: on a full disk the rest would take the room that commits need.
            fs.remove(partial)
            raise

    def close(self) -> None:
        """Release the log's file."""
        self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(StorageError):  # what counts was synced, or its failure was reported
                file.close()

    def _logs(self) -> list[int]:
        """Return the first transactions of the logs that are there, in order."""
        names = (name.removesuffix(".log") for name in self._fs.list(self._folder.logs) if name.endswith(".log"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _remove_later_logs(self, first: int) -> None:
        """Remove logs that begin behind the first transaction to come: nobody wrote to them.

        Raises:
            CorruptionError: somebody did, and what lies before them is lost.
        """
        for later in [number for number in self._logs() if number > first]:
            path = self._folder.log(later)
            data = self._fs.view(path)
            _, end = read_head(data, path, LOG_PREAMBLE, "FlowFile log")
            if end < len(data):
                raise CorruptionError(
                    f"{path}: expected transaction {first} before it, which is missing. What was acknowledged is lost, "
                    "and nothing was changed: restore the folder from a backup."
                )
            # After a failed sync, and a crash before the snapshot that makes up for it.
            self._fs.remove(path)
            self._fs.sync_directory(self._folder.logs)

    def _begin_log(self, first: int) -> None:
        path = self._folder.log(first)
        data = head(LOG_PREAMBLE, FileHeader(repository=self.repository, number=first))
        self._fs.write_durably(path, data)
        self._path, self._end, self._named, self._is_ended = path, len(data), path, False

    def _follow_one(self, state: FlowFileState) -> bool:
        """Apply what is new in the log that is open; return whether it is the last one."""
        self._is_ended = False
        try:
            if self._end and self._fs.size(self._path) == self._end:
                return True
            # A look reads a copy: whoever holds the lock may cut the file, and what is mapped must not shrink.
            data = memoryview(self._fs.read(self._path)) if self._is_read_only else self._fs.view(self._path)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                raise NotFoundError(f"{self._path}: a newer snapshot took the place of this log.") from None
            raise
        if not self._end:
            header, self._end = read_head(data, self._path, LOG_PREAMBLE, "FlowFile log")
            self._check_repository(header)
            self._last_ms = header.created_ms
        if self._apply_new(data, state):
            self._is_ended = True
            return False
        if self._end < len(data):
            self._cut_tail(data, state.last_transaction + 1)
        return True

    def _apply_new(self, data: memoryview, state: FlowFileState) -> bool:
        """Apply the transactions of a log that are new; return whether its end record follows them."""
        released = self._end
        for record in whole_frames(data, self._end):
            if record.kind == KIND_END_OF_LOG:
                return True
            if record.kind != KIND_TRANSACTION:
                raise CorruptionError(
                    f"{self._path} @{record.offset}: expected a transaction, got a record of kind {record.kind}."
                )
            transaction = decode_transaction(record.payload, self._path, record.offset)
            self._last_ms = transaction.time_ms
            # Behind a snapshot that a crash kept from its name, older logs repeat what it holds.
            if transaction.number > state.last_transaction:
                state.apply(transaction)
            self._end = record.end
            if self._end - released > _MAPPED_BYTES_MAX:
                release_pages(data)
                released = self._end
        return False

    def _check_repository(self, header: FileHeader) -> None:
        if not self.repository:
            self.repository = header.repository
        if header.repository != self.repository:
            raise CorruptionError(
                f"{self._path} @8: expected a log of the repository {self.repository}, got one of {header.repository}. "
                "The file was copied from another one: put the right one back."
            )

    def _cut_tail(self, data: memoryview, broken: int) -> None:
        """Cut what lies behind the last whole transaction, where `broken` should be."""
        # The whole file is judged: where the sectors of the disk begin counts.
        if judge_tail(data, self._end).damaged > self._end or self._was_synced(data, broken):
            raise CorruptionError(
                f"{self._path} @{self._end}: expected a transaction with its checksum, got a damaged one. It may have "
                "been acknowledged, so nothing was cut: restore the file from a backup."
            )
        if self._is_read_only:
            # Perhaps somebody is writing it at this moment.
            return
        self._keep_cut(self._path, self._end, bytes(data[self._end :]), "a transaction that was broken off")
        self._close()
        self._fs.truncate(self._path, self._end)

    def _was_synced(self, data: memoryview, number: int) -> bool:
        """Whether what was written after a transaction proves that it was durable once."""
        return any(
            decode_transaction(record.payload, self._path, record.offset).durable >= number
            for record in frames(data, self._end)
            if isinstance(record, Frame) and record.kind == KIND_TRANSACTION
        )

    def undo(self) -> None:
        """Cut what a failed `append` may have written: on return nothing of it survives."""
        self._close()
        self._fs.truncate(self._path, self._end)

    def _choose_snapshot(self) -> Path | None:
        """Decide between the snapshot and its partial one, as a crash left them; return the one that counts."""
        fs, folder = self._fs, self._folder
        has_snapshot, has_partial = self._has_snapshot(), fs.exists(folder.partial)
        is_taken = has_partial and not has_snapshot and self._is_whole(folder.partial)
        if self._is_read_only or not has_partial:
            return folder.snapshot if has_snapshot else folder.partial if is_taken else None
        if is_taken:
            # Synced before it gets the name: another process may have written it and died before its own sync.
            fs.sync_file(folder.partial)
            fs.rename(folder.partial, folder.snapshot)
        else:
            # Broken off: the snapshot, or the logs that it would have replaced, are all still there.
            fs.remove(folder.partial)
        fs.sync_directory(folder.home)
        return folder.snapshot if has_snapshot or is_taken else None

    def _is_whole(self, snapshot: Path) -> bool:
        try:
            self._read_snapshot(snapshot)
        except (CorruptionError, FormatVersionError):
            return False
        return True

    def _has_snapshot(self) -> bool:
        """Whether there is a snapshot; one without a byte tells nothing, and all logs must be there then."""
        path = self._folder.snapshot
        return self._fs.exists(path) and self._fs.size(path) > 0

    def _read_snapshot(self, path: Path) -> tuple[FileHeader, list[Waiting], SnapshotSummary]:
        data = self._fs.view(path)
        header, end = read_head(data, path, SNAPSHOT_PREAMBLE, "FlowFile snapshot")
        flowfiles: list[Waiting] = []
        for record in whole_frames(data, end):
            end = record.end
            if record.kind == KIND_FLOWFILES:
                flowfiles += decode_flowfiles(record.payload, path, record.offset)
            elif record.kind == KIND_SUMMARY and end == len(data):
                summary = decode_summary(record.payload, path, record.offset)
                if summary.flowfiles == len(flowfiles):
                    return header, flowfiles, summary
        raise CorruptionError(
            f"{path} @{end}: expected FlowFiles and a summary that counts them, got other bytes. "
            "Restore the file from a backup."
        )


def _chunks(items: Iterator[Waiting]) -> Iterator[list[Waiting]]:
    chunk: list[Waiting] = []
    for item in items:
        chunk.append(item)
        if len(chunk) == _FLOWFILES_A_FRAME:
            yield chunk
            chunk = []
    if chunk:
        yield chunk


@contextmanager
def claimed_contents(fs: FileSystem, home: Path, wait_seconds: float = 60.0) -> Iterator[frozenset[str]]:
    """Hold the lock of a FlowFile repository, if there is one; gives the resource claims that FlowFiles refer to.

    Whoever deletes contents does it in this block: no FlowFile can claim one of them meanwhile.

    Raises:
        CorruptionError: the log is damaged, so nobody knows what is claimed.
        LockedError: another process held the lock for too long.
    """
    folder = LogFolder(home)
    log = FlowFileLog(fs, folder, is_read_only=True)
    if not log.exists:
        yield frozenset()
        return
    with lock_folder(fs, folder, wait_seconds):
        state = log.recover(partial(read_swap_block, fs, folder.swaps))
        # What was not released yet may be referred to by the state that a crash brings back.
        pinned = {claim for claims in state.pins.values() for claim in claims}
        yield frozenset({*state.claimants, *state.releasable, *pinned})
        log.close()


@contextmanager
def lock_folder(fs: FileSystem, folder: LogFolder, wait_seconds: float) -> Iterator[None]:
    """Hold the lock of a FlowFile repository, which others hold for moments.

    Raises:
        LockedError: another process held it for too long.
    """
    deadline = time.monotonic() + wait_seconds
    while True:
        lock = fs.lock(folder.lock)
        try:
            lock.__enter__()
        except LockedError:
            if time.monotonic() >= deadline:
                raise
        else:
            break
    try:
        yield
    finally:
        lock.__exit__(None, None, None)
