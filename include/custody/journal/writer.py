"""The first event id that a writer may give out when it starts: above all that any journal holds, or may have held.

The group that a writer has open: its lanes, over the containers that still work.

The open group of a journal writer, and what has to be done for it from time to time.

A group is sealed when it is old or large, without stopping the threads that append: they go on in the next group, whose
ids are all greater. A container that fails is taken out and the others carry on. One that was full or read-only is
tried again and comes back when it can be written; when no container is left that could come back, the writer is
poisoned.

The journal writer: events get their ids, are appended and synced, and only then acknowledged.

One live writer a writer name: it holds `<container>/<writer>/LOCK` from open to close. Any number of threads append;
each append takes a block of ids from the one counter and a journal of the open group (`keeping`).

The append that meets a container's failure raises, and its events may or may not be there after recovery. While all
containers are full or read-only a writer refuses each append.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Condition, Lock, RLock, Thread
from threading import Event as Signal
from types import TracebackType
from typing import Self
from weakref import ReferenceType, ref

import pyarrow as pa

from custody.clock import Clock
from custody.errors import ClosedError, CustodyError, StorageError
from custody.format.names import ContainerPaths, JournalName
from custody.journal.backpressure import Pressure
from custody.journal.container_health import RETRY_SECONDS, Infirmary
from custody.journal.encoding import Prepared
from custody.journal.file import JournalHeader, read_header
from custody.journal.group_commit import Appended, Lane, SyncPolicy
from custody.journal.groups import Group, groups
from custody.journal.incarnations import Incarnations, Known
from custody.journal.sealing import KeepCut, Sealed, let_go, read_end, seal_abandoned
from custody.journal.writer_state import Membership, check_containers
from custody.model import Event, require_valid_columns
from custody.vfs import FileSystem


def least_free_id(
    fs: FileSystem,
    containers: Sequence[Path],
    writer: str,
    membership: Membership,
    recovered: Sequence[Sealed],
) -> int:
    """Return the first id that no journal holds; one that certainly none ever held, if they cannot tell.

    All journals are sealed, `recovered` by the caller just now. Only their end records are read.

    Raises:
        StorageError: a container went away meanwhile: ids that its journals hold would be given out again.
    """
    uncertain = any(done.may_have_lost for done in recovered)
    least = 0
    for group in _groups_of_all(fs, containers, writer):
        uncertain = uncertain or not group.is_sealed  # its disk was away when the others were sealed
        for path in group.sealed:
            end = read_end(fs, path)
            uncertain = uncertain or end is None
            least = max(least, group.first_event_id)
            if end is not None and end.last_event_id is not None:
                least = max(least, end.last_event_id + 1)
    if uncertain:
        membership.raise_floor(max(membership.reserved, least))
    return max(least, membership.floor)


def _groups_of_all(fs: FileSystem, containers: Sequence[Path], writer: str) -> Iterator[Group]:
    """Yield the groups of each container, one that lies on several with its part on each."""
    for root in containers:
        state = ContainerPaths(root, writer).state  # written by now, and not at the place where a disk is mounted
        was_there = fs.exists(state)
        found = groups(fs, (root,), writer)
        if not (was_there and fs.exists(state)):
            raise StorageError(f"writer {writer!r}: the container {root} went away just now. Mount it and try again.")
        yield from found


class OpenGroup:
    """Journals with a common first event id, as long as events may be appended.

    `make_lane(number)` gives lane `number`. A lane is used only while as many appends run at once: one thread fills one
    journal, sixteen threads fill sixteen, however many may be open.
    """

    def __init__(self, header: JournalHeader, lanes_max: int, make_lane: Callable[[int], Lane], opened_ms: int) -> None:
        self.header = header
        self.opened_ms = opened_ms
        self._lanes_max = lanes_max
        self._make_lane = make_lane
        self._lanes: list[Lane] = []
        self._running = 0
        self._changed = Condition()

    def enter(self) -> Lane:
        """Take a lane for one append, which has to `leave` it: one of those in use, a new one, or the next in turn."""
        with self._changed:
            self._running += 1
            working = [lane for lane in self._lanes if lane.error is None and not lane.is_out]
            number = self._running - 1
            if number < len(working):
                return working[number]
            if len(self._lanes) < self._lanes_max:
                self._lanes.append(self._make_lane(len(self._lanes)))
                return self._lanes[-1]
            return working[number % len(working)] if working else self._lanes[-1]

    def leave(self) -> None:
        """Say that an append ended, well or not."""
        with self._changed:
            self._running -= 1
            self._changed.notify_all()

    def take_out(self, root: Path) -> None:
        """Append nothing more to the lanes of a container."""
        with self._changed:
            for lane in self._lanes:
                lane.is_out = lane.is_out or lane.path.is_relative_to(root)

    @property
    def bytes(self) -> int:
        """Bytes appended so far."""
        return sum(lane.bytes for lane in self._lanes)

    @property
    def left_open(self) -> list[Lane]:
        """The lanes that could not be sealed."""
        return [lane for lane in self._lanes if lane.is_left_open]

    def sync(self) -> list[tuple[Lane, OSError]]:
        """Make durable what was appended; return the lanes that failed."""
        failed: list[tuple[Lane, OSError]] = []
        for lane in list(self._lanes):
            try:
                lane.sync()
            except OSError as error:
                failed.append((lane, error))
        return failed

    def close(self) -> tuple[list[Path], list[tuple[Lane, OSError]]]:
        """Wait for the appends that run, then seal every lane; return the sealed journals and the lanes that failed."""
        with self._changed:
            while self._running:
                self._changed.wait()
        sealed: list[Path] = []
        failed: list[tuple[Lane, OSError]] = []
        for lane in self._lanes:
            try:
                path = lane.close()
            except OSError as error:
                failed.append((lane, error))
            else:
                sealed += [path] if path is not None else []
        return sealed, failed


_TICK_SECONDS = 0.25
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """How journals are written; times in ms or seconds as named, sizes in bytes."""

    journals: int = 16
    sync: SyncPolicy = SyncPolicy.ALWAYS
    sync_interval_ms: int = 1000
    seal_ms: int = 30_000
    seal_bytes: int = 100 << 20
    waiting_bytes_max: int = 4 << 30
    backpressure_seconds: float = 30.0
    retry_seconds: float = RETRY_SECONDS
    """The first pause before a container that is full or read-only is tried again."""


class OpenJournals:
    """The containers, the open group and the health of one writer; `JournalWriter` takes it as its ground.

    `_lock` guards what may change; `_sealing` is held by who seals, and may be held for as long as a disk takes.
    """

    _membership: Membership
    _keep_cut: KeepCut

    def __init__(
        self, fs: FileSystem, containers: Sequence[Path], writer: str, clock: Clock, options: JournalOptions
    ) -> None:
        self._fs = fs
        self._containers = tuple(containers)
        self._writer = writer
        self._clock = clock
        self._options = options
        self._lock = RLock()
        self._sealing = Lock()
        self._group: OpenGroup | None = None
        self._broken: str | None = None
        self._infirmary = Infirmary(fs, self._containers, options.retry_seconds)
        self._left_open: list[Lane] = []
        self.failed_containers = self._infirmary.reasons
        """Containers that are out, and why; one that comes back leaves."""
        self._pressure = Pressure(
            fs, writer, options.waiting_bytes_max, options.backpressure_seconds, self._working, self._take_out
        )
        self._synced = time.monotonic()

    def seal(self) -> list[Path]:
        """Close the open group to further events; return its journals, none when nothing was appended.

        Raises:
            StorageError: no container is left that works; recovery seals what could not be sealed.
        """
        with self._lock:
            group = self._group
        if group is not None:
            return self._seal(group)
        with self._sealing:  # another thread may be about to end sealing
            return []

    @property
    def tick_seconds(self) -> float:
        """How often `tick` has to be called."""
        interval = self._options.sync_interval_ms / 1000
        return min(_TICK_SECONDS, interval) if self._options.sync is SyncPolicy.INTERVAL else _TICK_SECONDS

    def tick(self) -> None:
        """Seal the open group if it is old, sync it if that is due, try the containers that are out.

        A thread of the writer calls this all the time.
        """
        try:
            self._mend()
            self._keep_promises()
        except (OSError, CustodyError) as error:
            with self._lock:
                if not (isinstance(error, OSError) and self._infirmary.can_heal):
                    self._broken = self._broken or f"failed to seal ({error})"

    def _keep_promises(self) -> None:
        with self._lock:
            group = self._group
        if group is not None:
            due = self._synced + self._options.sync_interval_ms / 1000
            if self._clock.now_ms() - group.opened_ms >= self._options.seal_ms:
                self._seal(group)
            elif self._options.sync is SyncPolicy.INTERVAL and time.monotonic() + self.tick_seconds > due:
                for lane, error in group.sync():
                    self._take_out(lane.path, error)
                self._synced = time.monotonic()

    def _working(self) -> tuple[Path, ...]:
        return self._infirmary.working

    def _take_out(self, path: Path, error: OSError) -> None:
        """Stop using the container of a path that failed."""
        with self._lock:
            for root in self._containers:
                if path.is_relative_to(root):
                    if self._infirmary.take_out(root, error):
                        _LOGGER.warning("container %s was taken out: %s", root, error)
                    if self._group is not None:
                        self._group.take_out(root)
            if not self._working() and not self._infirmary.can_heal:
                self._broken = self._broken or f"failed to write ({error})"

    def _seal(self, group: OpenGroup) -> list[Path]:
        """Seal a group; threads that append meanwhile open the next one."""
        with self._sealing:
            with self._lock:
                # While the seal lock is held: who finds no group and gets that lock knows that all is sealed.
                if self._group is group:
                    self._group = None
            sealed, failed = group.close()
            for lane, error in failed:
                self._take_out(lane.path, error)
            self._left_open += group.left_open
            self._pressure.count()
        if failed and not self._working():
            raise failed[0][1]
        return sealed

    def _mend(self) -> None:
        """Try the containers whose time has come; those that can be written take part from the next group on."""
        with self._lock:
            due = self._infirmary.due()
        for root in due:
            if not self._infirmary.has_room(root):
                self._infirmary.postpone(root)
                continue
            try:
                reserved = self._membership.rejoin(root)  # without the lock: a disk may take its time to refuse
                with self._lock:
                    if self._membership.reserved != reserved:
                        self._membership.rejoin(root)
                    self._infirmary.bring_back(root)
            except OSError:
                self._infirmary.postpone(root)
                continue
            _LOGGER.warning("container %s is used again", root)
            with self._lock:
                group = self._group
            if group is not None:
                self._seal(group)  # the next one is opened over all containers that work
        if due or self._left_open:
            self._salvage()

    def _salvage(self) -> None:
        """Seal what failures left open on containers that work again."""
        with self._sealing:
            for lane in list(self._left_open):
                if any(lane.path.is_relative_to(root) for root in self._working()):
                    try:
                        lane.salvage(self._keep_cut)
                    except OSError as error:
                        self._take_out(lane.path, error)
                    else:
                        self._left_open.remove(lane)

    def _refuse_without_container(self) -> None:
        error = self._infirmary.error
        if error is not None and not self._working():
            failure = StorageError(
                f"writer {self._writer!r}: no container can be written now ({error}). "
                "Free room or mount the disk; the writer goes on by itself then."
            )
            failure.errno = error.errno
            raise failure

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise ClosedError(f"writer {self._writer!r} {self._broken}. Open the repository again.")


def keep(journals: ReferenceType[OpenJournals], closing: Signal, tick_seconds: float) -> None:
    """Seal by age and sync by interval in a thread of its own: a writer that nobody calls seals all the same."""
    while not closing.wait(tick_seconds):
        living = journals()
        if living is None:
            return
        living.tick()
        del living


def lock_path(containers: Sequence[Path], writer: str) -> Path:
    """Return the file that a live writer holds."""
    return ContainerPaths(containers[0], writer).lock


class JournalWriter(OpenJournals):
    """Appends events for one writer name, from any number of threads.

    Args:
        fs: where the containers lie.
        containers: one folder a disk.
        writer: the writer's name.
        database: the database that the events belong to.
        clock: tells when a journal was made.
        options: how journals are written.
        incarnations: where the name is claimed; None for a writer that has no store.
        keep_cut: keeps what is cut of a torn journal; without it, that is gone.

    Raises:
        LockedError: another live process writes under this name.
        ConfigurationError: the name is claimed by another incarnation: by other containers than these.
        StorageError: a container of the writer is missing.
    """

    def __init__(
        self,
        fs: FileSystem,
        containers: Sequence[Path],
        writer: str,
        database: str,
        clock: Clock,
        options: JournalOptions | None = None,
        incarnations: Incarnations | None = None,
        keep_cut: KeepCut = let_go,
    ) -> None:
        super().__init__(fs, containers, writer, clock, options or JournalOptions())
        self._keep_cut = keep_cut
        self._database = database
        self._next_event_id = 0
        self._opened = 0
        self._closing = Signal()
        self._keeper: Thread | None = None
        self._held = ExitStack()
        self._incarnations = incarnations
        states = check_containers(fs, self._containers, writer)  # before a folder is made where a disk is not mounted
        looked_at = (fs, self._containers, writer)
        known = Known(
            tuple(states.values()), partial(_incarnations_of_journals, *looked_at), partial(_places, *looked_at)
        )
        found = None if incarnations is None else incarnations.check(known)
        fs.make_directory(lock_path(self._containers, writer).parent)
        self._held.enter_context(fs.lock(lock_path(self._containers, writer)))
        try:
            for root in self._containers:
                if root not in states:  # a known one has it, unless it went away just now
                    fs.make_directory(ContainerPaths(root, writer).home)
            self._membership = Membership(fs, self._containers, writer)
            for root in self._containers:
                if not fs.exists(ContainerPaths(root, writer).journals):
                    fs.add_directory(ContainerPaths(root, writer).journals)
                    fs.sync_directory(ContainerPaths(root, writer).home)
            members = self._membership
            self.recovered: list[Sealed] = seal_abandoned(
                fs, self._containers, writer, keep_cut, lambda: members.raise_floor(members.reserved)
            )
            self._next_event_id = least_free_id(fs, self._containers, writer, self._membership, self.recovered)
            if incarnations is not None:
                self.begin(incarnations.claim(members, known, clock, found).first_event_id)
            self._pressure.count()
        except BaseException:
            self._held.close()
            raise

    def begin(self, next_event_id: int) -> None:
        """Give out no id below this one: what is live already is known to the caller, not to the journals."""
        self._next_event_id = max(self._next_event_id, next_event_id)

    def append(self, events: Sequence[Event]) -> range:
        """Append events and return their ids, once the sync policy's promise holds.

        Durability: with the policy `always`, on return the events are acknowledged and survive power loss. On raise it
        is unknown which of them do; their ids are never given out again.

        Raises:
            ClosedError: the writer was closed, or no container is left.
            BackpressureError: too much waits to be rolled over.
            StorageError: the disk refused, or all disks are full or read-only; try again later.
        """
        return self._append(Prepared(events))

    def append_columns(self, events: pa.Table | pa.RecordBatch) -> range:
        """Append events that are columns, as `append` does; no event becomes a Python object.

        Args:
            events: columns of EVENT_SCHEMA but `event_id`, shape (events,); those that may be absent can be left out.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was stored.
        """
        return self._append(Prepared.of_columns(require_valid_columns(events)))

    def _append(self, prepared: Prepared) -> range:
        if not prepared.count:
            return range(self._next_event_id, self._next_event_id)
        self._pressure.hold_back(self._refuse_if_broken)
        with self._lock:
            self._refuse_if_broken()
            self._refuse_without_container()
            group = self._group or self._open_group()
            ids = range(self._next_event_id, self._next_event_id + prepared.count)
            if ids.stop > self._membership.reserved:
                self._membership.reserve(ids.stop, self._working(), self._take_out)
            self._next_event_id = ids.stop
            lane = group.enter()
        try:
            lane.append(Appended(prepared.records(ids.start), ids.start, len(ids)))
        except OSError as error:
            self._take_out(lane.path, error)
            raise
        finally:
            group.leave()
        if group.bytes >= self._options.seal_bytes:
            self._seal(group)
        return ids

    def close(self) -> None:
        """Seal and let the writer name go; journals that cannot be sealed are left to recovery."""
        self._closing.set()
        if self._keeper is not None:
            self._keeper.join()
        try:
            with self._lock:
                self._broken = self._broken or "is closed"
            self.seal()
            self._salvage()
        finally:
            self._held.close()

    def _open_group(self) -> OpenGroup:
        self._refuse_if_taken_over()
        header = JournalHeader(
            writer=self._writer,
            database=self._database,
            first_event_id=self._next_event_id,
            created_ms=self._clock.now_ms(),
            sync=self._options.sync.value,
            incarnation=self._membership.incarnation,
        )
        lanes = self._options.journals * max(len(self._working()), 1)
        shift = self._opened  # so that one thread alone uses all disks in turn, a group each
        self._opened += 1
        self._group = OpenGroup(header, lanes, lambda number: self._lane(header, number, shift), header.created_ms)
        if self._keeper is None:
            # The thread holds no reference: a writer that was forgotten without being closed ends it.
            arguments = (ref(self), self._closing, self.tick_seconds)
            self._keeper = Thread(target=keep, args=arguments, name=f"custody-journal-{self._writer}", daemon=True)
            self._keeper.start()
        return self._group

    def _refuse_if_taken_over(self) -> None:
        """Look before each group but the first, which the start has looked for; a store that is away stops nobody."""
        if self._incarnations is None or not self._opened:
            return
        try:
            is_own = self._incarnations.still_holds(self._membership.incarnation)
        except StorageError as error:
            _LOGGER.warning("writer %s: whether its name is still its own is not known: %s", self._writer, error)
            return
        if not is_own:
            self._broken = "lost its name: other containers claimed it (custody containers claim)"
            self._refuse_if_broken()

    def _lane(self, header: JournalHeader, number: int, shift: int) -> Lane:
        working = self._working() or self._containers
        root = working[(number + shift) % len(working)]
        name = JournalName(header.first_event_id, number, sealed=False)
        path = ContainerPaths(root, self._writer).journals / str(name)
        return Lane(self._fs, path, header, self._options.sync)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _incarnations_of_journals(fs: FileSystem, containers: Sequence[Path], writer: str) -> set[str]:
    paths = [path for group in groups(fs, containers, writer) for path in (*group.sealed, *group.open)]
    return {header.incarnation for header in (read_header(fs, path) for path in paths) if header is not None}


def _places(fs: FileSystem, containers: Sequence[Path], writer: str) -> list[str]:
    return [str(root) for root in containers if fs.exists(ContainerPaths(root, writer).journals)]
