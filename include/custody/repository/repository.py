"""The repository: custody's Python API, and the one place where the rooms are wired together.

A `Repository` holds what every call starts from: the settings, the disk, the open index shards and the files of each
writer. Its methods choose the writers that a call is about and hand over to the room that does the work.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from copy import copy
from dataclasses import replace
from functools import cached_property, partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import msgspec
import pyarrow as pa

from custody.catalog import AddShard, Transaction
from custody.clock import Clock, SystemClock
from custody.config import SETTINGS_FILE, Settings, default_settings_file, load_settings, root_of
from custody.errors import (
    ConfigurationError,
    CorruptionError,
    FormatVersionError,
    InvalidInputError,
    NotFoundError,
    StorageError,
)
from custody.format.names import COMPACT_LEASE
from custody.lease import Attempt
from custody.model import Acknowledged, ContentClaim, Event, require_valid, require_valid_columns
from custody.quarantine import Quarantine
from custody.repository.pluggable import OWN
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace import Workspace, leased, not_absorbed, rollover_lease, writer_names, writer_names_and_places
from custody.workspace.question import as_one_question, as_short_question, current_question

if TYPE_CHECKING:
    from whoosh import query

    from custody.flowfile_repository import FlowFileLook
    from custody.index import BuiltShard, ShardCache
    from custody.maintenance.attestations import KeptAttestation
    from custody.model.visibility import Visibility
    from custody.read.kept_looks import KeptLooks
    from custody.read.reader import Snapshot
    from custody.read.results import Counts, Events, EventStream, Notices
    from custody.read.search import Bucket, SearchResult
    from custody.read.time_travel import AsOf
    from custody.repository.flow import Flow

if TYPE_CHECKING:
    from custody.flow import Component, FlowFile, Session
    from custody.flow.content import Content
    from custody.ingest.ingest import Ingest, IngestPreview
    from custody.ingest.slots import SlotWriter
    from custody.lineage import Bounds, Diagram, Direction, Lineage, StartingPoint
    from custody.maintenance import CompactionReport, RewritePlan
    from custody.recovery import Leftover, RecoveryReport
    from custody.replay import ReplayCheck, ReplayPlan, ReplayReport, ReplaySources
    from custody.replay.replay_plan import FoundEvent
    from custody.repository.content_listing import CleanedContents, ListedClaim
    from custody.repository.erasing import ErasePlan
    from custody.repository.retention_api import RetentionResult
    from custody.repository.soft_delete import EventSelection, ForgetPlan, ForgetResult
    from custody.repository.status import RepositoryStatus
    from custody.retention import Erasure, Hold, RetentionPlan
    from custody.rollover.handing_over import HandedOver, WaitingForHandOver
    from custody.rollover.handing_over_contents import HandedContents, WaitingContents
    from custody.store.witness import EarlierState
    from custody.swh import ProvenanceDatabase
    from custody.workspace import StepReport

if TYPE_CHECKING:
    from custody.read.sql import SqlResult

_NAME_THE_WRITER = (
    "Each writer counts its own event ids: name the writer that is meant (--writer, or the argument writer)."
)
_REPLAY_PAGE = 500


class Searchable(NamedTuple):
    """Names of fields that can be searched."""

    attributes: tuple[str, ...]
    standard: tuple[str, ...]


class Repository:
    """A repository in a folder.

    >>> repository = Repository.open("demo")                       # doctest: +SKIP
    >>> repository.search("event_type:SEND AND filename:orders*")  # doctest: +SKIP
    """

    def __init__(self, settings: Settings, fs: FileSystem | None = None, clock: Clock | None = None) -> None:
        self.settings = settings
        self._fs: FileSystem = fs or PosixFileSystem()
        self._clock: Clock = clock or SystemClock()
        self._workspaces: dict[str, Workspace] = {}
        self._visibility: Visibility | None = None
        self._known: set[str] = set()
        """The writers that were ever listed; shared with what `seen_by` returns."""
        self._workspace_of_all: Callable[[str], Workspace] = self._new_workspace
        self.quarantine = Quarantine(self._fs, settings.quarantine, settings.repository.quarantine_bytes_max)

    @cached_property
    def _shards(self) -> ShardCache:
        # Shards stay open between searches, because opening one is expensive.
        from custody.index import ShardCache

        return ShardCache(self._fs, self.settings.query.open_shards_max)

    @cached_property
    def _looks(self) -> KeptLooks:
        # Imported here: most commands ask once.
        from custody.read.kept_looks import KeptLooks

        return KeptLooks()

    @classmethod
    def open(cls, root: str | Path) -> Self:
        """Open the repository in a folder.

        Raises:
            NotFoundError: there is none.
            ConfigurationError: its settings are not valid, or another implementation answers for it.
        """
        settings = load_settings(Path(root))
        # Its folder may hold anything: custody's own files would be made beside it.
        if settings.repository.implementation != OWN:
            raise ConfigurationError(
                f"{settings.root}: repository.implementation names {settings.repository.implementation!r}, and this "
                "works on custody's own files. Open it with custody.repository.open_repository, or by the commands "
                "event, events, search, lineage and run all --local."
            )
        return cls(settings)

    @classmethod
    def create(cls, root: str | Path) -> Self:
        """Make a repository with default settings in a folder, and open it.

        Raises:
            ConfigurationError: the folder holds one already, or files that are not custody's.
        """
        # Imported here: no command but this one needs it.
        from custody.vfs.abilities import require_abilities

        root = root_of(Path(root))
        fs = PosixFileSystem()
        if fs.exists(root / SETTINGS_FILE):
            raise ConfigurationError(f"{root} holds a repository already.")
        if fs.list(root):
            raise ConfigurationError(f"{root} is not empty. Name a new or an empty folder.")
        # Before anything is made: a file system without them would refuse the first events only.
        require_abilities(fs, next(folder for folder in (root, *root.parents) if fs.exists(folder)))
        fs.make_directory(root)
        fs.write_durably(root / SETTINGS_FILE, default_settings_file().encode())
        return cls.open(root)

    def seen_by(self, visibility: Visibility) -> Self:
        """Return the same repository for somebody who may see some events only, or not all values of attributes.

        What it answers is as if there were no others: totals, facets, lineage, SQL, earlier moments. It shares open
        files and caches with this one. It is for reading: steps, ids and writers know all events.
        """
        # Made here where nothing was searched yet, so that both share them.
        _ = self._shards
        other = copy(self)
        other._workspaces = {}
        # What was seen is of what somebody may see.
        other.__dict__.pop("_looks", None)
        # What is masked for everybody stays so for each.
        other._visibility = visibility if self._visibility is None else visibility.masking(self._visibility.masks)
        other._workspace_of_all = self.workspace
        return other

    def answering(self) -> Self:
        """Return the same repository as it answers: with the masks of query.mask_attributes; it is for reading, too."""
        masks = self.settings.query.mask_attributes
        if not masks:
            return self
        # Only here: most repositories have none.
        from custody.model.visibility import Visibility

        return self.seen_by(Visibility(None, (), masks))

    @property
    def searchable(self) -> Searchable:
        """The fields that can be searched and counted: those of the index without masked attributes."""
        index = self.settings.index
        if self._visibility is None:
            return Searchable(index.attributes, index.fields)
        hides = self._visibility.mask.hides
        return Searchable(
            tuple(name for name in index.attributes if not hides(name)),
            # The one standard field that is an attribute.
            tuple(name for name in index.fields if name != "filename" or not hides(name)),
        )

    def workspace(self, writer: str | None = None) -> Workspace:
        """Return one writer's files; the writer of the settings when none is named."""
        name = writer or self.settings.repository.writer
        # Kept, because it knows the catalog as it was read last.
        if name not in self._workspaces:
            self._workspaces[name] = self._workspace_of_all(name)
            if self._visibility is not None:
                self._workspaces[name] = self._workspaces[name].seen_by(self._visibility)
        return self._workspaces[name]

    def _new_workspace(self, name: str) -> Workspace:
        return Workspace(self.settings, name, self._fs, self._clock)

    def workspaces(self, *, with_containers: bool = False) -> list[Workspace]:
        """Return the files of every writer that has any.

        In a question to an object store, catalogs that are known are looked at side by side, and with `with_containers`
        the containers as well.
        """
        question = current_question(self.settings)

        def names() -> list[str]:
            return writer_names(self.settings, self._fs)

        # On a disk nothing waits: to look side by side would take longer.
        if not self.settings.is_store_remote:
            kept = self._looks.names(self._fs, lambda: writer_names_and_places(self.settings, self._fs))
            return [self.workspace(name) for name in self._with_those_away(kept)]
        if question is None:
            return [self.workspace(name) for name in self._with_those_away(names())]
        known = list(self._workspaces.values())
        listed = [self.workspace(name) for name in question.look_ahead(known, names, containers=with_containers)]
        # Those that were not known yet.
        question.look_ahead(listed, names, containers=with_containers)
        return listed

    def _with_those_away(self, names: Sequence[str]) -> list[str]:
        """Return the names of writers, and those that were listed before: their disks are away, or all of them."""
        if not self._known.issuperset(names):
            self._known.update(names)
        return list(names) if len(names) == len(self._known) else sorted(self._known)

    def earlier_states(self) -> list[EarlierState]:
        """Return the catalogs and claims of writers that are of an earlier moment than one that was seen, or away."""
        found = []
        for workspace in self.workspaces():
            # A catalog that is damaged has errors of its own.
            with suppress(CorruptionError, FormatVersionError):
                found.append(workspace.earlier_state())
        return [earlier for earlier in found if earlier is not None]

    @contextmanager
    def writer(self, *, wait_seconds: float | None = None) -> Iterator[SlotWriter]:
        """Hold the first free writer slot and append events; the journal is sealed at the end.

        Waits for a slot for `wait_seconds`, or as long as the setting `repository.writer_wait_seconds` says.

        Raises:
            LockedError: live processes hold all slots.
        """
        from custody.export.cursors import require_known
        from custody.ingest.slots import take_slot

        with take_slot(self._fs, self.settings, self._clock, wait_seconds, self.workspace) as writer:
            # All else may be of one earlier moment: whoever has delivered an event knows that its id was given out.
            require_known(self._fs, self.settings.exports_home, writer.name, writer.next_event_id)
            yield writer

    @contextmanager
    def ingest(self, writer: SlotWriter | None = None, *, wait_seconds: float | None = None) -> Iterator[Ingest]:
        """Ingest files with a `writer` that the caller holds, else with the first free slot; raises as `writer`."""
        from custody.ingest.ingest import Ingest

        with ExitStack() as stack:
            held = writer or stack.enter_context(self.writer(wait_seconds=wait_seconds))
            yield Ingest(self.workspace(held.name), held, self.workspaces, self.quarantine)

    def ingest_preview(self) -> IngestPreview:
        """Return what says of files what an ingest would do with them; no slot is held, and nothing is stored."""
        from custody.ingest.ingest import IngestPreview

        return IngestPreview(self.workspace(), self.workspaces, self.quarantine)

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
        from custody.flow import Session

        if writer is None:
            with self.writer(wait_seconds=wait_seconds) as held, Session(component, held, self._clock) as session:
                yield session
        else:
            with Session(component, writer, self._clock) as session:
                yield session

    @contextmanager
    def flowfiles(
        self, writer: SlotWriter | None = None, *, wait_seconds: float | None = None, is_ticking: bool = True
    ) -> Iterator[Flow]:
        """Work with FlowFiles that wait in queues: `flow.connect`, `with flow.session(component)`; see docs/flow.md.

        Any number of threads and processes do so at once; each process holds a writer slot, its own or `writer`. A
        thread writes snapshots and takes over what dead processes left, unless `is_ticking` is false.

        Raises:
            LockedError: no writer is given and live processes hold all slots.
            CorruptionError: the log of the FlowFile repository is damaged.
        """
        from custody.repository.flow import open_flow

        with ExitStack() as stack:
            held = writer or stack.enter_context(self.writer(wait_seconds=wait_seconds))
            yield stack.enter_context(
                open_flow(self.settings, self._fs, self._clock, held, self.workspaces, is_ticking=is_ticking)
            )

    def queues(self) -> FlowFileLook:
        """Look at the queues of FlowFiles, without a writer slot and without changing anything.

        Raises:
            CorruptionError: the log of the FlowFile repository is damaged.
        """
        from custody.flowfile_repository import FlowFileLook

        return FlowFileLook(self._fs, self.settings.flowfiles_home, self._clock.now_ms())

    def append(self, events: Iterable[Event], *, wait_seconds: float | None = None) -> Acknowledged:
        """Append events in one piece, and hold a writer slot for as long as that takes.

        To append repeatedly, keep a `writer` open instead. Events are not compared with those that are stored: `ingest`
        does that.

        Durability: as of `JournalWriter.append`: on return the events are acknowledged.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            LockedError: live processes hold all slots.
            BackpressureError: too much waits to be rolled over.
            StorageError: the disk refused; it is unknown which events survive.
        """
        # Into a list, because an iterator would be empty after the check.
        chosen = list(events)
        require_valid(chosen)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append(chosen))

    def append_columns(self, events: pa.Table | pa.RecordBatch, *, wait_seconds: float | None = None) -> Acknowledged:
        """Append events that are columns, as `append` does; no event becomes a Python object.

        Columns are those of the event log except `event_id`; those without values can be left out. Times are timestamps
        with a time zone, or whole numbers of milliseconds.

        Raises:
            InvalidInputError: a column or a value does not fit; nothing was stored.
            LockedError, BackpressureError, StorageError: as `append` does.
        """
        valid = require_valid_columns(events)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append_checked(valid))

    def append_with_content(
        self, events: Iterable[Event], content: bytes | Iterable[bytes], *, wait_seconds: float | None = None
    ) -> Acknowledged:
        """Store a content and append the events that refer to it, as `append` does; see docs/content.md.

        Durability: on return content and events are acknowledged; no event is stored without its content.

        Raises:
            InvalidInputError: an event breaks a rule; nothing was stored.
            LockedError, BackpressureError, StorageError: as `append` does.
        """
        chosen = list(events)
        require_valid(chosen)
        with self.writer(wait_seconds=wait_seconds) as writer:
            return Acknowledged(writer.name, writer.append_with_content(chosen, content))

    @as_short_question
    def get(self, event_id: int, writer: str | None = None, *, as_of: AsOf | None = None) -> Event:
        """Return one event, acknowledged or live; an id that several writers gave out needs the writer's name.

        With `as_of`, a time or a writer's revision, the event must have been live then.

        Raises:
            NotFoundError: no event has this id, or there is no such revision (any more).
            ConfigurationError: several writers have an event with this id and none is named.
            CorruptionError: what holds the event is damaged.
            StorageError: a container is missing, and the event may lie there.
        """
        return self._stored(event_id, writer, as_of)[1]

    def _stored(self, event_id: int, writer: str | None, as_of: AsOf | None = None) -> tuple[str, Event]:
        """Return one event and its writer; raises as `get`."""
        writers = (
            [item.writer for item in self._searched(writer, as_of)] if writer or as_of is not None else self._writers()
        )
        answers = {name: self.get_many([event_id], name, strict=True, as_of=as_of) for name in writers}
        matching = [(name, events[0]) for name, events in answers.items() if events]
        if not matching:
            for notice in (item for events in answers.values() for item in events.absent if item.may_hold(event_id)):
                raise StorageError(
                    f"event {event_id}: not found in what is there; it may be in what is missing. {notice}"
                )
            names = ", ".join(map(repr, answers))
            unread = [f" Not all could be read: {text}" for events in answers.values() for text in events.notices][:1]
            raise NotFoundError(
                f"{'writer' if len(answers) == 1 else 'none of the writers'} {names} has no event {event_id}"
                + ("." if as_of is None else f" that was live as of {as_of}.")
                + "".join(unread)
                + self._left_to_original(event_id, answers)
            )
        # Each writer counts ids of its own, and to take one of them would be a guess.
        if len(matching) > 1:
            names = ", ".join(repr(name) for name, _ in matching)
            raise ConfigurationError(f"event {event_id}: each of the writers {names} has one. {_NAME_THE_WRITER}")
        return matching[0]

    def _left_to_original(self, event_id: int, writers: Iterable[str]) -> str:
        """Return what a restore has to do with an id that nobody has here, empty where that is nothing."""
        from custody.journal import left_to_original

        return "".join(
            f" Its id is one of those that this repository, restored from {backup}, left to the original: "
            "the event may be there."
            for workspace in self.workspaces()
            if workspace.writer in writers
            for first, last, backup in left_to_original(workspace.incarnations.readable_claims())
            if first <= event_id <= last
        )

    @as_short_question
    def get_many(
        self,
        event_ids: Sequence[int],
        writer: str | None = None,
        *,
        strict: bool = False,
        as_of: AsOf | None = None,
    ) -> Events:
        """Return the events with these ids, in id order; ids that do not exist are left out.

        With `as_of`, a time or a writer's revision, only those that were live then.

        Raises:
            NotFoundError, PrunedError: there is no such revision, or it is not kept any more.
            ConfigurationError: several writers have events and none is named.
            CorruptionError: only if `strict`: an event is in a part of a file that is damaged. Otherwise it is left
                out, and the notices name the part.
        """
        from custody.read import reader
        from custody.read.results import Events, Notices

        notices = Notices(strict=strict)
        workspace = self.workspace(self._one_writer(writer))
        view = None if as_of is None else self._view_at(workspace, as_of, notices)
        return Events(reader.get_many(workspace, event_ids, view, notices), notices)

    def events(
        self,
        first_event_id: int = 0,
        count: int = 1000,
        writer: str | None = None,
        *,
        strict: bool = False,
        as_of: AsOf | None = None,
    ) -> EventStream:
        """Yield up to `count` events from an id on, in id order; notices, `strict` and `as_of` as in `get_many`.

        Raises:
            InvalidInputError: the id is negative.
        """
        if first_event_id < 0:
            raise InvalidInputError(f"first event id: expected 0 or more, got {first_event_id}.")
        from custody.read import reader
        from custody.read.results import EventStream, Notices

        notices = Notices(strict=strict)
        workspace = self.workspace(self._one_writer(writer))
        view = None if as_of is None else self._view_at(workspace, as_of, notices)
        return EventStream(reader.tables_from(workspace, first_event_id, count, notices, view), notices)

    def _view_at(self, workspace: Workspace, as_of: AsOf, notices: Notices) -> Snapshot:
        """Return a writer's events of an earlier moment, none when nothing was committed until then."""
        from custody.catalog.state import EMPTY
        from custody.read.reader import Snapshot
        from custody.read.time_travel import snapshot_at

        return snapshot_at(workspace, as_of, notices) or Snapshot(EMPTY)

    def events_between(
        self, start_ms: int, end_ms: int, writer: str | None = None, *, strict: bool = False
    ) -> EventStream:
        """Yield the events that happened from `start_ms` up to, not with, `end_ms`, in id order.

        Times in ms since the epoch; notices and `strict` as in `get_many`.
        """
        from custody.read import reader
        from custody.read.results import EventStream, Notices

        notices = Notices(strict=strict)
        workspace = self.workspace(self._one_writer(writer))
        return EventStream(reader.tables_between(workspace, start_ms, end_ms, notices), notices)

    def sql(
        self,
        text: str,
        *,
        seconds_max: float | None = None,
        skip_damaged: bool = False,
        writer: str | None = None,
        as_of: AsOf | None = None,
        software_revision: int | None = None,
    ) -> SqlResult:
        """Query all events of all writers in SQL, also those acknowledged a moment ago; docs/sql.md has the tables.

        With `writer` only what is this writer's. With `as_of`, a time or a writer's revision, the tables are those of
        that moment. The tables of software are those that are published, now or at a revision of their catalog.

        Raises:
            ConfigurationError: a revision is given, several writers have events and none is named.
            NotFoundError, PrunedError: there is no such revision, or it is not kept any more.
            InvalidInputError: the query cannot be read, or names what is not allowed.
            CorruptionError: what the query has to read is damaged; `skip_damaged` leaves it out instead.
        """
        # Not at the top: nothing else needs what SQL imports.
        from custody.read.sql import SoftwareSource, SqlResult, SqlSources

        software = SoftwareSource(self.settings, self._fs, self._clock, software_revision)
        sources = partial(SqlSources, self._searched(writer, as_of), software, skip_damaged=skip_damaged, as_of=as_of)
        return SqlResult(self.settings, sources, text, seconds_max)

    @as_one_question
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
        from custody.query import time_bounds
        from custody.read.results import Notices
        from custody.read.search import Page, open_sources, opening_threads, search

        limit = self.settings.query.results_default if limit is None else limit
        question, page = self._question(text), Page(limit, offset, oldest_first, cursor)
        attributes, notices = self.searchable.attributes, Notices(strict=False)
        threads = self.settings.query.search_threads
        with opening_threads(threads, is_remote=self.settings.is_store_remote) as pool:
            workspaces = self._searched(writer, as_of)
            sources = open_sources(workspaces, attributes, notices, as_of, time_bounds(question), self._looks)
            result = search(sources, self._shards, question, attributes, page, pool, is_parallel=threads > 1)
        return replace(result, notices=(*result.notices, *notices))

    @as_one_question
    def facets(
        self,
        text: str | dict[str, object] = "",
        fields: Sequence[str] = ("event_type",),
        *,
        writer: str | None = None,
        as_of: AsOf | None = None,
        zone: str | None = None,
    ) -> tuple[dict[str, Counter[str]], tuple[str, ...]]:
        """Return how many of the events that match have each value of some fields, and notices.

        Fields are those with one value an event, and `day`, the day of the event time, UTC or in a `zone` such as
        `Asia/Kolkata`. Events that cannot be read are not counted: the notices name what holds them. `writer` and
        `as_of`, and what is raised for them, as in `search`.

        Raises:
            InvalidInputError: the query cannot be read, a field has no facets, or the zone is not known here.
        """
        from custody.index import Days
        from custody.query import check_facets, time_bounds
        from custody.read.results import Notices
        from custody.read.search import count_facets, open_sources

        attributes, standard = self.searchable
        check_facets(fields, attributes, standard)
        question, days = self._question(text), Days(zone)
        notices = Notices(strict=False)
        workspaces = self._searched(writer, as_of)
        sources = open_sources(workspaces, attributes, notices, as_of, time_bounds(question), self._looks)
        counts, index_notices = count_facets(sources, self._shards, question, attributes, fields, days)
        return counts, (*index_notices, *notices)

    @as_one_question
    def histogram(
        self,
        text: str | dict[str, object],
        first_ms: int,
        last_ms: int,
        buckets: int = 60,
        *,
        writer: str | None = None,
        as_of: AsOf | None = None,
    ) -> tuple[list[Bucket], tuple[str, ...]]:
        """Return how many of the events that match happened in each of some spans of time, oldest first, and notices.

        Spans have the same length, the last one at most that; times are ms since the epoch, both included. Counts are
        exact, as totals of searches are. `writer` and `as_of`, and what is raised for them, as in `search`.

        Raises:
            InvalidInputError: the query cannot be read, the times are the wrong way round or beyond what can be
                searched, or `buckets` is not 1 to 1000.
        """
        from custody.read.results import Notices
        from custody.read.search import HISTOGRAM_MAX, TIME_MAX, count_buckets, open_sources

        if not -TIME_MAX <= first_ms <= last_ms <= TIME_MAX:
            raise InvalidInputError(f"histogram: expected a time span, got {first_ms} to {last_ms} ms.")
        if not 1 <= buckets <= HISTOGRAM_MAX:
            raise InvalidInputError(f"buckets: expected 1 to {HISTOGRAM_MAX}, got {buckets}.")
        attributes, notices = self.searchable.attributes, Notices(strict=False)
        bounds = first_ms, last_ms
        sources = open_sources(self._searched(writer, as_of), attributes, notices, as_of, bounds, self._looks)
        counted, said = count_buckets(sources, self._shards, self._question(text), attributes, bounds, buckets)
        return counted, (*said, *notices)

    @as_one_question
    def lineage(
        self,
        uuids: Sequence[str] = (),
        bounds: Bounds | None = None,
        *,
        identifiers: Sequence[str] = (),
        writer: str | None = None,
        as_of: AsOf | None = None,
    ) -> Lineage:
        """Return all that led to some FlowFiles and all that came of them; what could not be read is in its notices.

        It begins with FlowFiles by uuid, and with those that have one of some alternate identifiers, and goes on across
        equal alternate identifiers (docs/lineage.md). With `bounds` no more than these allow; each FlowFile with more
        behind them says so. With `as_of`, a time or a revision of `writer`, from the events that were live then.

        Raises:
            NotFoundError: no event mentions any of them.
            InvalidInputError: an identifier is given, and index.fields leaves alternate identifiers out.
        """
        named = {uuid: (uuid,) for uuid in uuids}
        return self._lineage_from(named, identifiers, bounds, writer=writer, as_of=as_of)

    @as_one_question
    def lineage_from(
        self,
        points: Sequence[StartingPoint],
        bounds: Bounds | None = None,
        *,
        event_writer: str | None = None,
        writer: str | None = None,
        as_of: AsOf | None = None,
    ) -> Lineage:
        """Return the lineage of what some names mean: FlowFiles, events, runs, datasets, alternate identifiers.

        Its `starts` are the FlowFiles that they mean; a name that nothing is known of has a notice.

        Args:
            points: where it begins.
            bounds: as `lineage`.
            event_writer: whose events are meant where one is named by its id alone.
            writer: only of this writer's events.
            as_of: as `lineage`.

        Raises:
            NotFoundError: nothing is known of any of them, or there is no such event.
            InvalidInputError: there are none, or one is not well formed; as `lineage`.
        """
        from custody.airflow_runs.run_events import asset_uuid
        from custody.lineage import beginning
        from custody.repository.lineage_api import ALTERNATE_IDENTIFIER_FIELD

        begins = beginning(
            points,
            partial(self.get, as_of=as_of),
            asset_uuid,
            event_writer or writer,
            is_joined=ALTERNATE_IDENTIFIER_FIELD in self.settings.index.fields,
        )
        return self._lineage_from(begins.names, begins.identifiers, bounds, writer=writer, as_of=as_of)

    def _lineage_from(
        self,
        names: Mapping[str, tuple[str, ...]],
        identifiers: Sequence[str],
        bounds: Bounds | None,
        *,
        writer: str | None,
        as_of: AsOf | None,
    ) -> Lineage:
        from custody.lineage import Beginning
        from custody.repository.lineage_api import ALTERNATE_IDENTIFIER_FIELD, lineage_of

        begins = Beginning(dict(names), tuple(identifiers))
        chosen, index = self._bounds(bounds), self.settings.index
        is_joined = ALTERNATE_IDENTIFIER_FIELD in index.fields
        if identifiers and not is_joined:
            raise InvalidInputError(
                f"{', '.join(identifiers)}: alternate identifiers are not indexed. Add "
                f"{ALTERNATE_IDENTIFIER_FIELD!r} to index.fields, or name a FlowFile by its uuid."
            )
        lineage = lineage_of(
            self._searched(writer, as_of),
            self._shards,
            self.searchable.attributes,
            begins.uuids,
            chosen,
            identifiers=identifiers,
            is_joined=is_joined,
            as_of=as_of,
            kept=self._looks,
        )
        # Events that are there and lie outside of the times are no missing FlowFile.
        if lineage.events == 0 and lineage.is_complete:
            unread = f" Not all could be read: {lineage.notices[0]}" if lineage.notices else ""
            asked = ", ".join(dict.fromkeys((*names, *identifiers)))
            raise NotFoundError(f"no event mentions the FlowFile {asked}.{unread}")
        unknown = begins.missing(lineage.starts, lineage.identifiers)
        if not unknown:
            return lineage
        said = (f"no event of this lineage mentions {name}." for name in unknown)
        return replace(lineage, notices=(*lineage.notices, *said))

    @as_one_question
    def expand(
        self,
        event_id: int,
        direction: Direction | str,
        writer: str | None = None,
        bounds: Bounds | None = None,
        *,
        as_of: AsOf | None = None,
    ) -> Lineage:
        """Return an event with the FlowFiles that it came from ("parents"), or that it made ("children").

        One step, with the events of these FlowFiles before the event or after it; a depth in `bounds` makes it more.

        Raises:
            InvalidInputError: only CLONE, FORK, JOIN and REPLAY can be expanded; or the direction is neither.
            NotFoundError, ConfigurationError, CorruptionError, StorageError: as `get`.
        """
        from custody.lineage import Direction
        from custody.repository.lineage_api import expand

        if direction not in list(Direction):
            raise InvalidInputError(f"direction: expected one of {', '.join(Direction)}, got {direction!r}.")
        stored = self._stored(event_id, writer, as_of)
        attributes = self.searchable.attributes
        # A revision counts for one writer; without one, an event's relatives may be events of any.
        workspaces = self._searched(writer, as_of) if isinstance(as_of, int) else self._searched(None, as_of)
        chosen = self._bounds(bounds)
        return expand(workspaces, self._shards, attributes, stored, Direction(direction), chosen, as_of)

    def diagram(self, lineage: Lineage) -> Diagram:
        """Return a lineage as nodes and edges, each event with its reference and whether its contents can be had.

        `custody.lineage.export` writes it as JSON, DOT, SVG, GraphML or OpenLineage.
        """
        from custody.flow.content import ContentReader
        from custody.lineage import Diagram

        return Diagram.of(lineage, ContentReader(self._fs, self.settings.content_store))

    def _bounds(self, bounds: Bounds | None) -> Bounds:
        from custody.lineage import Bounds

        return bounds or Bounds(self.settings.query.lineage_events_max)

    def timeline(self, writer: str | None = None) -> Iterator[Transaction]:
        """Yield the transactions of a writer's catalog, oldest first.

        Raises:
            ConfigurationError: several writers have events and none is named.
        """
        return self.workspace(self._one_writer(writer)).catalog.timeline()

    def content(self, of: Event | ContentClaim, *, previous: bool = False) -> Content:
        """Return the content of an event or of a claim; with `previous`, the content before the event.

        Its bytes are read and checked on demand: `chunks` for any size, `read` for what fits in memory.

        Raises:
            NotFoundError: there is no claim, or its content is elsewhere, expired or erased.
            CorruptionError: the file is there and does not hold the content as it was written.
        """
        from custody.flow.content import content_of, find_content

        if isinstance(of, ContentClaim):
            return find_content(self._fs, self.settings.content_store, of)
        return content_of(self._fs, self.settings.content_store, of, previous=previous)

    def software(self, revision: int | None = None) -> ProvenanceDatabase:
        """Return the provenance tables of software that are published, now or at a revision of their catalog.

        Where a content of an event lies in software: `software().occurrences(content_swhid(content(event)))`.

        Raises:
            NotFoundError: nothing was published by then.
        """
        from custody.swh import ProvenanceDatabase
        from custody.swh.publishing import database_catalog, published_state

        catalog = database_catalog(self.settings, self._fs, self._clock)
        return ProvenanceDatabase.open(self._fs, catalog.objects.files, published_state(catalog, revision))

    def contents(self, writer: str | None = None) -> Iterator[ListedClaim]:
        """Yield the files of the content repository, of one writer or of all."""
        from custody.repository.content_listing import list_claims

        for name in [item.writer for item in self.workspaces()] if writer is None else [writer]:
            yield from list_claims(self._fs, self.settings.content_store, name)

    def plan_replay(
        self,
        text: str | dict[str, object] = "",
        *,
        event_ids: Sequence[int] = (),
        writer: str | None = None,
        as_of: AsOf | None = None,
        on_progress: Callable[[int], None] = lambda _done: None,
        visibility: Visibility | None = None,
    ) -> ReplayPlan:
        """Return the plan for sending the FlowFiles of some events again; nothing is changed.

        The events are those that a query finds, as `search` of `answering()` does, oldest first; or those with some
        ids. Each is looked at as it is today, also with `as_of`: what was forgotten since is not sent again.
        `on_progress` is called for each with the number of events so far; what it raises ends the planning. For
        somebody with a `visibility` the plan is made as if there were no events but those that it shows.

        Raises:
            NotFoundError: no FlowFile was ever queued here, or there is no such revision.
            InvalidInputError: the query cannot be read.
            ConfigurationError: several writers have events, and an id or a revision is given without a writer.
        """
        from custody.model.masking import AttributeMask
        from custody.read.time_travel import as_of_text
        from custody.replay import ReplayJudge, make_plan
        from custody.repository.flow import existing_queues

        notices: dict[str, None] = {}
        revisions = {item.writer: item.catalog.load().revision for item in self.workspaces()}
        asked = self.answering() if visibility is None else self.answering().seen_by(visibility)
        sources = self._replay_sources(visibility)
        if event_ids:
            found = self._numbered(event_ids, writer, sources)
        else:
            found = self._found(asked, text, writer, as_of, notices, sources)
        with existing_queues(self.settings, self._fs, self._clock) as queues:
            judge = ReplayJudge({one.name for one in queues.connections()}, sources.finder())
            plan = make_plan(
                _counted(found, on_progress),
                judge,
                repository=queues.id,
                revisions=revisions,
                now_ms=self._clock.now_ms(),
                mask=AttributeMask() if asked._visibility is None else asked._visibility.mask,
            )
        return msgspec.structs.replace(
            plan,
            query=text if isinstance(text, str) else msgspec.json.encode(text).decode(),
            as_of=None if as_of is None else as_of_text(as_of),
            notices=list(notices),
            visibility=None if visibility is None else visibility.key,
        )

    def check_replay(self, plan: ReplayPlan | Path, *, visibility: Visibility | None = None) -> ReplayCheck:
        """Return what is left of a replay plan, and which of its events cannot be replayed any more.

        To somebody with a `visibility` an event that it does not show is one that was forgotten.

        Raises:
            InvalidInputError: the plan is of another repository, or too old.
            CorruptionError: the plan's file is damaged.
        """
        from custody.replay import check_plan
        from custody.repository.flow import existing_queues

        opened = self._opened_plan(plan)
        with existing_queues(self.settings, self._fs, self._clock) as queues:
            return check_plan(queues, opened, self._replay_sources(visibility), self._clock.now_ms())

    def replay(
        self,
        plan: ReplayPlan | Path,
        *,
        user: str | None = None,
        skip_changed: bool = False,
        on_progress: Callable[[int, int], None] = lambda _done, _total: None,
        writer: SlotWriter | None = None,
        wait_seconds: float | None = None,
        visibility: Visibility | None = None,
    ) -> ReplayReport:
        """Send the FlowFiles of a plan again, each once; a run that was broken off goes on where it stopped.

        Each enters the queue that it came from under a uuid of its own, and a REPLAY event links the two. A full queue
        stops the run: the report says so, and the plan can be run again. For somebody with a `visibility` nothing is
        sent of an event that it does not show; what is sent has all its values.

        Durability: on return what the report names survives power loss.

        Raises:
            InvalidInputError: the plan is of another repository, or too old.
            ConflictError: what the plan rests on has changed (see `skip_changed`), or another process runs it.
            CorruptionError: the plan's file is damaged.
            LockedError: no writer is given and live processes hold all slots.
        """
        from custody.replay import login_name, run_plan

        opened = self._opened_plan(plan)
        if isinstance(plan, Path):
            # Whoever saved it may have died before its name was durable. A power loss would take the plan and leave
            # what it sent; another plan for the same events would send them again.
            self._fs.sync_file(plan)
            self._fs.sync_directory(plan.parent)
        with self.flowfiles(writer, wait_seconds=wait_seconds) as flow:
            return run_plan(
                flow.queues,
                opened,
                self._replay_sources(visibility),
                self._clock,
                user=user or login_name(),
                skip_changed=skip_changed,
                on_progress=on_progress,
            )

    def replay_event(
        self,
        event_id: int,
        writer: str | None = None,
        *,
        user: str | None = None,
        wait_seconds: float | None = None,
    ) -> FlowFile:
        """Send the FlowFile of one event again, each time anew; return the one that entered the queue.

        Durability: on return FlowFile and REPLAY event survive power loss.

        Raises:
            NotFoundError, InvalidInputError: the event cannot be replayed; the message has the code and the reason.
            BackpressureError: the queue is full.
            ConfigurationError: several writers have events and none is named.
            LockedError: live processes hold all slots.
        """
        from custody.replay import Refusal, RefusalCode, login_name, replay_one

        name = self._one_writer(writer)
        events = self.get_many([event_id], name)
        if not events:
            detail = next(iter(events.notices), "it was never stored here, or is forgotten")
            raise Refusal(name, event_id, RefusalCode.UNKNOWN_EVENT, detail).error()
        with self.flowfiles(wait_seconds=wait_seconds) as flow:
            return replay_one(
                flow.queues, name, events[0], self._replay_sources(None).finder, self._clock, user or login_name()
            )

    def status(self) -> RepositoryStatus:
        """Return the status of everything, read from disk."""
        from custody.repository.status import repository_status

        return repository_status(self.settings, self._fs, self.workspaces(), self.quarantine, self._clock)

    def forget(
        self,
        selection: EventSelection,
        reason: str,
        writer: str | None = None,
        *,
        who: str = "",
        before: Mapping[str, int] | None = None,
    ) -> list[ForgetResult]:
        """Hide events of a writer, or of all of them, from every answer; later events are not affected.

        With `before` of a plan exactly what it counted is hidden, of the writers that it names.

        Durability: on return the events of the writers named in the result stay forgotten after a power loss.

        Raises:
            InvalidInputError: no condition is given.
        """
        from custody.repository import soft_delete

        chosen = [item for item in self._chosen(writer) if before is None or before.get(item.writer)]
        ends = before or {}
        return [soft_delete.forget(item, selection, reason, who, ends.get(item.writer)) for item in chosen]

    def plan_forget(self, selection: EventSelection, writer: str | None = None) -> ForgetPlan:
        """Return how many events `forget` would hide, and how many of them are held; all events are read for it.

        Raises:
            InvalidInputError: no condition is given.
        """
        from custody.read.results import Notices
        from custody.repository import soft_delete

        return soft_delete.plan_forget(self._chosen(writer), selection, Notices(strict=False))

    def plan_erase(self, selection: EventSelection, writer: str | None = None) -> ErasePlan:
        """Return what `erase` would hide and remove now; all events are read for it, and files beside them.

        Raises:
            InvalidInputError: no condition is given.
        """
        from custody.repository import erasing

        return erasing.plan_erase(self.settings, self._fs, self._clock, self.plan_forget(selection, writer), selection)

    def erase(
        self,
        selection: EventSelection,
        reason: str,
        writer: str | None = None,
        *,
        who: str = "",
        before: Mapping[str, int] | None = None,
    ) -> Erasure:
        """Hide events as `forget` does, and begin to erase them to the last copy; return the request.

        It is written before anything else, and `continue_erasure`, or the step `retention_erase`, goes on with it
        until it is done: journals have to become live first, and readers of earlier revisions have `retention.grace`.

        Durability: on return the request, and what it says is done, survive power loss.

        Raises:
            InvalidInputError: no condition is given.
            LockedError: another process works on erasures, and went on for `lease.wait_seconds`.
        """
        from custody.repository import erasing

        erasure = erasing.request_erasure(
            self.settings,
            self._fs,
            self._clock,
            self._chosen(writer),
            selection,
            reason,
            who,
            before,
            is_of_all_writers=writer is None,
        )
        return self.continue_erasure(erasure.id)

    def continue_erasure(self, erasure_id: str) -> Erasure:
        """Do all that can be done of a request now; its `waiting` and `held` say what stands in the way.

        Durability: on return what the request says is done survives power loss.

        Raises:
            NotFoundError: there is no such request.
            LockedError: another process works on erasures, and went on for `lease.wait_seconds`.
        """
        from custody.repository import erasing

        return erasing.continue_erasure(self.settings, self._fs, self._clock, erasure_id)

    def erasures(self) -> list[Erasure]:
        """Return the requests of erasure, the oldest first; those that are done are certificates."""
        from custody.retention import ErasureStore

        return ErasureStore.of(self.settings, self._fs).all()

    def count_selected(self, selection: EventSelection, writer: str | None = None) -> Counts:
        """Return by writer how many events `forget` would select; all events are read for it.

        Those that cannot be read are not counted, and the notices name what holds them: `forget` selects them too.
        """
        from custody.read.results import Counts, Notices
        from custody.repository import soft_delete

        notices = Notices(strict=False)
        counts = {item.writer: soft_delete.count_selected(item, selection, notices) for item in self._chosen(writer)}
        return Counts(counts, notices)

    def roll_over(
        self,
        *,
        retention: bool = False,
        workers: int = 1,
        take_over: bool = False,
        run_id: str | None = None,
        on_step: Callable[[StepReport], None] = lambda _: None,
    ) -> list[StepReport]:
        """Make acknowledged events live and searchable, in this process: a pass of all steps, without Spark and Java.

        Recover, rollover, compress, index, commit, checkpoint and sweep; with `retention` its steps follow. Each
        step's report goes to `on_step`, into the result and, with a `run_id`, into the history of runs. The first step
        with an error is the last one: its report says why, and the next pass goes on from there. `workers` threads do
        the units of a step.

        Durability: on return what the reports without an error name survives power loss. Can be stopped at any time.

        Raises:
            InvalidInputError: `workers` is not at least 1.
            CorruptionError, StorageError: what waits cannot be listed.
        """
        from custody.repository.local_pass import PASSES, run_locally

        return run_locally(
            [*PASSES["all"], *(PASSES["retention_all"] if retention else ())],
            self.settings,
            workers=workers,
            take_over=take_over,
            run_id=run_id,
            fs=self._fs,
            clock=self._clock,
            on_step=on_step,
        )

    def compact(
        self, writer: str | None = None, *, on_done: Callable[[CompactionReport], None] = lambda _: None
    ) -> list[CompactionReport]:
        """Erase forgotten events from the live logs of a writer, or of all of them, and join small logs.

        The old logs stay, unlisted, until the catalog is pruned and its garbage collected. Events that are not live
        yet are left to a later call. An error of a unit is in its report and stops no other unit.

        Durability: on return what the reports without an error name survives power loss.

        Raises:
            LockedError: another compaction of a writer's logs is under way, and went on for `lease.wait_seconds`.
        """
        from custody.maintenance import compact

        reports = []
        attempt = Attempt.new("custody-compact")
        for item in self._chosen(writer):
            with leased(item, attempt, COMPACT_LEASE) as workspace:
                for report in compact(workspace):
                    on_done(report)
                    reports.append(report)
        return reports

    def hand_over(self) -> list[HandedOver]:
        """Hand the sealed groups of all writers on this machine over to the store; return those that were not there.

        Durability: on return a pass elsewhere has all that it needs of them, and the disks of the containers may go.

        Raises:
            ConfigurationError: `journal.handoff` is off, or the store writes over names that are taken.
            StorageError: a container is missing, or the store refuses.
            ConflictError: other events were handed over under the same ids.
            SupersededError: another machine claimed the writer's name.
        """
        from custody.rollover.handing_over import hand_over

        if self.settings.journal.handoff == "off":
            raise ConfigurationError("journal.handoff is off: no pass reads what is handed over. Set it to 'store'.")
        return [group for workspace in self.workspaces() for group in hand_over(workspace)]

    def hand_over_contents(self) -> list[HandedContents]:
        """Hand the files of contents that nobody writes any more over to the store; return how many, by writer.

        Durability: on return what was handed over can be read without this machine's disks.

        Raises:
            ConfigurationError: `content.handoff` is off.
            StorageError: the store refuses.
        """
        from custody.rollover.handing_over_contents import hand_over_contents

        if self.settings.content.handoff == "off":
            raise ConfigurationError("content.handoff is off: contents stay on their disks. Set it to 'store'.")
        return [hand_over_contents(workspace) for workspace in self.workspaces()]

    def contents_not_handed_over(self) -> dict[str, WaitingContents]:
        """Return which contents would be lost with this machine's disks, by writer; empty where they all may be."""
        from custody.rollover.handing_over_contents import contents_waiting

        return {item.writer: contents_waiting(item) for item in self.workspaces() if item.hands_contents_over}

    def not_handed_over(self) -> dict[str, WaitingForHandOver]:
        """Return what would be lost with the containers' disks, by writer; empty where `journal.handoff` is off."""
        from custody.rollover.handing_over import waiting_for_hand_over

        return {item.writer: waiting_for_hand_over(item) for item in self.workspaces() if item.hands_over}

    def recoverable(self) -> list[Leftover]:
        """Return what interrupted work left, and what `recover` would do about it."""
        from custody.recovery import find_leftovers

        return [finding for workspace in self.workspaces() for finding in find_leftovers(workspace)]

    def recover(
        self, *, take_over: bool = False, adopt: bool = False, accept_earlier: bool = False
    ) -> dict[str, RecoveryReport]:
        """Seal what dead writers left open, and remove what interrupted work left; return a report for each writer.

        With `adopt`, journals of another incarnation of a writer's name become those of a writer of their own. With
        `accept_earlier`, an earlier state of a writer than one that was seen counts as the newest from here on.

        Durability: on return the reported changes survive power loss. Done again, it ends in the same state.

        Raises:
            LockedError: another attempt works on a writer's files, and went on for `lease.wait_seconds`.
            SupersededError: another attempt took over.
            EarlierStateError: a writer's state is an earlier one, and that is not accepted.
            ConflictError: logs are there that an earlier state does not list: `custody repair` lists them again.
        """
        from custody.recovery import accept_earlier as accept
        from custody.recovery import adopt as adopt_journals
        from custody.recovery import recover

        attempt = Attempt.new("custody-recover")
        reports = {}
        for item in self.workspaces():
            accepted = None
            if accept_earlier:
                going_back = Workspace(self.settings, item.writer, self._fs, self._clock, may_go_back=True)
                with rollover_lease(going_back, attempt, take_over=take_over) as workspace:
                    accepted = accept(workspace)
            # Recovery removes what no transaction lists, so no step of a rollover may work beside it.
            with rollover_lease(item, attempt, take_over=take_over) as workspace:
                report = recover(workspace)
                if adopt:
                    report = msgspec.structs.replace(report, adopted=tuple(adopt_journals(workspace)))
                reports[workspace.writer] = msgspec.structs.replace(report, accepted=accepted)
        return reports

    def compactions(self, writer: str | None = None) -> list[RewritePlan]:
        """Return what `compact` would write anew; the logs that tombstones may affect are read for it."""
        from custody.maintenance import plan_rewrites

        return [unit for workspace in self._chosen(writer) for unit in plan_rewrites(workspace)]

    def plan_retention(self) -> RetentionPlan:
        """Return what would expire now, why, and what is held; nothing is changed."""
        from custody.retention import choose_expired

        return choose_expired(self.settings, self._fs, self._clock, self.workspaces()).plan

    def apply_retention(self, events: int | None = None) -> RetentionResult:
        """Expire what is too old or has no room, and delete what expired longer ago than the grace.

        With `events`, of a plan, nothing is done where the logs that go have more or fewer. A limit that cannot be kept
        is no error: the plan in the result says so.

        Durability: on return the reported changes survive power loss. It can be stopped at any time: do it again.

        Raises:
            ConflictError: another process changed a catalog meanwhile, or the plan has changed. Try again.
        """
        from custody.repository.retention_api import apply_retention

        return apply_retention(self.settings, self._fs, self._clock, events)

    def hold(
        self,
        name: str,
        selection: EventSelection,
        reason: str,
        who: str,
        *,
        event_types: Sequence[str] = (),
        writer: str | None = None,
    ) -> None:
        """Keep the selected events, later ones included, from retention and compaction.

        Durability: on return the hold survives power loss. On raise it may be in force for some writers: do it again.

        Raises:
            InvalidInputError: no condition is given.
            ConflictError: another hold has this name.
        """
        from custody.retention import add_hold

        add_hold(self._chosen(writer), name, selection.condition(event_types), reason, who)

    def attestations(self) -> list[KeptAttestation]:
        """Return what each attestation in the folder `catalog.attestations` proves of the catalogs, the newest first.

        Raises:
            NotFoundError: the folder is not there.
        """
        from custody.maintenance.attestations import list_attestations

        return list_attestations(self.settings, self._fs, {item.writer: item for item in self.workspaces()})

    def holds(self) -> list[Hold]:
        """Return the holds that are in force, by name."""
        from custody.retention import standing_holds

        holds = standing_holds(self.workspaces())
        if self._visibility is None:
            return holds
        mask = self._visibility.mask
        return [msgspec.structs.replace(one, attributes=mask.values(one.attributes)) for one in holds]

    def count_held(self, name: str) -> Counts:
        """Return by writer how many events that can be seen a hold keeps; all events are read for it.

        Raises:
            NotFoundError: there is no such hold.
        """
        from custody.read.results import Counts, Notices
        from custody.repository import soft_delete

        notices = Notices(strict=False)
        counts: dict[str, int] = {}
        for item in self.workspaces():
            hold = item.catalog.load().holds.get(name)
            if hold is not None:
                counts[item.writer] = soft_delete.count_meant(item, hold.condition, {}, notices)[0]
        if not counts:
            raise NotFoundError(f"no hold is called {name!r}.")
        return Counts(counts, notices)

    def release(self, name: str, reason: str, who: str) -> list[str]:
        """End a hold; return the writers for which it was in force.

        Raises:
            NotFoundError: there is no such hold.
        """
        from custody.retention import release_hold

        return release_hold(self.workspaces(), name, reason, who)

    def clean_contents(self, *, apply: bool = False) -> CleanedContents:
        """Find the files of contents that no event refers to, which crashes leave, and delete them with `apply`.

        A pass of the retention does the same when it deletes logs.

        Raises:
            CorruptionError, NotFoundError: an event cannot be read, so that nobody knows what it refers to.
        """
        from custody.repository.content_listing import clean_contents

        return clean_contents(self.workspaces(), self.settings, self._fs, self._clock, apply=apply)

    def rebuild_index(
        self, names: Sequence[str] = (), *, stale_only: bool = False
    ) -> Generator[tuple[str, BuiltShard], None, None]:
        """Build index shards anew from their logs; yield the writer and the shard, one after the other.

        All live shards, or those of some `names`; with `stale_only` those that are gone, or were built with other
        settings than those of today. Of each writer that has any, the lease of compactions is held meanwhile. Of one
        that is gone or damaged the catalog tells before it is built.

        Durability: a shard that was yielded survives power loss. Can be stopped and begun again at any time.

        Raises:
            NotFoundError: no live shard has one of the names.
            LockedError: a compaction or another rebuild of a writer's shards is under way, and went on for
                `lease.wait_seconds`.
            SupersededError: another attempt took over.
        """
        from custody.rollover import mend_shard

        missing = set(names) - {name for item in self.workspaces() for name in item.catalog.load().shards}
        # All names are checked before the first shard is built, which may take minutes.
        if missing:
            raise NotFoundError(f"no live index shard is called {', '.join(sorted(missing))}.")
        attempt = Attempt.new("custody-index-rebuild")
        for item in self.workspaces():
            if not _shards_to_rebuild(item, names, stale_only=stale_only):
                continue
            with leased(item, attempt, COMPACT_LEASE) as workspace:
                # Listed again: a compaction that had the lease may have removed some.
                for shard in _shards_to_rebuild(workspace, names, stale_only=stale_only):
                    built = mend_shard(workspace, shard, "index rebuild")
                    # An open shard would go on with its old files.
                    self._shards.forget(built.path)
                    yield workspace.writer, built

    def _replay_sources(self, visibility: Visibility | None) -> ReplaySources:
        """Return what a replay reads for somebody: the events that may be seen, with all their values."""
        from custody.flow.content import ContentReader
        from custody.replay import ReplaySources

        shown = self if visibility is None else self.seen_by(visibility.without_masks)

        def read_events(writer: str, event_ids: Sequence[int]) -> dict[int, Event]:
            return {event.event_id: event for event in shown.get_many(event_ids, writer)}

        return ReplaySources(read_events, lambda: ContentReader(self._fs, self.settings.content_store).find)

    def _opened_plan(self, plan: ReplayPlan | Path) -> ReplayPlan:
        from custody.replay import read_plan

        return read_plan(self._fs, plan) if isinstance(plan, Path) else plan

    def _numbered(self, event_ids: Sequence[int], writer: str | None, sources: ReplaySources) -> Iterator[FoundEvent]:
        """Yield the events with some ids, each id once."""
        name = self._one_writer(writer)
        wanted = list(dict.fromkeys(event_ids))
        for first in range(0, len(wanted), _REPLAY_PAGE):
            some = wanted[first : first + _REPLAY_PAGE]
            events = sources.read_events(name, some)
            yield from ((name, event_id, events.get(event_id)) for event_id in some)

    def _found(
        self,
        asked: Repository,
        text: str | dict[str, object],
        writer: str | None,
        as_of: AsOf | None,
        notices: dict[str, None],
        sources: ReplaySources,
    ) -> Iterator[FoundEvent]:
        """Yield the events that a query finds, oldest first, as they are today.

        A query is a question, put to the repository as it answers (`asked`): which events a plan has must not tell the
        values that answers mask.
        """
        cursor = None
        while True:
            page = asked.search(text, limit=_REPLAY_PAGE, oldest_first=True, cursor=cursor, writer=writer, as_of=as_of)
            notices.update(dict.fromkeys(page.notices))
            if as_of is None and asked is self:
                yield from ((stored.writer, stored.event.event_id, stored.event) for stored in page.events)
            else:
                # What was live then may be forgotten now; and a FlowFile is sent with its values, not with masks.
                for name, stored in groupby(page.events, key=lambda stored: stored.writer):
                    yield from self._numbered([one.event.event_id for one in stored], name, sources)
            cursor = page.cursor
            if cursor is None:
                return

    def _question(self, text: str | dict[str, object]) -> query.Query:
        from custody.query import parse_query, structured_query

        (attributes, standard), index = self.searchable, self.settings.index
        now_ms = self._clock.now_ms()
        try:
            if isinstance(text, str):
                return parse_query(text, attributes, now_ms, standard)
            return structured_query(text, attributes, now_ms, standard)
        except InvalidInputError as error:
            masked = sorted({*index.attributes, *index.fields} - {*attributes, *standard})
            if not masked:
                raise
            raise InvalidInputError(f"{error} Masked here, and so no fields: {', '.join(masked)}.") from error

    def _writers(self) -> list[str]:
        """Return the writers that have events; the one of the settings when none has."""
        # A slot that was only tried has a folder and nothing in it.
        known = not_absorbed(self.workspaces())
        names = [item.writer for item in known if item.state().revision >= 0 or item.has_anything()]
        return names or [self.settings.repository.writer]

    def _chosen(self, writer: str | None) -> list[Workspace]:
        """Return the files of a writer, or of all that have events."""
        return [self.workspace(name) for name in self._writers()] if writer is None else [self._named(writer)]

    def _searched(self, writer: str | None, as_of: AsOf | None) -> list[Workspace]:
        """Return the files of a writer, or of all; a revision needs its writer, and writers of revisions are known."""
        if isinstance(as_of, int):
            writer = self._one_writer(writer)
        elif isinstance(as_of, Mapping):
            for name in sorted(as_of.keys() - {one.writer for one in self.workspaces()}):
                raise NotFoundError(f"there is no writer {name!r}, whose revision {as_of[name]} is asked for.")
        return self.workspaces(with_containers=True) if writer is None else [self._named(writer)]

    def _named(self, writer: str) -> Workspace:
        """Return the files of a writer that somebody named.

        Raises:
            NotFoundError: the archive took it up; the message says which ids its events have there.
        """
        workspace = self.workspace(writer)
        # Only a retired writer is ever taken up: of any other one catalog is enough.
        if workspace.state().seal is not None:
            for other in self.workspaces():
                for entry in other.state().absorbed.values():
                    if (entry.writer, entry.database) == (writer, workspace.database):
                        raise NotFoundError(
                            f"writer {writer!r}: the archive {other.writer!r} took it up; its event N is event "
                            f"{entry.first_event_id} + N there. Name the writer {other.writer!r}."
                        )
        return workspace

    def _one_writer(self, writer: str | None) -> str:
        """Return the named writer, else the only one: event ids say nothing without it."""
        names = [self._named(writer).writer] if writer is not None else self._writers()
        if len(names) > 1:
            raise ConfigurationError(f"the writers {', '.join(map(repr, names))} have events. {_NAME_THE_WRITER}")
        return names[0]


def _counted(found: Iterator[FoundEvent], on_progress: Callable[[int], None]) -> Iterator[FoundEvent]:
    for done, item in enumerate(found, 1):
        yield item
        on_progress(done)


def _shards_to_rebuild(workspace: Workspace, names: Sequence[str], *, stale_only: bool) -> list[AddShard]:
    """Return the live shards of a writer: all, those of some names, or of these the stale ones."""
    from custody.rollover import is_stale

    shards = [shard for name, shard in workspace.catalog.load().shards.items() if not names or name in names]
    return [shard for shard in shards if not stale_only or is_stale(workspace, shard)]
