"""Leases with epochs: of two attempts that work on a writer's files, only one publishes.

A lease is a folder, an epoch a file in it, named by a number of ten digits and created only if its name is free. The
holder is the greatest epoch; taking the lease creates the next one. A file beside it says how an epoch ended:
`.released` when all was done, `.failed` when not. docs/formats/lease.md, docs/design/017-leases.md.

The holder works through a `FencedFileSystem`, which checks before each effect that others see that its epoch still is
the greatest. Whether a holder lives only decides how long another attempt waits for it: its process tells on the same
machine, its heartbeat from another one. That two attempts never both publish depends neither on that nor on clocks, but
on the epoch alone. Attempts are named `<task>/<try>`; of two tries of one task the later one wins.

The folder lies on a disk, or in an object store that machines share (`custody.lease.lease_files`).
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from custody.clock import Clock
from custody.errors import CorruptionError, CustodyError, FormatVersionError, LockedError, StorageError, SupersededError
from custody.format.framing import DocumentFormat
from custody.format.names import (
    BEAT_SUFFIX,
    FAILED_SUFFIX,
    RELEASED_SUFFIX,
    epoch_file,
    parse_epoch,
)
from custody.lease.lease_files import LeaseFiles
from custody.store import StoredFiles, place_text
from custody.vfs import FileSystem
from custody.vfs.wrapping import WrappingFileSystem

_LOGGER = logging.getLogger("custody.lease")
# Part of the format, like the fields of `Holder`: add, never change.
PREAMBLE = b"CUSTLSE\x01"
KIND_HOLDER = 1
# Small beside any step, so that a waiting attempt starts soon; a look lists one small folder.
_POLL_SECONDS = 0.25
_EPOCHS_KEPT = 2
"""The holder's epoch and the one before it, which says from whom it took over."""
_BEATS = 4
"""Heartbeats in the time after which a silent holder counts as dead."""
_LOOK_SECONDS = 1.0
"""Before effects on a disk, a lease in a store, where each look is a request, is looked at once in this time."""
_START_TIME = 19  # its place among the fields of /proc/<pid>/stat behind the command's name


class Process(msgspec.Struct, frozen=True, kw_only=True):
    """A process, told from every other one that ever had its number."""

    host: str
    boot: str
    """The running kernel's own id and the namespace of process numbers: within both a number means one process."""
    pid: int
    started: int
    """When it started, in ticks since the kernel did; 0 where the system does not tell."""


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """The holder of a lease, as the file of its epoch names it."""

    lease: str
    writer: str
    epoch: int
    attempt: str
    process: Process
    taken_ms: int

    def __str__(self) -> str:
        return f"{self.attempt} (process {self.process.pid} on {self.process.host})"

    def encode(self) -> bytes:
        """Return the file's bytes."""
        return _FORMAT.encode(self)

    @classmethod
    def decode(cls, data: bytes, path: Path) -> Holder:
        """Return what a file says.

        Raises:
            CorruptionError: it is damaged.
            FormatVersionError: it is of a version that this code does not know.
        """
        return _FORMAT.decode(data, path)


_FORMAT = DocumentFormat(
    PREAMBLE,
    KIND_HOLDER,
    msgspec.json.Decoder(Holder),
    name="lease",
    content="a lease's holder",
    remedy="The next attempt takes the lease over once nothing has changed here for lease.dead_seconds.",
)


@lru_cache(maxsize=1)
def _boot() -> str:
    try:
        kernel = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{kernel} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def this_process() -> Process:
    """Return the running process."""
    pid = os.getpid()
    return Process(host=socket.gethostname(), boot=_boot(), pid=pid, started=_started(pid) or 0)


def is_gone(process: Process, here: Process) -> bool | None:
    """Whether a process has ended; None when this one, on another machine, cannot know."""
    if process.host != here.host:
        return None
    # Numbers of processes mean nothing under another kernel or in another namespace.
    if process.boot != here.boot:
        # The same machine after another start; another container on it has a kernel in common and is not seen.
        return True if process.boot.partition(" ")[0] != here.boot.partition(" ")[0] else None
    started = _started(process.pid)
    # The system gives out numbers again: with another start time it is another process.
    return started is None or (process.started != 0 and started != process.started)


