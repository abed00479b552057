"""The journal writer: events get their ids, are appended and synced, and only then acknowledged.

One live process writes under a writer name: it holds `<container>/<writer>/LOCK` from open to close. Any number of
threads append; each append takes a block of ids from the one counter and a journal of the open group.

A group is sealed when it is old or large, without stopping the threads that append: they go on in the next group, whose
ids are all greater. An append that meets a container's failure raises, and its events may or may not be there after
recovery; the other containers carry on. A container that was full or read-only is tried again and comes back when it
can be written. When no container is left that could come back, the writer is poisoned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event as Signal
from threading import Lock, RLock, Thread
from types import TracebackType
from typing import Self
from weakref import ReferenceType, ref

import pyarrow as pa

from custody.clock import Clock
from custody.config import Settings
from custody.errors import BackpressureError, ClosedError, CustodyError, StorageError
from custody.format.names import ContainerPaths, JournalName
from custody.journal.container_health import RETRY_SECONDS, ContainerHealth
from custody.journal.encoding import COLUMN_ROWS_MAX, ROWS_MAX, PreparedEvents
from custody.journal.groups import Group, groups
from custody.journal.incarnations import ContainerEvidence, Incarnations
from custody.journal.journal_file import JournalHeader, read_header
from custody.journal.open_group import GroupCommitFile, JournalAppend, OpenGroup, SyncPolicy
from custody.journal.sealing import KeepCut, SealedJournal, discard_cut, read_end, seal_abandoned
from custody.journal.writer_state import WriterContainers, check_containers
from custody.model import AttributeMask, Event, require_valid_columns, to_events, valid_events
from custody.store.witness import Witnesses
from custody.vfs import FileSystem

_TICK_SECONDS = 0.25
_BACKPRESSURE_POLL_SECONDS = 0.25
_NAME_ANSWER_SECONDS = 1.0
"""How long a new group waits for a store's word on whose the name is: a link that is cut answers after minutes."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Options of writing journals; times in ms or seconds as named, sizes in bytes."""

    journals: int = 16
    sync: SyncPolicy = SyncPolicy.ALWAYS
    sync_interval_ms: int = 1000
    seal_ms: int = 30_000
    seal_bytes: int = 100 << 20
    waiting_bytes_max: int = 4 << 30
    backpressure_seconds: float = 30.0
    retry_seconds: float = RETRY_SECONDS
    """The first pause before a container that is full or read-only is tried again."""
    mask_attributes: tuple[str, ...] = ()
    """Patterns of names of attributes whose values are not stored."""

    @classmethod
    def of(cls, settings: Settings) -> JournalOptions:
        """Return the options that the settings ask for."""
        journal = settings.journal
        return cls(
            journals=journal.journals,
            sync=SyncPolicy(journal.sync),
            sync_interval_ms=journal.sync_interval_ms,
            seal_ms=int(journal.seal_seconds * 1000),
            seal_bytes=journal.seal_bytes,
            waiting_bytes_max=journal.waiting_bytes_max,
            backpressure_seconds=journal.backpressure_seconds,
            mask_attributes=settings.capture.mask_attributes,
        )


