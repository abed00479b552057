"""The open group of a journal writer, and what has to be done for it from time to time.

A group is sealed when it is old or large, without stopping the threads that append: they go on in the next group, whose
ids are all greater. A container that fails is taken out and the others carry on. One that was full or read-only is
tried again and comes back when it can be written; when no container is left that could come back, the writer is
poisoned.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Event as Signal
from threading import Lock, RLock
from weakref import ReferenceType

from custody.clock import Clock
from custody.errors import ClosedError, CustodyError, StorageError
from custody.journal.infirmary import RETRY_SECONDS, Infirmary
from custody.journal.lane import Lane, SyncPolicy
from custody.journal.membership import Membership
from custody.journal.opened import OpenGroup
from custody.journal.pressure import Pressure
from custody.journal.sealing import KeepCut
from custody.vfs import FileSystem

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
