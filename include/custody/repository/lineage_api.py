"""Lineage over all writers: looking FlowFiles up, one event's relatives, and what can be seen of contents."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace

from whoosh import query

from custody.index import ShardCache
from custody.lineage import Bounds, Direction, Lineage, UnknownEvent, expansion_bounds, require_expandable, trace
from custody.model import Event
from custody.read.kept_looks import KeptLooks
from custody.read.results import Notices
from custody.read.search import (
    Page,
    SearchedWriters,
    SearchResult,
    open_sources,
    opening_threads,
    revisions_of,
    search,
)
from custody.read.time_travel import AsOf, Revisions
from custody.workspace import Workspace

ALTERNATE_IDENTIFIER_FIELD = "alternate_identifier_uri"
# Each costs a search of its own, and is asked for only where something is damaged.
_LOST_ASKED_MAX = 1000


class LineageSearch:
    """Answers of one moment: the events that mention FlowFiles, and those among them that cannot be read."""

    def __init__(
        self, sources: SearchedWriters, shards: ShardCache, attributes: Sequence[str], pool: Executor | None
    ) -> None:
        self._sources = sources
        self._shards = shards
        self._attributes = attributes
        self._pool = pool
        self._asked = 0
        self._unknown: dict[tuple[str, int], dict[str, None]] = defaultdict(dict)
        self.notices: dict[str, None] = {}

    def lookup(self, uuids: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
        """Return at most so many events that mention one of some FlowFiles, each with its writer."""
        result = self._search(uuids, events_max)
        self.notices.update(dict.fromkeys(result.notices))
        if result.lost_ids:
            self._connect(uuids, events_max, result)
        return [(stored.writer, stored.event) for stored in result.events]

    def identified(self, identifiers: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
        """Return at most so many events that name one of some alternate identifiers, each with its writer."""
        result = self._find(ALTERNATE_IDENTIFIER_FIELD, identifiers, events_max)
        self.notices.update(dict.fromkeys(result.notices))
        return [(stored.writer, stored.event) for stored in result.events]

    def unknown_events(self) -> tuple[UnknownEvent, ...]:
        """Return the events that were met and cannot be read, by writer and id."""
        return tuple(
            UnknownEvent(writer, event_id, tuple(uuids)) for (writer, event_id), uuids in sorted(self._unknown.items())
        )

    def _connect(self, uuids: Sequence[str], events_max: int, result: SearchResult) -> None:
        """Find out which FlowFiles the unreadable events mention: the index still knows."""
        if len(uuids) == 1:
            for place in result.lost_ids:
                self._unknown[place][uuids[0]] = None
            return
        for uuid in uuids[: _LOST_ASKED_MAX - self._asked]:
            self._asked += 1
            for place in self._search([uuid], events_max).lost_ids:
                self._unknown[place][uuid] = None

    def revisions(self) -> Revisions:
        """Return the revisions of the catalogs that are searched, by writer."""
        return revisions_of(self._sources)

    def _search(self, uuids: Sequence[str], events_max: int) -> SearchResult:
        return self._find("flowfile_uuid", uuids, events_max)

    def _find(self, field: str, values: Sequence[str], events_max: int) -> SearchResult:
        terms = query.Or([query.Term(field, value.lower()) for value in values])
        page = Page(events_max)
        # Of an identifier that nearly all events have, few are read; to count them would ask every shard.
        return search(self._sources, self._shards, terms, self._attributes, page, self._pool, is_counted=False)


@contextmanager
def _searching(
    workspaces: Sequence[Workspace],
    shards: ShardCache,
    attributes: Sequence[str],
    notices: Notices,
    as_of: AsOf | None,
    kept: KeptLooks | None,
) -> Iterator[LineageSearch]:
    is_remote = any(workspace.settings.is_store_remote for workspace in workspaces)
    with opening_threads(is_remote=is_remote) as pool:
        # All of one moment; and journals that wait are decoded once, not for each generation.
        sources = open_sources(workspaces, attributes, notices, as_of, kept=kept)
        for source in sources:
            # An event joins two generations, and is met in both.
            source.remember()
        yield LineageSearch(sources, shards, attributes, pool)


def lineage_of(
    workspaces: Sequence[Workspace],
    shards: ShardCache,
    attributes: Sequence[str],
    uuids: Sequence[str],
    bounds: Bounds,
    begin: Sequence[tuple[str, Event]] = (),
    *,
    identifiers: Sequence[str] = (),
    is_joined: bool = False,
    as_of: AsOf | None = None,
    kept: KeptLooks | None = None,
) -> Lineage:
    """Return the lineage of FlowFiles within bounds, `begin` included; without an event when nobody mentions them.

    With `is_joined` it goes on across equal alternate identifiers.
    """
    notices = Notices(strict=False)
    with _searching(workspaces, shards, attributes, notices, as_of, kept) as found:
        identified = found.identified if is_joined else None
        lineage = trace(found.lookup, uuids, bounds, begin, identified, identifiers)
        told = (*found.notices, *notices)
        return replace(lineage, notices=told, unknown_events=found.unknown_events(), as_of=found.revisions())


def expand(
    workspaces: Sequence[Workspace],
    shards: ShardCache,
    attributes: Sequence[str],
    stored: tuple[str, Event],
    direction: Direction,
    bounds: Bounds,
    as_of: AsOf | None = None,
) -> Lineage:
    """Return an event with the FlowFiles that it came from, or with those that it made, and their events.

    Raises:
        InvalidInputError: the event is of a type that has neither.
    """
    uuids = require_expandable(stored[1], direction)
    bounds = expansion_bounds(stored[1], direction, bounds)
    return lineage_of(workspaces, shards, attributes, uuids, bounds, [stored], as_of=as_of)