class JournalWriter:
    """The writer of one name's journals: appends events, from any number of threads.

    `_lock` guards what may change. `_sealing` is held by the thread that seals, for as long as a disk takes; it is
    never taken by one that holds `_lock`.

    Args:
        fs: where the containers lie.
        containers: one folder a disk.
        writer: the writer's name.
        database: the database that the events belong to.
        clock: tells when a journal was made.
        options: how journals are written.
        incarnations: where the name is claimed; None for a writer that has no store.
        keep_cut: keeps what is cut of a torn journal; without it, that is gone.
        witnesses: what is sealed is witnessed there; None for a writer of which nobody keeps that.

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
        keep_cut: KeepCut = discard_cut,
        witnesses: Witnesses | None = None,
    ) -> None:
        self._fs = fs
        self._containers = tuple(containers)
        self._writer = writer
        self._database = database
        self._clock = clock
        self._options = options or JournalOptions()
        self._mask = AttributeMask(self._options.mask_attributes)
        self._incarnations = incarnations
        self._keep_cut = keep_cut
        self._witnesses = witnesses
        # Reentrant: `_take_out` is called with the lock, when ids are reserved, and without it.
        self._lock = RLock()
        self._sealing = Lock()
        self._encoding = Lock()
        """Held while events become columns: Arrow lets the interpreter go some two hundred times meanwhile, and each
        time all other threads that encode would fight for it, for longer than the encoding takes."""
        self._group: OpenGroup | None = None
        self._groups_opened = 0
        self._name_question: Thread | None = None
        self._next_event_id = 0
        self._broken: str | None = None
        """Why nothing more is written; completes the sentence "the writer …"."""
        self._health = ContainerHealth(fs, self._containers, self._options.retry_seconds)
        self._left_open: list[GroupCommitFile] = []
        self.failed_containers = self._health.reasons
        """Containers that are out, and why; one that comes back leaves."""
        self._pending_bytes = 0
        """Bytes of sealed journals that wait for the rollover, as of the last count."""
        self._last_sync = time.monotonic()
        self._closing = Signal()
        self._background: Thread | None = None
        self._held = ExitStack()
        self._members: WriterContainers
        self.recovered: list[SealedJournal]
        self._start()

    def _start(self) -> None:
        """Check and lock the writer name, seal what a dead process left open, and claim the name."""
        fs, containers, writer = self._fs, self._containers, self._writer
        # Before any folder is made: where a disk is not mounted, one would be made on the disk below.
        states = check_containers(fs, containers, writer)
        evidence = ContainerEvidence(
            tuple(states.values()),
            partial(_incarnations_of_journals, fs, containers, writer),
            partial(_containers_in_use, fs, containers, writer),
        )
        claim = None if self._incarnations is None else self._incarnations.check(evidence)
        lock = lock_path(containers, writer)
        fs.make_directory(lock.parent)
        # The claim was checked before anything was made on the disks; the lock comes before anything is changed.
        self._held.enter_context(fs.lock(lock))
        try:
            for root in containers:
                if root not in states:  # a known one has it, unless it went away just now
                    fs.make_directory(ContainerPaths(root, writer).home)
            self._members = members = WriterContainers(fs, containers, writer)
            for root in containers:
                paths = ContainerPaths(root, writer)
                if not fs.exists(paths.journals):
                    fs.add_directory(paths.journals)
                    fs.sync_directory(paths.home)
            # The floor rises before a journal is sealed that may have lost ids: sealed, it no longer shows that.
            self.recovered = seal_abandoned(
                fs, containers, writer, self._keep_cut, lambda: members.raise_floor(members.reserved)
            )
            self._next_event_id = least_free_id(fs, containers, writer, members, self.recovered)
            note_sealed(fs, members, self._witnesses, [journal.path for journal in self.recovered])
            if self._incarnations is not None:
                self.begin(self._incarnations.claim(members, evidence, self._clock, claim).first_event_id)
            self._count_pending()
        # Nobody else can let the lock go: the caller never gets the object.
        except BaseException:
            self._held.close()
            raise

    @property
    def next_event_id(self) -> int:
        """The id that the next event gets."""
        return self._next_event_id

    @property
    def sealed(self) -> dict[str, int]:
        """How far each container is sealed: identity to the id below which ids were sealed."""
        return self._members.sealed

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
        if len(events) <= ROWS_MAX:
            return self._append(PreparedEvents(events, self._mask))
        with self._encoding:
            prepared = PreparedEvents(events, self._mask)
        return self._append(prepared)

    def append_columns(self, events: pa.Table | pa.RecordBatch) -> range:
        """Append events that are columns, as `append` does; no event becomes a Python object.

        Args:
            events: columns of EVENT_SCHEMA but `event_id`, shape (events,); those that may be absent can be left out.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was stored.
        """
        with self._encoding:
            if events.num_rows <= COLUMN_ROWS_MAX:
                prepared = PreparedEvents.of_few(valid_events(events), self._mask)
            else:
                prepared = PreparedEvents.of_columns(require_valid_columns(events), self._mask)
        return self._append(prepared)

    def append_checked(self, events: pa.RecordBatch) -> range:
        """Append events that `require_valid_columns` returned, or some of them: they are not looked at again.

        Raises:
            ClosedError, BackpressureError, StorageError: as of `append`.
        """
        with self._encoding:
            if events.num_rows <= COLUMN_ROWS_MAX:
                prepared = PreparedEvents.of_few(to_events(events), self._mask)
            else:
                prepared = PreparedEvents.of_columns(events, self._mask)
        return self._append(prepared)

    def seal(self) -> list[Path]:
        """Close the open group to further events; return its journals, none when nothing was appended.

        Raises:
            StorageError: no container is left that works; recovery seals what could not be sealed.
        """
        with self._lock:
            group = self._group
        if group is not None:
            return self._seal(group)
        with self._sealing:  # another thread may still be sealing: on return all of it is sealed
            return []

    @property
    def tick_seconds(self) -> float:
        """How often `tick` has to be called."""
        interval = self._options.sync_interval_ms / 1000
        return min(_TICK_SECONDS, interval) if self._options.sync is SyncPolicy.INTERVAL else _TICK_SECONDS

    def tick(self) -> None:
        """Seal the open group if it is old, sync it if that is due, try the containers that are out.

        A thread of the writer calls this again and again.
        """
        try:
            self._retry_containers()
            self._seal_or_sync_when_due()
        except (OSError, CustodyError) as error:
            with self._lock:
                # A full or read-only disk is tried again by a later tick; after anything else the writer takes no more
                # events.
                if not (isinstance(error, OSError) and self._health.can_recover):
                    self._broken = self._broken or f"failed to seal ({error})"

    def close(self) -> None:
        """Seal and let the writer name go; journals that cannot be sealed are left to recovery."""
        self._closing.set()
        if self._background is not None:
            self._background.join()
        try:
            # Refuse first: an append between the seal and the end would leave an open journal behind.
            with self._lock:
                self._broken = self._broken or "is closed"
            self.seal()
            self._salvage()
        finally:
            # Last: once the lock is free, another process takes open journals for abandoned ones and seals them.
            self._held.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _append(self, prepared: PreparedEvents) -> range:
        if not prepared.count:
            return range(self._next_event_id, self._next_event_id)
        if self._pending_bytes > self._options.waiting_bytes_max:
            self._wait_for_rollover()  # without the lock: this may sleep for seconds
        with self._lock:
            self._refuse_if_broken()
            # Before ids are taken: an append that is refused here uses none.
            if self._health.reasons:
                self._refuse_without_container()
            group = self._group or self._open_group()
            ids = range(self._next_event_id, self._next_event_id + prepared.count)
            # Reserved before they are used: whatever becomes of the journals, ids below `reserved` are not given out
            # again.
            if ids.stop > self._members.reserved:
                self._members.reserve(ids.stop, self._health.working, self._take_out)
            self._next_event_id = ids.stop
            # Under the lock, like the choice of the group: a seal waits for all appends that entered, and no other.
            file = group.enter(prepared.size)
        try:
            # Framed here, outside of the lock, which so covers no work that grows with the events.
            file.append(JournalAppend(prepared.records(ids.start), ids.start, len(ids)))
        except OSError as error:
            # Not retried on another container: the events may be on this disk all the same, and would be stored twice.
            self._take_out(file.path, error)
            raise
        finally:
            group.leave()
        # The thread that fills a group pays for its seal; the others go on in the next group meanwhile.
        if group.bytes >= self._options.seal_bytes:
            self._seal(group)
        return ids

    def _open_group(self) -> OpenGroup:
        # Once a group, not once an append: appends must not depend on the store's answers.
        self._refuse_if_superseded()
        header = JournalHeader(
            writer=self._writer,
            database=self._database,
            first_event_id=self._next_event_id,
            created_ms=self._clock.now_ms(),
            sync=self._options.sync.value,
            incarnation=self._members.incarnation,
        )
        files_max = self._options.journals * max(len(self._health.working), 1)
        shift = self._groups_opened  # so that one thread alone uses all disks in turn, a group each
        self._groups_opened += 1
        self._group = OpenGroup(
            header,
            files_max,
            # Without a reference to this writer: a forgotten one ends at once, and with it its thread.
            partial(_journal, self._fs, self._health, self._writer, self._options.sync, header, shift),
            header.created_ms,
            disks=max(len(self._health.working), 1),
        )
        if self._background is None:
            # The thread holds no reference: a writer that was forgotten without being closed ends it.
            arguments = (ref(self), self._closing, self.tick_seconds)
            name = f"custody-journal-{self._writer}"
            self._background = Thread(target=tick_in_background, args=arguments, name=name, daemon=True)
            self._background.start()
        return self._group

    def _seal(self, group: OpenGroup) -> list[Path]:
        """Seal a group; threads that append meanwhile open the next one."""
        with self._sealing:
            with self._lock:
                # Only while `_sealing` is held: a thread that finds no group and then gets `_sealing` may conclude
                # that everything is sealed.
                if self._group is group:
                    self._group = None
            sealed, failures = group.close()
            note_sealed(self._fs, self._members, self._witnesses, sealed)
            for file, error in failures:
                self._take_out(file.path, error)
            self._left_open += group.left_open
            self._count_pending()
        # While a container works, journals that failed wait in `_left_open` for `_salvage` or the next start.
        if failures and not self._health.working:
            raise failures[0][1]
        return sealed

    def _seal_or_sync_when_due(self) -> None:
        with self._lock:
            group = self._group
        if group is not None:
            due = self._last_sync + self._options.sync_interval_ms / 1000
            if self._clock.now_ms() - group.opened_ms >= self._options.seal_ms:
                self._seal(group)
            # A tick early rather than late: no event may wait for its sync longer than the interval.
            elif self._options.sync is SyncPolicy.INTERVAL and time.monotonic() + self.tick_seconds > due:
                for file, error in group.sync():
                    self._take_out(file.path, error)
                self._last_sync = time.monotonic()

    def _take_out(self, path: Path, error: OSError) -> None:
        """Stop using the container of a path that failed."""
        with self._lock:
            for root in self._containers:
                if path.is_relative_to(root):
                    # The whole container goes: after one failure nothing says that its other journals are sound.
                    if self._health.take_out(root, error):
                        _LOGGER.warning("container %s was taken out: %s", root, error)
                    if self._group is not None:
                        self._group.take_out(root)
            if not self._health.working and not self._health.can_recover:
                self._broken = self._broken or f"failed to write ({error})"

    def _retry_containers(self) -> None:
        """Try the containers whose time has come; those that can be written take part from the next group on."""
        with self._lock:
            due = self._health.due()
        for root in due:
            if not self._health.has_room(root):
                self._health.postpone(root)
                continue
            try:
                reserved = self._members.rejoin(root)  # without the lock: a disk may take its time to refuse
                with self._lock:
                    # Ids that were reserved meanwhile are missing on it: an id must be reserved on every container.
                    if self._members.reserved != reserved:
                        self._members.rejoin(root)
                    self._health.bring_back(root)
            except OSError:
                self._health.postpone(root)
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
        # `_sealing` guards `_left_open`, which seals extend.
        with self._sealing:
            for file in list(self._left_open):
                if any(file.path.is_relative_to(root) for root in self._health.working):
                    try:
                        file.salvage(self._keep_cut)
                    except OSError as error:
                        self._take_out(file.path, error)
                    else:
                        self._left_open.remove(file)

    def discard_unacknowledged(self) -> None:
        """Cut what failed appends left: their events are not stored, and can be appended again.

        A write that failed can be whole in the file, and a later sync of it succeeds whether or not the failed one lost
        it. So whoever looks for events that were not acknowledged calls this first.

        Durability: on return no power loss brings them back.

        Raises:
            StorageError: a disk refuses that too.
        """
        with self._lock:
            group = self._group
        if group is not None and group.has_failed:
            self._seal(group)
        with self._sealing:
            # Also on containers that are out of use: what is cut there is cut for good.
            for file in list(self._left_open):
                file.salvage(self._keep_cut)
                self._left_open.remove(file)

    def _count_pending(self) -> None:
        """Count the bytes of sealed journals that wait for the rollover."""
        # Names and sizes alone: this runs at every seal, and again and again while an append is held back.
        total = 0
        for root in self._health.working:
            try:
                pending = groups(self._fs, [root], self._writer)
            except OSError as error:
                self._take_out(root, error)
            else:
                total += sum(_size_if_there(self._fs, path) for group in pending for path in group.sealed)
        self._pending_bytes = total

    def _wait_for_rollover(self) -> None:
        """Hold an append back while too much waits for the rollover.

        Raises:
            BackpressureError: the rollover did not catch up in time; the message says what to do.
            ClosedError: the writer was closed meanwhile.
        """
        bytes_max = self._options.waiting_bytes_max
        deadline = time.monotonic() + self._options.backpressure_seconds
        # As of the last count: the usual append compares two numbers and touches no disk.
        while self._pending_bytes > bytes_max:
            self._refuse_if_broken()
            self._count_pending()  # the rollover may have run since
            if self._pending_bytes <= bytes_max:
                return
            if time.monotonic() >= deadline:
                raise BackpressureError(
                    f"writer {self._writer!r}: {self._pending_bytes} bytes of journals wait to be rolled over, "
                    f"the limit is {bytes_max} (journal.waiting_bytes_max). Run the rollover: custody run all"
                )
            time.sleep(_BACKPRESSURE_POLL_SECONDS)

    def _refuse_if_superseded(self) -> None:
        """Check that the name is still this writer's, before each group but the first, for which the start did it.

        A store over a network that does not answer soon holds no append up. What it answers later holds from the next
        append on.
        """
        if self._incarnations is None or not self._groups_opened:
            return
        if not self._incarnations.answers_late:
            self._ask_whose_name(self._incarnations)
        elif self._name_question is None or not self._name_question.is_alive():
            self._name_question = Thread(
                target=self._ask_whose_name, args=(self._incarnations,), name="custody-whose-name", daemon=True
            )
            self._name_question.start()
            self._name_question.join(_NAME_ANSWER_SECONDS)
        self._refuse_if_broken()

    def _ask_whose_name(self, incarnations: Incarnations) -> None:
        try:
            holds_name = incarnations.still_holds(self._members.incarnation)
        except StorageError as error:
            # A store that is away stops nobody: the journals are on this machine's own disks.
            _LOGGER.warning("writer %s: whether its name is still its own is not known: %s", self._writer, error)
            return
        if not holds_name and self._broken is None:
            self._broken = (
                "lost its name: other containers claimed it (custody containers claim), or it was retired "
                "(custody writers list). What was acknowledged stays in its journals: custody recover --adopt"
            )

    def _refuse_without_container(self) -> None:
        error = self._health.error
        if error is not None and not self._health.working:
            failure = StorageError(
                f"writer {self._writer!r}: no container can be written now ({error}). "
                "Free room or mount the disk; the writer goes on by itself then."
            )
            failure.errno = error.errno
            raise failure

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise ClosedError(f"writer {self._writer!r} {self._broken}. Open the repository again.")


def _journal(
    fs: FileSystem,
    health: ContainerHealth,
    writer: str,
    sync: SyncPolicy,
    header: JournalHeader,
    shift: int,
    number: int,
) -> GroupCommitFile:
    """Return journal `number` of a group, the containers in turn."""
    working = health.working or health.roots
    root = working[(number + shift) % len(working)]
    name = JournalName(header.first_event_id, number, sealed=False)
    path = ContainerPaths(root, writer).journals / str(name)
    return GroupCommitFile(fs, path, header, sync)


def note_sealed(fs: FileSystem, members: WriterContainers, witnesses: Witnesses | None, sealed: Sequence[Path]) -> None:
    """Let containers know how far they are sealed, and all witnesses as well; a disk that refuses stays behind.

    The caller holds the writer's lock. Durability: on return it survives power loss, where the disks took it.
    """
    ends: dict[Path, int] = {}
    for path in sealed:
        root = path.parents[2]
        end = read_end(fs, path) if fs.exists(path) else None
        if end is not None and end.last_event_id is not None:
            ends[root] = max(ends.get(root, 0), end.last_event_id + 1)
    for root, next_event_id in ends.items():
        try:
            # The container first: a witness must not know of journals that their container does not know of.
            members.note_sealed(root, next_event_id)
        except OSError as error:
            _LOGGER.warning("container %s: how far it is sealed was not noted: %s", root, error)
    if witnesses is not None and ends:
        witnesses.try_to_note(witnesses.of_now(next_event_id=max(ends.values()), containers=members.sealed))


def lock_path(containers: Sequence[Path], writer: str) -> Path:
    """Return the file that a live writer holds."""
    return ContainerPaths(containers[0], writer).lock


def tick_in_background(writer: ReferenceType[JournalWriter], closing: Signal, tick_seconds: float) -> None:
    """Seal by age and sync by interval in a thread of its own: also a writer that nobody calls seals in time."""
    while not closing.wait(tick_seconds):
        living = writer()
        if living is None:
            return
        living.tick()
        del living  # else this thread would keep a forgotten writer alive


def least_free_id(
    fs: FileSystem,
    containers: Sequence[Path],
    writer: str,
    members: WriterContainers,
    recovered: Sequence[SealedJournal],
) -> int:
    """Return the first id to give out: above all that any journal holds, or may have held.

    All journals are sealed, `recovered` by the caller just now. Only their end records are read.

    Raises:
        StorageError: a container went away meanwhile: ids that its journals hold would be given out again.
    """
    uncertain = any(journal.may_have_lost for journal in recovered)
    least = 0
    for group in _groups_of_all(fs, containers, writer):
        uncertain = uncertain or not group.is_sealed  # its disk was away when the others were sealed
        for path in group.sealed:
            end = read_end(fs, path)
            uncertain = uncertain or end is None
            # Known from the name alone, also where a journal cannot be read.
            least = max(least, group.first_event_id)
            if end is not None and end.last_event_id is not None:
                least = max(least, end.last_event_id + 1)
    # Ids that nobody can read may have been returned to callers: go on above all that were ever reserved.
    if uncertain:
        members.raise_floor(max(members.reserved, least))
    return max(least, members.floor)


def _groups_of_all(fs: FileSystem, containers: Sequence[Path], writer: str) -> Iterator[Group]:
    """Yield the groups of each container, one that lies on several with its part on each."""
    for root in containers:
        state = ContainerPaths(root, writer).state  # written by now, and not at the place where a disk is mounted
        # Looked at before the listing and after it: a disk that goes away in between shows an empty folder.
        was_there = fs.exists(state)
        of_container = groups(fs, (root,), writer)
        if not (was_there and fs.exists(state)):
            raise StorageError(f"writer {writer!r}: the container {root} went away just now. Mount it and try again.")
        yield from of_container


def _incarnations_of_journals(fs: FileSystem, containers: Sequence[Path], writer: str) -> set[str]:
    paths = [path for group in groups(fs, containers, writer) for path in (*group.sealed, *group.open)]
    return {header.incarnation for header in (read_header(fs, path) for path in paths) if header is not None}


def _containers_in_use(fs: FileSystem, containers: Sequence[Path], writer: str) -> list[str]:
    return [str(root) for root in containers if fs.exists(ContainerPaths(root, writer).journals)]


def _size_if_there(fs: FileSystem, path: Path) -> int:
    try:
        return fs.size(path)
    except OSError:
        return 0  # swept in this moment
