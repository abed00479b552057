"""Entry point of the sink: opens it on a repository, and reports the work that waits for it.

`open_sink` wires a repository's event logs, the sink's own lease and the writer of its SEND events to a `Sink` and to
the target that the settings choose. The command line, the Spark job and Airflow's sensor come in here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from custody.capture import Format
from custody.clock import Clock
from custody.config import Settings
from custody.errors import ConfigurationError, LockedError, NotFoundError
from custody.format.names import LEASES, SINK_FOLDER
from custody.ingest.ingest import FileReport
from custody.ingest.slots import SlotWriter
from custody.lease import Attempt, Heartbeat, Lease, is_dead, lease_status, read_holder, take
from custody.model import Event, to_events
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink import resubmission, run
from custody.ngsi_sink.batch_file import WRITER, BatchManifest
from custody.ngsi_sink.batch_plan import BatchResult
from custody.ngsi_sink.chunk import ChunkPlanner
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.notifications import LiveNotifications
from custody.ngsi_sink.run import CHUNK_EVENTS, SinkReport
from custody.ngsi_sink.sink import Sink
from custody.ngsi_sink.sink_state import NAME, SinkCatalog
from custody.ngsi_sink.target import AppendableFiles, FilesTarget, Target
from custody.ngsi_sink.webhdfs import WebHdfsFiles
from custody.read.reader import snapshot, tables_from
from custody.repository.repository import Repository
from custody.vfs import FileSystem
from custody.workspace import Workspace

LEASE = "sink"
FOLLOWER = "follow"
"""Begins the name of a follower's attempt."""
# A sensor asks whether there is work. To count all of a long backlog would cost as much as to read it.
_BACKLOG_EVENTS_MAX = 1000
_POLL_SECONDS = 0.25
Entered = TypeVar("Entered")
OtherFiles = TypeVar("OtherFiles", bound=AppendableFiles)


@dataclass(frozen=True, slots=True)
class SinkBacklog:
    """The work that waits for the sink."""

    notifications: int
    """At least as many; counting ends at a thousand."""
    resubmitted: int
    """Entries of the quarantine that were submitted again."""
    unfinished: bool
    """A run broke off in the middle of a batch."""

    @property
    def is_any(self) -> bool:
        """Whether a run has something to look at."""
        return bool(self.notifications or self.resubmitted or self.unfinished)


@dataclass(slots=True)
class OpenSink:
    """A sink that is open, with what it works on."""

    repository: Repository
    fs: FileSystem
    clock: Clock
    parameters: Parameters
    sink: Sink
    target: Target
    source: LiveNotifications

    def run(
        self,
        *,
        until_ms: int | None = None,
        on_chunk: Callable[[BatchResult], None] = lambda _: None,
        chunk_events: int = CHUNK_EVENTS,
        ids_unsaved_max: int = 0,
        planner: ChunkPlanner | None = None,
    ) -> SinkReport:
        """Write what is due, as `custody.ngsi_sink.run.write_due`."""
        return run.write_due(
            self.source,
            self.sink,
            self.parameters,
            self.clock,
            until_ms=until_ms,
            on_chunk=on_chunk,
            chunk_events=chunk_events,
            ids_unsaved_max=ids_unsaved_max,
            planner=planner,
        )

    def resubmit(self) -> SinkReport:
        """Take what a user submitted again, as `custody.ngsi_sink.run.resubmit`."""
        folder = sink_folder(self.repository.settings)
        return run.resubmit(self.source, self.sink, self.parameters, self.fs, folder, self.repository.quarantine)

    @property
    def is_resubmitted(self) -> bool:
        """Whether an entry of the quarantine was submitted again."""
        return any(True for _ in resubmission.marks(self.fs, sink_folder(self.repository.settings)))


class SinkJournal:
    """Stores SEND events under a writer name of their own, as a `custody.ngsi_sink.batch_file.SendJournal`."""

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
        for table in tables_from(self._workspace, event_id, None):
            yield from to_events(table)


