"""The published database behind the services of software provenance, over HTTP and over gRPC.

It looks for a newer build every `LOOK_SECONDS` and answers from that one then. A build that cannot be opened is logged,
and the last good one goes on answering.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Lock

from custody.clock import Clock
from custody.config import Settings
from custody.errors import CustodyError, InvalidInputError
from custody.model.visibility import Visibility
from custody.swh.database import Occurrence, ProvenanceDatabase, Whereabouts
from custody.swh.publishing import database_catalog, published_state
from custody.swh.swhid import Swhid
from custody.vfs import FileSystem

LOOK_SECONDS = 30
"""How often it looks at the catalog for a newer build."""
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Occurrences:
    """The oldest revisions and releases that hold a content, and whether these are all."""

    swhid: Swhid
    oldest: list[Occurrence]
    is_complete: bool


class PublishedDatabase:
    """Answers from the published database, for any number of threads.

    Args:
        settings: of the repository; the section `swh` applies.
        fs: holds the database.
        clock: tells when to look for a newer build.
        content_of: returns the identifier of an event's content, by the event's id, its writer, and what the sender of
            the question may see.

    Raises:
        NotFoundError: nothing is published.
        CorruptionError: an index of the database is damaged.
    """

    def __init__(
        self,
        settings: Settings,
        fs: FileSystem,
        clock: Clock,
        content_of: Callable[[int, str | None, Visibility | None], Swhid],
    ) -> None:
        self._options = settings.swh
        self._catalog = database_catalog(settings, fs, clock)
        self._fs = fs
        self._clock = clock
        self._content_of = content_of
        self._lock = Lock()
        self.revision, self._database = self._opened()
        """The revision of the catalog that answers come from."""
        self._looked_ms = clock.now_ms()

    def whereis(self, swhid: Swhid) -> Whereabouts:
        """Return where one object was first.

        Raises:
            NotFoundError: the graph has no such node.
            CorruptionError: a file of the database is damaged.
        """
        return self.database().whereis(swhid)

    def whereis_many(self, swhids: Sequence[Swhid]) -> list[Whereabouts]:
        """Return where each of some objects was first, in their order.

        Raises:
            InvalidInputError: they are more than one request may ask for.
            CorruptionError: a file of the database is damaged.
        """
        limit = self._options.questions_max
        if len(swhids) > limit:
            raise InvalidInputError(f"expected at most {limit} identifiers (swh.questions_max), got {len(swhids)}.")
        return self.database().whereis_many(swhids)

    def occurrences(self, swhid: Swhid, limit: int) -> Occurrences:
        """Return the oldest revisions and releases that hold a content.

        Raises:
            InvalidInputError: it is no content, or the limit is out of its range.
            NotFoundError: the graph has no such node.
            CorruptionError: a file of the database is damaged.
        """
        most = self._options.occurrences_max
        if not 1 <= limit <= most:
            raise InvalidInputError(f"limit: expected 1 to {most} (swh.occurrences_max), got {limit}.")
        # One more than the limit: that tells whether there are more.
        oldest = self.database().occurrences(swhid, limit + 1)
        return Occurrences(swhid, oldest[:limit], len(oldest) <= limit)

    def content_of(self, event_id: int, writer: str | None, visibility: Visibility | None) -> Swhid:
        """Return the identifier of the content of an event, to somebody with a visibility, None for every event.

        Raises:
            NotFoundError: there is no such event that they may see, or its content is not here.
            CorruptionError: the content is damaged.
        """
        return self._content_of(event_id, writer, visibility)

    def database(self) -> ProvenanceDatabase:
        """Return the published database; the last one that could be opened, where the newest cannot be."""
        now = self._clock.now_ms()
        # Also while a newer build is opened: one caller opens it, and revision and database change together.
        with self._lock:
            if now - self._looked_ms >= LOOK_SECONDS * 1000:
                # Before the try: a build that cannot be opened is tried again after the interval, not at each question.
                self._looked_ms = now
                try:
                    self._refresh()
                except CustodyError:
                    _LOGGER.exception("the newest build cannot be opened; revision %d is answered from", self.revision)
            # Callers keep this object until they are done: a newer build never replaces it in the middle of an answer.
            return self._database

    def _refresh(self) -> None:
        if published_state(self._catalog).revision != self.revision:
            self.revision, self._database = self._opened()

    def _opened(self) -> tuple[int, ProvenanceDatabase]:
        state = published_state(self._catalog)
        database = ProvenanceDatabase.open(self._fs, self._catalog.objects.files, state, self._options.cache_bytes)
        # Before it gives any answer: with a damaged index the former build goes on.
        database.check()
        return state.revision, database
