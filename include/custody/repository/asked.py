"""The calls of a repository that answer: events by id and time, SQL, searches, facets, lineage, the catalog's past."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from whoosh import query

from custody.catalog import AddShard, CatalogState, Transaction
from custody.errors import ConfigurationError, NotFoundError, StorageError
from custody.lineage import Lineage, trace
from custody.model import Event
from custody.query import (
    ALWAYS,
    Bounds,
    Scan,
    check_facets,
    facets_of,
    facets_of_table,
    parse_query,
    structured_query,
    time_bounds,
)
from custody.repository import reading
from custody.repository.burial import buried_ids
from custody.repository.found import Events, EventStream, Lost, Notices
from custody.repository.grounds import NAME_IT, Grounds
from custody.repository.matches import Source
from custody.repository.past import AsOf, past
from custody.repository.searching import Page, SearchResult, search
from custody.rollover import Workspace

if TYPE_CHECKING:
    from custody.repository.sql import SqlResult

_OPENING_THREADS = 8


class Asked(Grounds):
    """A repository as those who ask it see it."""

    def get(self, event_id: int, writer: str | None = None) -> Event:
        """Return one event, acknowledged or live; an id that several writers have given needs the writer's name.

        Raises:
            NotFoundError: no event has this id.
            ConfigurationError: several writers have an event with this id and none is named.
            CorruptionError: what holds the event is damaged.
            StorageError: a container is missing, and the event may lie there.
        """
        asked = self._writers() if writer is None else [writer]
        found = {name: self.get_many([event_id], name, strict=True) for name in asked}
        matching = [(name, events[0]) for name, events in found.items() if events]
        if not matching:
            for notice in (item for events in found.values() for item in events.absent if item.may_hold(event_id)):
                raise StorageError(
                    f"event {event_id}: is in nothing that is there, and may be in what is not. {notice}"
                )
            names = ", ".join(map(repr, found))
            unread = [f" Not all could be read: {text}" for events in found.values() for text in events.notices][:1]
            raise NotFoundError(
                f"{'writer' if len(found) == 1 else 'none of the writers'} {names} has no event {event_id}."
                + "".join(unread)
            )
        if len(matching) > 1:
            names = ", ".join(repr(name) for name, _ in matching)
            raise ConfigurationError(f"event {event_id}: each of the writers {names} has one. {NAME_IT}")
        return matching[0][1]

    def get_many(self, event_ids: Sequence[int], writer: str | None = None, *, strict: bool = False) -> Events:
        """Return the events with these ids, in id order; ids that do not exist are left out.

        Raises:
            ConfigurationError: several writers have events and none is named.
            CorruptionError: only if `strict`: an event is in a part of a file that is damaged. Otherwise it is left
                out, and the notices name the part.
        """
        notices = Notices(strict=strict)
        found = reading.get_many(self.workspace(self._one_writer(writer)), event_ids, on_damage=notices)
        return Events(found, notices)

    def events(
        self, first_event_id: int = 0, count: int = 1000, writer: str | None = None, *, strict: bool = False
    ) -> EventStream:
        """Yield up to `count` events from an id on, in id order; notices and `strict` as in `get_many`."""
        notices = Notices(strict=strict)
        return EventStream(
            reading.tables(self.workspace(self._one_writer(writer)), first_event_id, count, notices), notices
        )

    def events_between(
        self, start_ms: int, end_ms: int, writer: str | None = None, *, strict: bool = False
    ) -> EventStream:
        """Yield the events that happened from `start_ms` up to, not with, `end_ms`, in id order.

        Times in ms since the epoch; notices and `strict` as in `get_many`.
        """
        notices = Notices(strict=strict)
        return EventStream(
            reading.tables_between(self.workspace(self._one_writer(writer)), start_ms, end_ms, notices), notices
        )

    def sql(self, text: str, *, seconds_max: float | None = None, skip_damaged: bool = False) -> SqlResult:
        """Ask all events of all writers in SQL, also those acknowledged a moment ago; docs/sql.md has the tables.

        Raises:
            InvalidInputError: the query cannot be read, or asks for what is not allowed.
            CorruptionError: what the query has to read is damaged; `skip_damaged` leaves it out instead.
        """
        from custody.repository.sql import SqlResult
        from custody.repository.sql_sources import SqlSources

        sources = partial(SqlSources, self.workspaces(), skip_damaged=skip_damaged)
        return SqlResult(self.settings, sources, text, seconds_max)

    def search(
        self,
        text: str | dict[str, object] = "",
        *,
        limit: int | None = None,
        offset: int = 0,
        oldest_first: bool = False,
        cursor: str | None = None,
        writer: str | None = None,
        as_of: AsOf | None = None,
    ) -> SearchResult:
        """Return the events of a writer, or of all, that match, newest first; also those acknowledged a moment ago.

        The query is a text or, for programs, its structured form (docs/query.md). `cursor` is that of the page before;
        an `offset` passes over events from there, or from the first one. What cannot be read is passed over as well
        and named in the notices; `lost` says how many events of the total that were, on the way to this page.
        With `as_of`, a time or a writer's revision, the events are those that were live then.

        Raises:
            InvalidInputError: the query or the cursor cannot be read.
            ConfigurationError: a revision is given, several writers have events and none is named.
            NotFoundError, PrunedError: there is no such revision, or it is not kept any more.
        """
        limit = self.settings.query.results_default if limit is None else limit
        return self._search(self._question(text), Page(limit, offset, oldest_first, cursor), writer, as_of)

    def facets(
        self,
        text: str | dict[str, object] = "",
        fields: Sequence[str] = ("event_type",),
        *,
        writer: str | None = None,
        as_of: AsOf | None = None,
    ) -> tuple[dict[str, Counter[str]], tuple[str, ...]]:
        """Return how many of the events that match have each value of some fields, and notices.

        Fields are those with one value an event, and `day`, the day of the event time, UTC. Events that cannot be read
        are not counted: the notices name what holds them. `writer` and `as_of`, and what is raised for them, as in
        `search`.

        Raises:
            InvalidInputError: the query cannot be read, or a field has no facets.
        """
        attributes = self.settings.index.attributes
        check_facets(fields, attributes, self.settings.index.fields)
        question = self._question(text)
        counts: dict[str, Counter[str]] = {name: Counter() for name in fields}
        notices: list[str] = []
        damage = Notices(strict=False)
        for source in self._sources(damage, writer, as_of, time_bounds(question)):
            live = source.shards(self._shards)
            found, said = facets_of(live, source.log_tables, source.readable, question, fields, attributes)
            facets_of_table(found, source.tail, question, attributes)
            notices += said
            for name, values in found.items():
                counts[name].update(values)
        return counts, (*notices, *damage)

    def lineage(self, uuids: Sequence[str]) -> Lineage:
        """Return all that led to some FlowFiles and all that came of them; what could not be read is in its notices.

        Raises:
            NotFoundError: no event mentions any of them.
        """

        damage = Notices(strict=False)
        said: dict[str, None] = {}
        with ThreadPoolExecutor(_OPENING_THREADS) as pool:
            # All of one moment; and journals that wait are decoded once, not for each generation.
            sources = list(self._sources(damage))

            def lookup(wanted: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
                terms = query.Or([query.Term("flowfile_uuid", uuid.lower()) for uuid in wanted])
                page, attributes = Page(events_max), self.settings.index.attributes
                found = search(sources, self._shards, terms, attributes, page, pool)
                said.update(dict.fromkeys(found.notices))
                return [(stored.writer, stored.event) for stored in found.events]

            lineage = trace(lookup, uuids, self.settings.query.lineage_events_max)
        notices = (*said, *damage)
        if lineage.events == 0:
            unread = f" Not all could be read: {notices[0]}" if notices else ""
            raise NotFoundError(f"no event mentions the FlowFile {', '.join(uuids)}.{unread}")
        return replace(lineage, notices=notices)

    def timeline(self, writer: str | None = None) -> Iterator[Transaction]:
        """Yield the transactions of a writer's catalog, oldest first.

        Raises:
            ConfigurationError: several writers have events and none is named.
        """
        return self.workspace(self._one_writer(writer)).catalog.timeline()

    def _question(self, text: str | dict[str, object]) -> query.Query:
        index, now_ms = self.settings.index, self._clock.now_ms()
        if isinstance(text, str):
            return parse_query(text, index.attributes, now_ms, index.fields)
        return structured_query(text, index.attributes, now_ms, index.fields)

    def _search(
        self, question: query.Query, page: Page, writer: str | None = None, as_of: AsOf | None = None
    ) -> SearchResult:
        damage = Notices(strict=False)
        with ThreadPoolExecutor(_OPENING_THREADS) as pool:  # starts threads only when shards have to be opened
            sources = self._sources(damage, writer, as_of, time_bounds(question))
            found = search(sources, self._shards, question, self.settings.index.attributes, page, pool)
        return replace(found, notices=(*found.notices, *damage))

    def _sources(
        self, damage: Notices, writer: str | None = None, as_of: AsOf | None = None, times: Bounds = ALWAYS
    ) -> Iterator[Source]:
        """Yield the writers' events; logs with events of these times, ms, that are gone are named."""
        if isinstance(as_of, int):
            writer = self._one_writer(writer)
        for workspace in self.workspaces() if writer is None else [self.workspace(writer)]:
            view = reading.snapshot(workspace, damage) if as_of is None else past(workspace, as_of, damage)
            if view is None:
                continue
            tail = view.shown_tail
            lost = Lost(damage)
            reading.name_absent(workspace, view.state, times, damage)
            yield Source(
                writer=workspace.writer,
                state=view.state,
                buried=buried_ids(workspace, view.state, damage),
                tail=tail,
                tail_scan=Scan(tail, self.settings.index.attributes),
                next_event_id=view.next_event_id,
                shard_path=workspace.shard_path,
                log_tables=partial(_log_tables, workspace, view.state, damage),
                get_many=partial(reading.get_many, workspace, view=view, on_damage=lost),
                readable=partial(reading.readable, workspace, view=view, on_damage=lost),
                lost=lost.among,
                count_blocks=partial(reading.count_blocks, workspace, view=view),
            )


def _log_tables(workspace: Workspace, state: CatalogState, damage: Notices, shard: AddShard) -> Iterator[pa.Table]:
    """Yield the events of a shard's logs, a few blocks at a time."""
    return reading.log_tables(workspace, state, shard.log_paths, damage)
