"""The repository: the one place where the rooms are wired together, and custody's Python API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa
from whoosh import query

from custody.catalog import AddShard, CatalogState, Transaction
from custody.config import SETTINGS_FILE, default_settings_file, load_settings
from custody.errors import ConfigurationError, NotFoundError
from custody.flow import Component, Session
from custody.flow.content import Content, content_of, find_content
from custody.lineage import Lineage, trace
from custody.model import Acknowledged, ContentClaim, Event, require_valid, require_valid_columns
from custody.query import check_facets, facets_of, facets_of_table, parse_query, structured_query
from custody.repository import reading
from custody.repository.burial import buried_ids
from custody.repository.contents import ListedClaim, listed
from custody.repository.found import Events, EventStream, Notices
from custody.repository.grounds import NAME_IT
from custody.repository.ingest import Ingest
from custody.repository.maintained import Maintained
from custody.repository.past import AsOf, past
from custody.repository.searching import Page, SearchResult, Source, search
from custody.repository.slots import SlotWriter, take_slot
from custody.rollover import Workspace
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from custody.repository.sql import SqlResult

_OPENING_THREADS = 8


class Repository(Maintained):
    """A repository in a folder.

    >>> repository = Repository.open("demo")                       # doctest: +SKIP
    >>> repository.search("event_type:SEND AND filename:orders*")  # doctest: +SKIP
    """

    @classmethod
    def open(cls, root: str | Path) -> Self:
        """Open the repository in a folder.

        Raises:
            NotFoundError: there is none.
            ConfigurationError: its settings are not valid.
        """
        return cls(load_settings(Path(root)))

    @classmethod
    def create(cls, root: str | Path) -> Self:
        """Make a repository with default settings in a folder, and open it.

        Raises:
            ConfigurationError: the folder holds one already, or files that are not custody's.
        """
        root = Path(root).expanduser().resolve()
        fs = PosixFileSystem()
        if fs.exists(root / SETTINGS_FILE):
            raise ConfigurationError(f"{root} holds a repository already.")
        if fs.list(root):
            raise ConfigurationError(f"{root} is not empty. Name a new or an empty folder.")
        fs.make_directory(root)
        fs.write_durably(root / SETTINGS_FILE, default_settings_file().encode())
        return cls.open(root)

    @contextmanager
    def writer(self, *, wait_seconds: float | None = None) -> Iterator[SlotWriter]:
        """Hold the first free writer slot and append events; the journal is sealed at the end.

        Waits for a slot for `wait_seconds`, or as long as the setting `repository.writer_wait_seconds` says.

        Raises:
            LockedError: live processes hold all slots.
        """
        with take_slot(self._fs, self.settings, self._clock, wait_seconds) as writer:
            writer.begin(self.workspace(writer.name).catalog.load().next_event_id)
            yield writer

    @contextmanager
    def ingest(self, *, wait_seconds: float | None = None) -> Iterator[Ingest]:
        """Hold the first free writer slot and ingest files; raises as `writer` does."""
        with self.writer(wait_seconds=wait_seconds) as writer:
            yield Ingest(self.workspace(writer.name), writer, self.workspaces, self.quarantine)

    def append(self, events: Iterable[Event], *, wait_seconds: float | None = None) -> Acknowledged:
        """Append events in one piece, and hold a writer slot for as long as that takes.

        Who appends again and again keeps a `writer` open instead. An event is not compared with those that are stored:
        that is what `ingest` does.

        Durability: as of `JournalWriter.append`: on return the events are acknowledged.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            LockedError: live processes hold all slots.
            BackpressureError: too much waits to be rolled over.
            StorageError: the disk refused; it is unknown which events survive.
        """
        chosen = list(events)
        require_valid(chosen)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append(chosen))

    def append_columns(self, events: pa.Table | pa.RecordBatch, *, wait_seconds: float | None = None) -> Acknowledged:
        """Append events that are columns, as `append` does; no event becomes a Python object.

        Columns are those of the event log but `event_id`; those that say nothing can be left out. Times are timestamps
        with a time zone, or whole numbers of milliseconds.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was stored.
            LockedError, BackpressureError, StorageError: as `append` does.
        """
        valid = require_valid_columns(events)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append_columns(valid))

    def append_with_content(
        self, events: Iterable[Event], content: bytes | Iterable[bytes], *, wait_seconds: float | None = None
    ) -> Acknowledged:
        """Store a content and append the events that speak of it, as `append` does; docs/content.md tells more.

        Durability: on return content and events are acknowledged; no event is stored without its content.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            LockedError, BackpressureError, StorageError: as `append` does.
        """
        chosen = list(events)
        require_valid(chosen)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append_with_content(chosen, content))

    def content(self, of: Event | ContentClaim, *, previous: bool = False) -> Content:
        """Return the content that an event or a claim speaks of; with `previous`, an event's before the event.

        Its bytes are read and checked when they are asked for: `chunks` for any size, `read` for what fits in memory.

        Raises:
            NotFoundError: there is no claim, or its content is elsewhere, expired or erased.
            CorruptionError: the file is there and does not hold the content as it was written.
        """
        if isinstance(of, ContentClaim):
            return find_content(self._fs, self.settings.store, of)
        return content_of(self._fs, self.settings.store, of, previous=previous)

    def contents(self, writer: str | None = None) -> Iterator[ListedClaim]:
        """Yield the files of the content repository, of one writer or of all."""
        for name in [found.writer for found in self.workspaces()] if writer is None else [writer]:
            yield from listed(self._fs, self.settings.store, name)

    @contextmanager
    def session(
        self, component: Component, writer: SlotWriter | None = None, *, wait_seconds: float | None = None
    ) -> Iterator[Session]:
        """Do a piece of work with FlowFiles: its events are stored together at the end of the block, or not at all.

        With a `writer` that the caller holds, any number of threads have sessions at once; without one, a slot is held
        for the block.

        Raises:
            LockedError: no writer is given and live processes hold all slots.
            BackpressureError, StorageError: the commit at the end of the block failed; see `Session.commit`.
        """
        if writer is None:
            with self.writer(wait_seconds=wait_seconds) as held, Session(component, held, self._clock) as session:
                yield session
        else:
            with Session(component, writer, self._clock) as session:
                yield session

    def get(self, event_id: int, writer: str | None = None) -> Event:
        """Return one event, acknowledged or live; an id that several writers have given needs the writer's name.

        Raises:
            NotFoundError: no event has this id.
            ConfigurationError: several writers have an event with this id and none is named.
            CorruptionError: what holds the event is damaged.
        """
        asked = self._writers() if writer is None else [writer]
        found = {name: self.get_many([event_id], name, strict=True) for name in asked}
        matching = [(name, events[0]) for name, events in found.items() if events]
        if not matching:
            names = ", ".join(map(repr, found))
            raise NotFoundError(
                f"{'writer' if len(found) == 1 else 'none of the writers'} {names} has no event {event_id}."
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
        # The engine and pyarrow's data sets take seconds to import, which no other use of custody should wait for.
        from custody.repository.sql import SqlResult
        from custody.repository.sql_sources import SqlSources

        return SqlResult(self.settings, SqlSources(self.workspaces(), skip_damaged=skip_damaged), text, seconds_max)

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

        The query is a text or, for programs, its structured form (docs/query.md). `cursor` is that of the page before.
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

        Fields are those with one value an event, and `day`, the day of the event time, UTC. `writer` and `as_of`, and
        what is raised for them, as in `search`.

        Raises:
            InvalidInputError: the query cannot be read, or a field has no facets.
        """
        attributes = self.settings.index.attributes
        check_facets(fields, attributes, self.settings.index.fields)
        question = self._question(text)
        counts: dict[str, Counter[str]] = {name: Counter() for name in fields}
        notices: list[str] = []
        damage = Notices(strict=False)
        for source in self._sources(damage, writer, as_of):
            found, said = facets_of(source.shards(self._shards), source.log_tables, question, fields, attributes)
            facets_of_table(found, source.tail, question, attributes)
            notices += said
            for name, values in found.items():
                counts[name].update(values)
        return counts, (*notices, *damage)

    def lineage(self, uuids: Sequence[str]) -> Lineage:
        """Return all that led to some FlowFiles and all that came of them.

        Raises:
            NotFoundError: no event mentions any of them.
        """

        def lookup(wanted: Sequence[str], events_max: int) -> list[tuple[str, Event]]:
            terms = [query.Term("flowfile_uuid", uuid.lower()) for uuid in wanted]
            return [(stored.writer, stored.event) for stored in self._search(query.Or(terms), Page(events_max)).events]

        lineage = trace(lookup, uuids, self.settings.query.lineage_events_max)
        if lineage.events == 0:
            raise NotFoundError(f"no event mentions the FlowFile {', '.join(uuids)}.")
        return lineage

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
            sources = self._sources(damage, writer, as_of)
            found = search(sources, self._shards, question, self.settings.index.attributes, page, pool)
        return replace(found, notices=(*found.notices, *damage))

    def _sources(self, damage: Notices, writer: str | None, as_of: AsOf | None) -> Iterator[Source]:
        if isinstance(as_of, int):
            writer = self._one_writer(writer)
        for workspace in self.workspaces() if writer is None else [self.workspace(writer)]:
            view = reading.snapshot(workspace, damage) if as_of is None else past(workspace, as_of, damage)
            if view is None:
                continue
            yield Source(
                writer=workspace.writer,
                state=view.state,
                buried=buried_ids(workspace, view.state, damage),
                tail=view.shown_tail,
                next_event_id=view.next_event_id,
                shard_path=workspace.shard_path,
                log_tables=partial(_log_tables, workspace, view.state, damage),
                get_many=partial(reading.get_many, workspace, view=view, on_damage=damage),
                count_blocks=partial(reading.count_blocks, workspace, view=view),
            )


def _log_tables(workspace: Workspace, state: CatalogState, damage: Notices, shard: AddShard) -> Iterator[pa.Table]:
    """Yield the events of a shard's logs, a few blocks at a time."""
    return reading.log_tables(workspace, state, shard.log_paths, damage)
