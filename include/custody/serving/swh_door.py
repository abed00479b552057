"""The door for questions about software: where was this content? It answers below `/swh`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from threading import Lock

from custody.model.visibility import Visibility
from custody.repository import Repository
from custody.serving.access import Scope, Tokens
from custody.serving.door import Measure, Services
from custody.serving.published_database import PublishedDatabase
from custody.serving.route_rights import OPEN, DoorMount, DoorRoute, RouteRight, Shows
from custody.serving.swh_rest import swh_app
from custody.swh import Swhid, content_swhid
from custody.vfs import PosixFileSystem

PREFIX = "/swh"


class SwhDoor:
    """Answers from the published provenance tables of software; the section `swh` has its limits.

    Args:
        services: of the server.
        is_alone: whether it is all that the server has: it then checks `tokens` itself, and answers at the root.
        tokens: asked for where it is alone; None asks for none.

    Raises:
        NotFoundError: no tables are published.
    """

    name = "swh"

    def __init__(self, services: Services, *, is_alone: bool = False, tokens: Tokens | None = None) -> None:
        self.database = PublishedDatabase(
            services.settings, PosixFileSystem(), services.clock, EventContents(services.repository).swhid
        )
        self._is_alone = is_alone
        self._app = swh_app(self.database, services.settings, tokens)

    def routes(self) -> Sequence[DoorRoute | DoorMount]:
        """Return what `custody swh serve` answers, below a prefix where it is not alone."""
        if self._is_alone:
            return [DoorMount("", self._app, right=OPEN, checks_itself=True)]
        return [DoorMount(PREFIX, self._app, right=RouteRight(Scope.READ, Shows.VISIBLE))]

    def ready(self) -> str | None:
        """Return None: the last build that could be opened goes on answering."""
        return None

    def metrics(self) -> Iterable[Measure]:
        """Return the revision that is answered from."""
        yield Measure("swh_revision", "gauge", "Revision of the tables that answers come from.", self.database.revision)

    def close(self) -> None:
        """Do nothing: it holds nothing that waits."""


class EventContents:
    """Contents of events, asked for by one thread at a time."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._lock = Lock()

    def swhid(self, event_id: int, writer: str | None, visibility: Visibility | None) -> Swhid:
        """Return the identifier of the content of an event, to somebody with a visibility, None for every event.

        Raises:
            NotFoundError: there is no such event that they may see, or its content is not here.
        """
        repository = self._repository if visibility is None else self._repository.seen_by(visibility)
        with self._lock:
            return content_swhid(repository.content(repository.get(event_id, writer)))
