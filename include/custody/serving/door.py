"""Doors: each takes one protocol of producers, or answers one kind of questions, in the one server of custody.

A door is a class in a module `serving/<name>_door.py`. Its constructor takes `Services` and opens nothing slow; the
application (`serving/application.py`) checks access, counts, bounds and logs before a door sees a request. So a door
reads the body (`http_requests.bounded_body`), decides, and answers.

A door stores through `Services.intake`, which stores what many requests deliver with one append and one sync, each
event once, and answers each of them when its events are durable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Literal, Protocol

from custody.clock import Clock
from custody.errors import StorageError
from custody.serving.event_intake import EventIntake
from custody.serving.route_rights import DoorMount, DoorRoute
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from custody.config import Settings
    from custody.ingest.slots import SlotWriter
    from custody.repository import Repository


@dataclass(frozen=True, slots=True)
class Measure:
    """One number that a door shows to whoever watches the server."""

    name: str
    """In lower case with underscores, such as `site_to_site_transactions`; counters get `_total` behind it."""
    kind: Literal["counter", "gauge"]
    help: str
    value: float
    labels: tuple[tuple[str, str], ...] = ()


class Door(Protocol):
    """One door of the server."""

    @property
    def name(self) -> str:
        """The name in settings, logs and metrics."""
        ...

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return the routes, with absolute paths, each with the right that a request needs."""
        ...

    def ready(self) -> str | None:
        """Return why the door cannot take requests now; None when it can."""
        ...

    def metrics(self) -> Iterable[Measure]:
        """Return the door's own numbers; requests, answers and times are counted by the application."""
        ...

    def close(self) -> None:
        """Finish what has begun; no request comes any more. A second call does nothing."""
        ...


class Services:
    """What the doors of one process share; each part is opened when the first door uses it.

    Args:
        repository: where events go and answers come from.
        settings: of the repository, with the changes of the command line.
        clock: tells times of arrival.
    """

    def __init__(self, repository: Repository, settings: Settings, clock: Clock) -> None:
        self.repository = repository
        self.settings = settings
        self.clock = clock
        self._held = ExitStack()
        self._opening = Lock()
        self._writer: SlotWriter | None = None
        self._intake: EventIntake | None = None

    @property
    def writer(self) -> SlotWriter:
        """The writer slot of this process.

        Raises:
            LockedError: live processes hold all slots.
        """
        with self._opening:
            return self._opened_writer()

    @property
    def intake(self) -> EventIntake:
        """Where doors deliver events.

        Raises:
            LockedError: live processes hold all slots.
        """
        with self._opening:
            if self._intake is None:
                from custody.ingest.ingest import Ingest

                writer = self._opened_writer()
                workspace = self.repository.workspace(writer.name)
                ingest = Ingest(workspace, writer, self.repository.workspaces, self.repository.quarantine)
                self._intake = self._held.enter_context(EventIntake(ingest, self.settings.serve.requests_max))
            return self._intake

    def problem(self) -> str | None:
        """Return why answers would be wrong and nothing should be taken: files of the repository are away, or older."""
        repository = self.repository
        if not PosixFileSystem().exists(repository.settings.root):
            return f"{repository.settings.root}: the folder of the repository is away"
        # A store that does not answer is no state of it: requests that need it say so.
        with suppress(StorageError):
            return next(map(str, repository.earlier_states()), None)
        return None

    @contextmanager
    def lent_writer(self) -> Iterator[SlotWriter]:
        """Give the slot of this process where a door has one, else one that is held for the block alone.

        A server that only answers so keeps no slot from others; one whose doors store events needs no second one.

        Raises:
            LockedError: live processes hold all slots.
        """
        with self._opening:
            writer = self._writer
        if writer is not None:
            yield writer
            return
        with self.repository.writer() as held:
            yield held

    def close(self) -> None:
        """Store what waits, seal the journals and free the slot; the doors are closed before."""
        self._held.close()

    def _opened_writer(self) -> SlotWriter:
        if self._writer is None:
            self._writer = self._held.enter_context(self.repository.writer())
        return self._writer