@contextmanager
def open_sink(
    repository: Repository,
    attempt: Attempt,
    *,
    target: Target | None = None,
    rpc: Callable[[Parameters], AppendableFiles] | None = None,
    take_over: bool = False,
    with_journals: bool = False,
    wait_seconds: float | None = None,
    sleep: Callable[[float], None] = time.sleep,
    note: Callable[[Iterable[Destination]], None] = lambda _: None,
) -> Iterator[OpenSink]:
    """Hold the lease of the sink and open it; a batch that a crash left is finished.

    Args:
        repository: holds the notifications.
        attempt: who does it; a later try of the same task takes over at once.
        target: where files go, instead of the backend of the settings.
        rpc: makes the files of backend `binary`, see `open_target`.
        take_over: take the lease from an attempt that lives.
        with_journals: take acknowledged notifications from journals as well, before they are live.
        sleep: waits before a retry.
        note: remembers destinations durably before rows of theirs are written: `PendingTables.note`.

    Raises:
        ConfigurationError: a parameter cannot be used.
        LockedError: another attempt holds the sink, and went on for `wait_seconds`.
        SupersededError: another attempt took over.
        CorruptionError: a file of a destination, or an object of the sink, is not what was committed.
    """
    settings, fs, clock = repository.settings, repository.workspace().fs, repository.workspace().clock
    parameters = Parameters.from_section(settings.ngsi, settings.root)
    folder = sink_folder(settings)
    wait_seconds = settings.lease.wait_seconds if wait_seconds is None else wait_seconds
    lease = _take(settings, fs, clock, attempt, wait_seconds, take_over=take_over)
    # Released as failed unless the block ends well: the next holder then fences this one in the catalog.
    is_done = False
    try:
        with ExitStack() as stack:
            stack.enter_context(Heartbeat([lease], clock, settings.lease.dead_seconds))
            opened_target = target or open_target(parameters, fs, settings.root, rpc=rpc)
            # A target that the caller gave is the caller's to close.
            if target is None:
                stack.callback(opened_target.close)
            patience = time.monotonic() + wait_seconds
            journal = _open_journal(repository, fs, clock, stack, patience)
            sink = _enter(
                stack,
                lambda: Sink.open(
                    fs,
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
            source = LiveNotifications(repository, fs, with_journals=with_journals)
            yield OpenSink(repository, fs, clock, parameters, sink, opened_target, source)
        is_done = True
    finally:
        lease.release(failed=not is_done)


def sink_backlog(repository: Repository, *, with_journals: bool = False) -> SinkBacklog:
    """Return what waits for the sink, read from disk; due or not."""
    # Neither lease nor lock is taken: this only reads, and a sensor calls it often.
    fs, folder = repository.workspace().fs, sink_folder(repository.settings)
    newest = _newest(repository)
    cursors = {} if newest is None else newest.cursors
    source = LiveNotifications(repository, fs, with_journals=with_journals)
    notifications = 0
    for writer, bound in source.bounds(cursors).items():
        for _ in source.notified(writer, cursors.get(writer, 0), bound):
            notifications += 1
            if notifications >= _BACKLOG_EVENTS_MAX:
                break
    resubmitted = sum(1 for _ in resubmission.marks(fs, folder))
    # A run that ends well commits a batch without appends last (`Sink.save_cursors`): with some it may be unfinished.
    return SinkBacklog(notifications, resubmitted, newest is not None and bool(newest.parts))


def next_batch_due_ms(repository: Repository) -> int | None:
    """Return when the sink has something to do next, in ms since the epoch; None where nothing waits.

    Notifications in journals count. What was submitted again, or broke off, has been due since 0. Read from disk,
    without a lease.
    """
    fs, clock = repository.workspace().fs, repository.workspace().clock
    newest = _newest(repository)
    is_left = newest is not None and bool(newest.parts)
    if is_left or any(True for _ in resubmission.marks(fs, sink_folder(repository.settings))):
        return 0
    parameters = Parameters.from_section(repository.settings.ngsi, repository.settings.root)
    source = LiveNotifications(repository, fs, with_journals=True)
    return run.next_due_ms(source, {} if newest is None else newest.cursors, parameters, clock.now_ms())


def sink_holder(repository: Repository) -> Attempt | None:
    """Return the attempt that holds the sink and lives, as far as can be seen from here; None where it is free."""
    settings, fs = repository.settings, repository.workspace().fs
    current = lease_status(fs, sink_folder(settings) / LEASES / LEASE)
    now_ms = repository.workspace().clock.now_ms()
    if current is None or not current.is_open or is_dead(fs, current, now_ms, settings.lease.dead_seconds):
        return None
    holder = read_holder(fs, current.path)
    return None if holder is None else Attempt.parse(holder.attempt)


def sink_cursors(repository: Repository) -> dict[str, int]:
    """Return by writer the event id from which on the sink has not taken anything; read from disk."""
    newest = _newest(repository)
    return {} if newest is None else dict(newest.cursors)


def resubmit_entry(repository: Repository, key: str) -> None:
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


@dataclass(frozen=True, slots=True)
class Resubmitted:
    """What became of pieces of the quarantine that were tried again."""

    reports: dict[str, FileReport]
    """By key, of those that were read again; what is stored has left the quarantine."""
    left_to_sink: tuple[str, ...]
    """Keys of those that the next run of the sink tries again."""


def resubmit_pieces(
    repository: Repository,
    keys: Sequence[str],
    format: Format | None = None,
    writer: SlotWriter | None = None,
    on_progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Resubmitted:
    """Try pieces of the quarantine again, whoever put them there; `format` says as what they are read.

    Durability: on return what the reports name as stored survives power loss, and the sink knows of its pieces. Done
    again, what was stored counts as repeated.

    Args:
        repository: whose quarantine it is.
        keys: of the pieces.
        format: None for what they were.
        writer: a slot that the caller holds; without one, a slot is held for the pieces that need it.
        on_progress: called with the number of pieces that are done, and of all.

    Raises:
        NotFoundError: there is no such piece; those before it are done.
        LockedError: no writer is given and live processes hold all slots.
    """
    # The sink alone can write its pieces: they are only marked here.
    marked = [key for key in keys if _is_sinks(repository, key)]
    chosen = [key for key in keys if key not in set(marked)]
    reports: dict[str, FileReport] = {}
    on_progress(0, len(keys))
    if chosen:
        with repository.ingest(writer) as work:
            for done, report in enumerate(work.resubmit_each(chosen, format=format), 1):
                reports[chosen[done - 1]] = report
                on_progress(done, len(keys))
    for done, key in enumerate(marked, len(chosen) + 1):
        resubmit_entry(repository, key)
        on_progress(done, len(keys))
    return Resubmitted(reports, tuple(marked))


def _is_sinks(repository: Repository, key: str) -> bool:
    """Whether the sink made an entry; of one that is not there an ingest says so."""
    try:
        return repository.quarantine.get(key).format == resubmission.FORMAT
    except NotFoundError:
        return False


def sink_folder(settings: Settings) -> Path:
    """Return the folder of the sink's own files."""
    return settings.root / SINK_FOLDER


def open_target(
    parameters: Parameters,
    fs: FileSystem,
    repository: Path,
    *,
    rpc: Callable[[Parameters], AppendableFiles] | None = None,
) -> Target:
    """Return the place where files of destinations go; close it in the end.

    Args:
        parameters: `ngsi.backend` chooses.
        fs: of backend `file`.
        repository: the folder that a relative `ngsi.backend_folder` lies in.
        rpc: makes the files of backend `binary`: `custody.spark.hdfs.rpc_files(session)`, for its client is Spark's.

    Raises:
        ConfigurationError: the backend cannot be used here.
    """
    return FilesTarget(open_files(parameters, fs, repository, rpc=rpc))


def open_files(
    parameters: Parameters, fs: FileSystem, repository: Path, *, rpc: Callable[[Parameters], OtherFiles] | None = None
) -> LocalFiles | WebHdfsFiles | OtherFiles:
    """Return the file system of a target; arguments and errors as of `open_target`."""
    values = parameters.values
    if values.backend == "file":
        return LocalFiles(fs, (repository / values.backend_folder).absolute())
    if values.backend == "binary":
        if rpc is None:
            raise ConfigurationError(
                "ngsi.backend binary: expected a Spark session, whose client of HDFS it uses, got none. "
                "Run the Spark job ngsi_to_hdfs, or set ngsi.backend to rest."
            )
        return rpc(parameters)
    return WebHdfsFiles.open(parameters)


def _newest(repository: Repository) -> BatchManifest | None:
    fs, clock = repository.workspace().fs, repository.workspace().clock
    batch = SinkCatalog(fs, sink_folder(repository.settings), clock).newest()
    return None if batch is None else batch.manifest


def _take(
    settings: Settings, fs: FileSystem, clock: Clock, attempt: Attempt, wait_seconds: float, *, take_over: bool
) -> Lease:
    folder = sink_folder(settings)
    return take(
        fs,
        folder / LEASES / LEASE,
        NAME,
        attempt,
        clock,
        wait_seconds=wait_seconds,
        dead_seconds=settings.lease.dead_seconds,
        # A lease file that was lost must not give out an epoch again that the catalog has seen.
        floor=SinkCatalog(fs, folder, clock).epoch,
        take_over=take_over,
    )


def _open_journal(
    repository: Repository, fs: FileSystem, clock: Clock, stack: ExitStack, patience: float
) -> SinkJournal:
    writer = _enter(stack, lambda: SlotWriter(fs, repository.settings, WRITER, clock), patience)
    return SinkJournal(writer, repository.workspace(WRITER))


def _enter(stack: ExitStack, make: Callable[[], AbstractContextManager[Entered]], patience: float) -> Entered:
    """Enter a context; a superseded attempt may hold it for the moment that it needs to notice that it is over."""
    while True:
        try:
            return stack.enter_context(make())
        except LockedError:
            if time.monotonic() >= patience:
                raise
            time.sleep(_POLL_SECONDS)
