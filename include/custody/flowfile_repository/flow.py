"""The flow of a repository: its queues, contents and provenance together, as sessions work on them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from threading import Event as Signal
from threading import Thread

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError, NotFoundError
from custody.flow import Component
from custody.flow.content import Content, find_content
from custody.flowfile_repository.flowfile_repository import FlowFileOptions, FlowFileRepository
from custody.flowfile_repository.outbox import JournalProvenance, Provenance
from custody.flowfile_repository.queue_session import QueueSession
from custody.flowfile_repository.records import Connection
from custody.ingest.slots import SlotWriter
from custody.journal import SyncPolicy
from custody.model import ContentClaim
from custody.quarantine import keep_cut
from custody.vfs import FileSystem
from custody.workspace import Workspace

_LOGGER = logging.getLogger(__name__)
TICK_SECONDS = 5.0
"""How often a process looks whether a snapshot is due, and whether another process has died."""


class Flow:
    """The queues of a repository, open in this process; threads share it, each with sessions of its own."""

    def __init__(
        self,
        flowfiles: FlowFileRepository,
        provenance: JournalProvenance,
        writer: SlotWriter,
        find: Callable[[ContentClaim], Content],
        clock: Clock,
    ) -> None:
        self.queues = flowfiles
        self._provenance = provenance
        self._writer = writer
        self._find = find
        self._clock = clock

    def connect(self, name: str, **bounds: object) -> None:
        """Make a queue, or give it other bounds: those of `Connection`."""
        self.queues.connect(Connection(name=name, **bounds))  # type: ignore[arg-type]

    def session(self, component: Component) -> QueueSession:
        """Begin a piece of work; as a context manager it is committed at the end of its block."""
        return QueueSession(
            self.queues, component, self._provenance, lambda: self._writer.content, self._find, self._clock
        )


@contextmanager
def open_flow(
    settings: Settings, fs: FileSystem, clock: Clock, writer: SlotWriter, workspaces: Callable[[], Sequence[Workspace]]
) -> Iterator[Flow]:
    """Open the queues of a repository for a process that holds this writer; snapshots are written meanwhile.

    Raises:
        CorruptionError: the log of the FlowFile repository is damaged.
    """
    provenance = JournalProvenance(writer, workspaces)
    with _queues(settings, fs, clock, provenance) as flowfiles:
        closing = Signal()
        ticking = Thread(target=_tick, args=(flowfiles, closing), name="custody-flowfiles", daemon=True)
        ticking.start()
        try:
            yield Flow(flowfiles, provenance, writer, partial(find_content, fs, settings.store), clock)
        finally:
            closing.set()
            ticking.join()


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
    return _queues(settings, fs, clock, None)


def _queues(settings: Settings, fs: FileSystem, clock: Clock, provenance: Provenance | None) -> FlowFileRepository:
    options = FlowFileOptions(
        swap_threshold=settings.flowfiles.swap_threshold,
        checkpoint_seconds=settings.flowfiles.checkpoint_seconds,
        is_synced=SyncPolicy(settings.journal.sync) is not SyncPolicy.NEVER,
    )
    kept = partial(keep_cut, fs, settings.quarantine, clock.now_ms())
    return FlowFileRepository(fs, settings.flowfiles_home, clock, provenance, options, keep_cut=kept)


def _tick(flowfiles: FlowFileRepository, closing: Signal) -> None:
    while not closing.wait(TICK_SECONDS):
        try:
            flowfiles.tick()
        except CustodyError:
            # Told to whoever works with it next: the same failure meets the next commit.
            _LOGGER.exception("the FlowFile repository could not do what is due")