def _started(pid: int) -> int | None:
    """Return when a process started, None when there is none that runs, 0 where the system does not tell."""
    try:
        # The command's name is in parentheses and may hold blanks and parentheses itself: hence the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None if Path("/proc/self/stat").exists() else _runs(pid)
    # A zombie still has its number, but does nothing any more.
    return None if fields[0] in "ZX" else int(fields[_START_TIME])


def _runs(pid: int) -> int | None:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        return 0
    return 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a piece of work."""

    task: str
    """The piece of work; under Airflow `<dag>/<run>/<task>`."""
    number: int

    def __str__(self) -> str:
        return f"{self.task}/{self.number}"

    @classmethod
    def parse(cls, name: str) -> Attempt:
        """Return the attempt of a name; one that ends in no number is the first try of its task."""
        task, slash, number = name.rpartition("/")
        return cls(task, int(number)) if slash and number.isdecimal() else cls(name, 1)

    @classmethod
    def new(cls, kind: str) -> Attempt:
        """Return an attempt that is the only try of its task."""
        return cls(f"{kind}/{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}", 1)


@dataclass(frozen=True, slots=True)
class LeaseStatus:
    """The newest epoch of a lease, and how it ended, if it did."""

    path: Path
    epoch: int
    released: bool
    """All was done: nothing was left behind."""
    failed: bool
    """It ended, and may have left something behind."""

    @property
    def is_open(self) -> bool:
        """Whether it did not end: its holder works on, or died."""
        return not (self.released or self.failed)


class Lease:
    """An epoch of a lease, for its holder and for the workers that it sends out; cheap to make."""

    def __init__(self, fs: LeaseFiles, folder: Path, epoch: int, *, clean: bool = True) -> None:
        self.folder = folder
        self.epoch = epoch
        self.clean = clean
        """Whether the holder before had done all its work; else it, or its workers, may go on somewhere."""
        self._fs = fs
        self._looked_at: float | None = None
        """When the lease was last seen to stand, by the monotonic clock."""

    @property
    def name(self) -> str:
        """The name of the lease."""
        return self.folder.name

    def is_current(self) -> bool:
        """Whether nobody took over."""
        return _greatest(self._fs, self.folder) == self.epoch

    def check(self) -> None:
        """Raise SupersededError when another attempt took over."""
        now = time.monotonic()
        if not self.is_current():
            raise SupersededError(self._message())
        self._looked_at = now

    def check_lately(self) -> None:
        """Raise as `check`; of a lease in a store what was seen a moment ago is good enough.

        Between a check and its effect a process may be stopped for any time, so that no effect relies on it
        (docs/design/017-leases.md).
        """
        is_fresh = self._looked_at is not None and time.monotonic() - self._looked_at < _LOOK_SECONDS
        if not (is_fresh and isinstance(self._fs, StoredFiles)):
            self.check()

    def _message(self) -> str:
        greatest = _greatest(self._fs, self.folder)
        by = read_holder(self._fs, self.folder / epoch_file(greatest)) if greatest >= 0 else None
        return (
            f"{place_text(self.folder)}: expected epoch {self.epoch} to be the newest, got epoch {greatest}: "
            f"{by or 'another attempt'} took over. Nothing to do: it does the work, this one ends here."
        )

    def release(self, *, failed: bool = False, recovered: bool = False) -> None:
        """Record that the work ended; a superseded holder records nothing.

        After a lease that was not clean, the leftovers of the holder before are still there, unless this one
        `recovered` them: without that the lease stays unclean, so that recovery hears of it.
        """
        # If another attempt takes over right after the check, the record lies beside an older epoch, where nobody
        # looks.
        if self.is_current():
            # By put-if-absent: the first word on how an epoch ended stays.
            is_complete = not failed and (self.clean or recovered)
            suffix = RELEASED_SUFFIX if is_complete else FAILED_SUFFIX
            self._fs.publish_if_absent(self.folder / f"{epoch_file(self.epoch)}{suffix}", b"")

    def beat(self, now_ms: int) -> None:
        """Leave a sign that the holder lives."""
        if self.is_current():
            self._fs.write_durably(self.folder / f"{epoch_file(self.epoch)}{BEAT_SUFFIX}", str(now_ms).encode())


def superseded_error(lease: Lease, error: Exception) -> SupersededError:
    """Return the error of an attempt that another one took over from, whatever it met on its way."""
    if isinstance(error, SupersededError):
        return error
    return SupersededError(
        f"{place_text(lease.folder)}: another attempt took over from epoch {lease.epoch}; then: {error}"
    )


def lease_status(fs: LeaseFiles, folder: Path) -> LeaseStatus | None:
    """Return how far a lease is, by names alone; None when nobody ever took it."""
    names = set(fs.list(folder))
    epoch = max((number for name in names if (number := parse_epoch(name)) is not None), default=None)
    if epoch is None:
        return None
    name = epoch_file(epoch)
    return LeaseStatus(
        folder / name, epoch, released=name + RELEASED_SUFFIX in names, failed=name + FAILED_SUFFIX in names
    )


def read_holder(fs: LeaseFiles, path: Path) -> Holder | None:
    """Return who an epoch's file names; None when it is damaged, of another version, or gone."""
    try:
        return Holder.decode(fs.read(path), path)
    # Who the holder is only decides how long to wait for it: an unreadable file must not stop the next attempt.
    except (CorruptionError, FormatVersionError, StorageError):
        return None


