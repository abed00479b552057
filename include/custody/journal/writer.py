"""The journal writer: events get their ids, are appended and synced, and only then acknowledged.

One live writer a writer name: it holds `<container>/<writer>/LOCK` from open to close. Any number of threads append;
each append takes a block of ids from the one counter and a journal of the open group (`keeping`).

The append that meets a container's failure raises, and its events may or may not be there after recovery. While all
containers are full or read-only a writer refuses each append.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Event as Signal
from threading import Thread
from types import TracebackType
from typing import Self
from weakref import ref

import pyarrow as pa

from custody.clock import Clock
from custody.errors import StorageError
from custody.format.names import ContainerPaths, JournalName
from custody.journal.encoding import Prepared
from custody.journal.file import JournalHeader, read_header
from custody.journal.free_ids import least_free_id
from custody.journal.groups import groups
from custody.journal.incarnations import Incarnations, Known
from custody.journal.keeping import JournalOptions, OpenJournals, keep
from custody.journal.lane import Appended, Lane
from custody.journal.membership import Membership, check_containers
from custody.journal.opened import OpenGroup
from custody.journal.sealing import KeepCut, Sealed, let_go, seal_abandoned
from custody.model import Event, require_valid_columns
from custody.vfs import FileSystem

_LOGGER = logging.getLogger(__name__)


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
