"""The flow of a repository: its queues, contents and provenance together, as sessions work on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from threading import Event as Signal
from threading import Thread

from custody.clock import Clock
from custody.config import Settings
from custody.errors import BackpressureError, CustodyError, NotFoundError, StorageError
from custody.flow import Component
from custody.flow.content import Content, ContentWriter, find_content
from custody.flowfile_repository import (
    ArchiveOptions,
    Connection,
    ContentArchive,
    FlowFileOptions,
    FlowFileRepository,
    Provenance,
    QueueSession,
)
from custody.ingest.dedup import StoredKeys, key_of, keys_of
from custody.ingest.slots import SlotWriter
from custody.journal import SyncPolicy
from custody.model import ContentClaim, Event
from custody.quarantine import keep_cut
from custody.retention import held_contents
from custody.vfs import FileSystem
from custody.workspace import Workspace

_LOGGER = logging.getLogger(__name__)
TICK_SECONDS = 5.0
"""How often a process looks whether a snapshot is due, and whether another process has died."""


class JournalProvenance:
    """The provenance repository whose writer the process holds.

    Args:
        writer: the writer slot.
        workspaces: returns all writers of the repository, looked up anew each time.
    """

    def __init__(self, writer: SlotWriter, workspaces: Callable[[], Sequence[Workspace]]) -> None:
        self._writer = writer
        self._workspaces = workspaces

    @property
    def name(self) -> str:
        """The writer's name."""
        return self._writer.name

    def append(self, events: Sequence[Event]) -> range:
        """Append events; raises as `JournalWriter.append`."""
        try:
            return self._writer.append(events)
        except StorageError:
            # At once: who takes over from a process that died finds whole events, and cannot tell that a sync failed.
            with suppress(CustodyError):
                self._writer.discard_unacknowledged()
            raise

    def missing(self, events: Sequence[Event]) -> list[Event]:
        """Return the events that no writer has; those that were forgotten since do not come back.

        Raises:
            StorageError: a container is missing, which may hold them, or what a failed append left cannot be cut.
        """
        self._writer.discard_unacknowledged()
        # Read anew each time: it is asked after a crash, or a failure, and what is there may have grown since.
        keys = StoredKeys(self._workspaces, "")
        keys.refresh()
        searched = keys_of(events)
        stored = keys.find(searched).keys() | keys.erased(searched).keys()
        return [event for event in events if key_of(event) not in stored]


class Flow:
    """The queues of a repository, open in this process; threads share it, each with sessions of its own."""

    def __init__(
        self,
        flowfiles: FlowFileRepository,
        provenance: JournalProvenance,
        writer: SlotWriter,
        find: Callable[[ContentClaim], Content],
        archive: ContentArchive,
        clock: Clock,
    ) -> None:
        self.queues = flowfiles
        self._provenance = provenance
        self._writer = writer
        self._find = find
        self.archive = archive
        self._clock = clock

    def connect(self, name: str, **bounds: object) -> None:
        """Make a queue, or give it other bounds: those of `Connection`."""
        self.queues.connect(Connection(name=name, **bounds))  # type: ignore[arg-type]

    def session(self, component: Component) -> QueueSession:
        """Begin a piece of work; as a context manager it is committed at the end of its block."""
        return QueueSession(self.queues, component, self._provenance, self._contents, self._find, self._clock)

    def _contents(self) -> ContentWriter:
        """Return the writer of contents once the disk has room for more; raises as `ContentArchive.require_room`."""
        try:
            self.archive.require_room()
        except BackpressureError:
            # What was done since the last snapshot may go, too.
            self.queues.checkpoint()
            self.archive.require_room()
        return self._writer.content


@contextmanager
def open_flow(
    settings: Settings,
    fs: FileSystem,
    clock: Clock,
    writer: SlotWriter,
    workspaces: Callable[[], Sequence[Workspace]],
    *,
    is_ticking: bool = True,
) -> Iterator[Flow]:
    """Open the queues of a repository for a process that holds this writer; snapshots are written meanwhile.

    Args:
        is_ticking: whether a thread does what is due; without it the caller calls `flow.queues.tick` now and then.

    Raises:
        CorruptionError: the log of the FlowFile repository is damaged.
    """
    provenance = JournalProvenance(writer, workspaces)
    bounds = ArchiveOptions(settings.content.archive_age_ms, settings.content.archive_share)
    archive = ContentArchive(fs, settings.content_store, bounds, partial(held_contents, settings, fs, clock))
    opened = _queues(settings, fs, clock, provenance, archive)
    with opened as flowfiles, _ticking(flowfiles) if is_ticking else nullcontext():
        yield Flow(flowfiles, provenance, writer, partial(find_content, fs, settings.content_store), archive, clock)


def existing_queues(settings: Settings, fs: FileSystem, clock: Clock) -> FlowFileRepository:
    """Open the queues of a repository to look at them; no writer slot is held, so events of others are not delivered.

    Raises:
        NotFoundError: no FlowFile was ever queued here.
        CorruptionError: the log of the FlowFile repository is damaged.
    """
    if not fs.list(settings.flowfiles_home):
        raise NotFoundError(
            f"{settings.flowfiles_home}: expected the queues of a flow, found none. Nothing can be replayed before a "
            "flow has run here (docs/flow.md)."
        )
    return _queues(settings, fs, clock, None, None)


def _queues(
    settings: Settings, fs: FileSystem, clock: Clock, provenance: Provenance | None, archive: ContentArchive | None
) -> FlowFileRepository:
    options = FlowFileOptions(
        swap_threshold=settings.flowfiles.swap_threshold,
        checkpoint_seconds=settings.flowfiles.checkpoint_seconds,
        is_synced=SyncPolicy(settings.journal.sync) is not SyncPolicy.NEVER,
    )
    kept = partial(keep_cut, fs, settings.quarantine, clock.now_ms())
    return FlowFileRepository(fs, settings.flowfiles_home, clock, provenance, options, archive=archive, keep_cut=kept)


@contextmanager
def _ticking(flowfiles: FlowFileRepository) -> Iterator[None]:
    closing = Signal()
    thread = Thread(target=_tick, args=(flowfiles, closing), name="custody-flowfiles", daemon=True)
    thread.start()
    try:
        yield
    finally:
        closing.set()
        thread.join()


def _tick(flowfiles: FlowFileRepository, closing: Signal) -> None:
    while not closing.wait(TICK_SECONDS):
        try:
            flowfiles.tick()
        except CustodyError:
            # Told to whoever works with it next: the same failure meets the next commit.
            _LOGGER.exception("the FlowFile repository could not do what is due")