def is_dead(fs: LeaseFiles, current: LeaseStatus, now_ms: int, dead_seconds: float) -> bool:
    """Whether the holder of an open epoch is gone, by its process, or else by the age of its last heartbeat."""
    holder = read_holder(fs, current.path)
    gone = is_gone(holder.process, this_process()) if holder is not None else None
    # Machines that share no more than a store may have one name: a process of another kernel is out of sight there.
    if isinstance(fs, StoredFiles) and holder is not None and holder.process.boot != this_process().boot:
        gone = None
    if gone is not None:
        return gone
    beat = current.path.with_name(current.path.name + BEAT_SUFFIX)
    try:
        last = int(fs.read(beat)) if fs.exists(beat) else holder.taken_ms if holder else fs.modified_ms(current.path)
    except (StorageError, ValueError):
        # A wrong answer costs waiting only; the epoch decides who publishes.
        return False  # written, or taken over, in this moment
    return now_ms - last > dead_seconds * 1000


def take(
    fs: LeaseFiles,
    folder: Path,
    writer: str,
    attempt: Attempt,
    clock: Clock,
    *,
    wait_seconds: float,
    dead_seconds: float,
    floor: int = 0,
    take_over: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Take a lease: at once when it is free, its holder is dead or an earlier try of the same task, else after it ends.

    `floor` is an epoch that was given out before, whatever the folder says. `take_over` takes it from anybody.

    Durability: on return the epoch survives power loss.

    Raises:
        LockedError: another attempt held it all the time; the message says which.
        SupersededError: a later try of the same task has it, or had it.
    """
    fs.make_directory(folder)
    # The monotonic clock: a wait must not end early because the wall clock was set.
    deadline = time.monotonic() + wait_seconds
    while True:
        current = lease_status(fs, folder)
        # `take_over` comes first: `_is_free` raises where a later try of the task holds the lease.
        if current is None or take_over or _is_free(fs, current, attempt, clock.now_ms(), dead_seconds):
            lease = _try_next(fs, folder, writer, attempt, clock, current, floor)
            if lease is not None:
                return lease
            # A lost race needs no pause: the winner's epoch is there, and the next look waits for it.
        elif time.monotonic() >= deadline:
            holder = read_holder(fs, current.path)
            raise LockedError(
                f"{place_text(current.path)}: expected a free lease, got one that {holder or 'an unknown attempt'} "
                "holds. Wait until it ends; if it hangs, take its work over: custody run STEP --take-over"
            )
        else:
            sleep(_POLL_SECONDS)


def _is_free(fs: LeaseFiles, current: LeaseStatus, attempt: Attempt, now_ms: int, dead_seconds: float) -> bool:
    holder = read_holder(fs, current.path)
    other = Attempt.parse(holder.attempt) if holder is not None else None
    if other is not None and other.task == attempt.task and other.number != attempt.number:
        if other.number > attempt.number:
            raise SupersededError(
                f"{place_text(current.path)}: {holder} is a later try of what {attempt} tries. It does the work."
            )
        return True
    return not current.is_open or is_dead(fs, current, now_ms, dead_seconds)


def _try_next(
    fs: LeaseFiles,
    folder: Path,
    writer: str,
    attempt: Attempt,
    clock: Clock,
    current: LeaseStatus | None,
    floor: int,
) -> Lease | None:
    """Make the next epoch; None when another attempt was faster."""
    # Above the floor too: the catalog knows the epochs of commits, also when files of the folder were lost.
    epoch = max(current.epoch if current else 0, floor) + 1
    record = Holder(
        lease=folder.name,
        writer=writer,
        epoch=epoch,
        attempt=str(attempt),
        process=this_process(),
        taken_ms=clock.now_ms(),
    )
    if not fs.publish_if_absent(folder / epoch_file(epoch), record.encode()):
        return None
    # Old epochs are pruned: an attempt that listed the folder long ago may find such a number free again. Only the
    # greatest epoch holds the lease.
    if _greatest(fs, folder) != epoch:
        return None
    # Not synced: an old epoch that a power loss brings back is below the greatest one and does no harm.
    for name in fs.list(folder):
        number = parse_epoch(name.partition(".")[0])
        if number is not None and number <= epoch - _EPOCHS_KEPT:
            fs.remove(folder / name)
    return Lease(fs, folder, epoch, clean=current is None or current.released)


def _greatest(fs: LeaseFiles, folder: Path) -> int:
    return max((number for name in fs.list(folder) if (number := parse_epoch(name)) is not None), default=-1)


class Heartbeat:
    """A thread that shows, as long as the context lasts, that the holders of some leases live."""

    def __init__(self, leases: Iterable[Lease], clock: Clock, dead_seconds: float) -> None:
        self._leases = tuple(leases)
        self._clock = clock
        self._seconds = dead_seconds / _BEATS
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="custody-heartbeat", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(self._seconds):
            for lease in self._leases:
                try:
                    lease.beat(self._clock.now_ms())
                # Work goes on without a heartbeat: the epoch, not the heartbeat, decides who publishes.
                except CustodyError as error:
                    _LOGGER.warning("no sign of life could be left: %s", error)


class FencedFileSystem(WrappingFileSystem):
    """A file system whose renames, links, removals and cuts raise SupersededError once another attempt took over.

    Writing under names of the attempt's own needs no check. A little time passes between a check and its effect;
    docs/design/017-leases.md says, effect by effect, why that does no harm.
    """

    def __init__(self, inner: FileSystem, lease: Lease) -> None:
        super().__init__(inner)
        self.plain = inner
        """Without the check: to put back what should not have been moved."""
        self._lease = lease

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a folder, if the lease stands."""
        # Before the effect, never after it: what others see cannot be taken back.
        self._lease.check_lately()
        self.inner.rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name, if the lease stands."""
        self._lease.check_lately()
        return self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file, if the lease stands."""
        self._lease.check_lately()
        self.inner.remove(path)

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder, if the lease stands."""
        self._lease.check_lately()
        self.inner.remove_directory(folder)

    def cut(self, path: Path, length: int) -> None:
        """Cut a file, if the lease stands."""
        self._lease.check_lately()
        self.inner.cut(path, length)
