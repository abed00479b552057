"""Notifications of a repository become files: its event logs, journals and leases, wired to the sink of NGSI."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from custody.clock import Clock
from custody.config import Settings
from custody.errors import LockedError, NotFoundError
from custody.format.names import LEASES, SINK_FOLDER
from custody.ingest.slots import SlotWriter
from custody.lease import Attempt, Heartbeat, Lease, take
from custody.model import Event, to_events
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink import resubmission
from custody.ngsi_sink.batch_plan import Written
from custody.ngsi_sink.notifications import LiveNotifications
from custody.ngsi_sink.run import GO_EVENTS, Persisted, persist, submit_again
from custody.ngsi_sink.send_events import WRITER
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.sink_state import NAME, Kept
from custody.ngsi_sink.target import Files, Target
from custody.ngsi_sink.webhdfs import open_target
from custody.read.reader import snapshot, tables
from custody.repository.repository import Repository
from custody.vfs import FileSystem
from custody.workspace import Workspace

FOLDER = SINK_FOLDER
LEASE = "sink"
_LOOKED_AT_EVENTS = 1000
_POLL_SECONDS = 0.25
Held = TypeVar("Held")


class SinkJournal:
    """The events that tell what the sink wrote, under a writer name of their own."""

    def __init__(self, writer: SlotWriter, workspace: Workspace) -> None:
        self._writer = writer
        self._workspace = workspace
        self._next = snapshot(workspace).next_event_id
        writer.begin(self._next)

    @property
    def next_event_id(self) -> int:
        """No event has this id or a greater one."""
        return self._next

    def append(self, events: Sequence[Event]) -> range:
        """Append events and return their ids once they are acknowledged."""
        ids = self._writer.append(events)
        self._next = ids.stop
        return ids

    def since(self, event_id: int) -> Iterator[Event]:
        """Yield the acknowledged events from an id on."""
        for table in tables(self._workspace, event_id, None):
            yield from to_events(table)


@dataclass(frozen=True, slots=True)
class Waits:
    """What waits for the sink."""

    notifications: int
    """At least as many; counting ends at a thousand."""
    again: int
    """Entries of the quarantine that were submitted again."""
    unfinished: bool
    """A run broke off in the middle of a batch."""

    @property
    def is_any(self) -> bool:
        """Whether a run has something to look at."""
        return bool(self.notifications or self.again or self.unfinished)


@dataclass(slots=True)
class Persisting:
    """A sink that is open, with what it works on."""

    repository: Repository
    fs: FileSystem
    clock: Clock
    parameters: Parameters
    sink: Sink
    target: Target
    waiting: LiveNotifications

    def run(
        self,
        *,
        until_ms: int | None = None,
        on_go: Callable[[Written], None] = lambda _: None,
        go_events: int = GO_EVENTS,
    ) -> Persisted:
        """Write what is due, as `custody.ngsi_sink.run.persist`."""
        return persist(
            self.waiting, self.sink, self.parameters, self.clock, until_ms=until_ms, on_go=on_go, go_events=go_events
        )

    def submit_again(self) -> Persisted:
        """Take what a user submitted resubmission, as `custody.ngsi_sink.run.submit_again`."""
        folder = sink_folder(self.repository.settings)
        return submit_again(self.waiting, self.sink, self.parameters, self.fs, folder, self.repository.quarantine)


def sink_folder(settings: Settings) -> Path:
    """Return the folder that the sink keeps its own things in."""
    return settings.root / FOLDER


@contextmanager
def persisting(
    repository: Repository,
    attempt: Attempt,
    *,
    target: Target | None = None,
    rpc: Callable[[Parameters], Files] | None = None,
    take_over: bool = False,
    sleep: Callable[[float], None] = time.sleep,
    note: Callable[[Iterable[Destination]], None] = lambda _: None,
) -> Iterator[Persisting]:
    """Hold the lease of the sink and open it; what a crash left is brought to its end.

    Args:
        repository: whose notifications are written.
        attempt: who does it; a later try of the same task takes over at once.
        target: where files go, instead of what `ngsi.backend` says.
        rpc: makes the files of backend `binary`, see `custody.ngsi_sink.webhdfs.open_target`.
        take_over: take the lease from an attempt that lives.
        sleep: waits before a retry.
        note: remembers destinations durably before rows of theirs are written, see `custody.ngsi_sink.tables.Wanted`.

    Raises:
        ConfigurationError: a parameter cannot be used.
        LockedError: another attempt holds the sink, and went on for `lease.wait_seconds`.
        SupersededError: another attempt took over.
        CorruptionError: a file of a destination, or an object of the sink, is not what was committed.
    """
    settings, plain, clock = repository.settings, repository.workspace().fs, repository.workspace().clock
    parameters = Parameters.from_section(settings.ngsi, settings.root)
    folder = sink_folder(settings)
    lease = _take(settings, plain, clock, attempt, take_over=take_over)
    is_done = False
    try:
        with ExitStack() as held:
            held.enter_context(Heartbeat([lease], clock, settings.lease.dead_seconds))
            opened_target = target or open_target(parameters, plain, settings.root, rpc=rpc)
            if target is None:
                held.callback(opened_target.close)
            patience = time.monotonic() + settings.lease.wait_seconds
            journal = _open_journal(repository, plain, clock, held, patience)
            sink = _enter(
                held,
                lambda: Sink.open(
                    plain,
                    folder,
                    opened_target,
                    clock,
                    parameters,
                    journal=journal,
                    quarantine=repository.quarantine,
                    lease=lease,
                    sleep=sleep,
                    note=note,
                ),
                patience,
            )
            yield Persisting(
                repository, plain, clock, parameters, sink, opened_target, LiveNotifications(repository, plain)
            )
        is_done = True
    finally:
        lease.release(failed=not is_done)


def waits(repository: Repository) -> Waits:
    """Return what waits for the sink, read from disk; due or not."""
    fs, folder = repository.workspace().fs, sink_folder(repository.settings)
    kept = Kept(fs, folder, repository.workspace().clock)
    held = kept.newest()
    newest = None if held is None else held.staged
    cursors = {} if newest is None else newest.cursors
    source = LiveNotifications(repository, fs)
    found = 0
    for writer, bound in source.bounds().items():
        for _ in source.notified(writer, cursors.get(writer, 0), bound):
            found += 1
            if found >= _LOOKED_AT_EVENTS:
                break
    return Waits(found, sum(1 for _ in resubmission.marks(fs, folder)), newest is not None and bool(newest.parts))


def submit_entry_again(repository: Repository, key: str) -> None:
    """Let the next run of the sink try an entry of the quarantine again that the sink made.

    Durability: on return the next run knows of it, also after power loss.

    Raises:
        NotFoundError: there is no such entry, or an ingest made it.
    """
    entry = repository.quarantine.get(key)
    if entry.format != resubmission.FORMAT:
        raise NotFoundError(
            f"quarantine entry {key}: expected one of the sink of NGSI, got one of format {entry.format}."
        )
    resubmission.mark(repository.workspace().fs, sink_folder(repository.settings), entry)


def _take(settings: Settings, fs: FileSystem, clock: Clock, attempt: Attempt, *, take_over: bool) -> Lease:
    folder = sink_folder(settings)
    return take(
        fs,
        folder / LEASES / LEASE,
        NAME,
        attempt,
        clock,
        wait_seconds=settings.lease.wait_seconds,
        dead_seconds=settings.lease.dead_seconds,
        floor=Kept(fs, folder, clock).epoch,
        take_over=take_over,
    )


def _open_journal(
    repository: Repository, fs: FileSystem, clock: Clock, held: ExitStack, patience: float
) -> SinkJournal:
    writer = _enter(held, lambda: SlotWriter(fs, repository.settings, WRITER, clock), patience)
    return SinkJournal(writer, repository.workspace(WRITER))


def _enter(held: ExitStack, make: Callable[[], AbstractContextManager[Held]], patience: float) -> Held:
    """Enter a context that an attempt before may still hold for the moment that it needs to see that it is over."""
    while True:
        try:
            return held.enter_context(make())
        except LockedError:
            if time.monotonic() >= patience:
                raise
            time.sleep(_POLL_SECONDS)
