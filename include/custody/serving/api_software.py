"""Where the content of an event is in software: the API's answer from the published provenance tables, where they are.

The tables are opened with the first question, and a newer build is found by itself (`published_database.py`).
"""

from __future__ import annotations

from threading import Lock

import msgspec

from custody.errors import InvalidInputError, NotFoundError
from custody.flow.content import Content
from custody.made_types import made_at_import
from custody.serving.door import Services
from custody.serving.published_database import PublishedDatabase
from custody.serving.swh_door import EventContents
from custody.swh import Swhid, content_swhid
from custody.swh.database import occurrence_json
from custody.vfs import PosixFileSystem

HASHED_BYTES_MAX = 256 << 20
"""Contents up to this are looked for: all of their bytes are read."""


class SoftwarePlace(msgspec.Struct, frozen=True, kw_only=True):
    """A revision or release of software that holds a content; its date in seconds since the epoch."""

    anchor: str
    author_date: int
    path: str
    origin: str | None


made_at_import(SoftwarePlace)


class SoftwarePlaces(msgspec.Struct, frozen=True, kw_only=True):
    """Where a content is in software, the oldest first."""

    swhid: str
    is_published: bool
    """Whether there are tables of software here; without them nobody knows where the content is."""
    is_known: bool
    """Whether the tables have this content."""
    items: list[SoftwarePlace]
    is_complete: bool


class SoftwareTables:
    """The published tables, for any number of threads.

    Args:
        services: of the server.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._lock = Lock()
        self._contents = EventContents(services.repository)
        self._database: PublishedDatabase | None = None

    def places(self, content: Content, limit: int) -> SoftwarePlaces:
        """Return where a content is, at most so many places.

        Raises:
            InvalidInputError: the content is too large to be looked for.
            CorruptionError: the content, or a file of the tables, is damaged.
        """
        if content.size > HASHED_BYTES_MAX:
            raise InvalidInputError(f"expected a content of at most {HASHED_BYTES_MAX} bytes, got {content.size}.")
        swhid = content_swhid(content)
        database = self._opened()
        if database is None:
            return _places(swhid, is_published=False)
        try:
            found = database.occurrences(swhid, limit)
        except NotFoundError:
            return _places(swhid, is_published=True)
        items = [msgspec.convert(occurrence_json(place), SoftwarePlace) for place in found.oldest]
        return SoftwarePlaces(
            swhid=str(swhid), is_published=True, is_known=True, items=items, is_complete=found.is_complete
        )

    def _opened(self) -> PublishedDatabase | None:
        """Return the tables, None as long as none are published."""
        with self._lock:
            if self._database is None:
                settings, clock = self._services.settings, self._services.clock
                try:
                    self._database = PublishedDatabase(settings, PosixFileSystem(), clock, self._contents.swhid)
                except NotFoundError:
                    return None
            return self._database


def _places(swhid: Swhid, *, is_published: bool) -> SoftwarePlaces:
    return SoftwarePlaces(
        swhid=str(swhid), is_published=is_published, is_known=False, items=[], is_complete=is_published
    )
