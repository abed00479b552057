"""Search: pages of matching events over all writers, with a cursor to go on from, exact totals and facets.

Each writer's events come in the order of their ids; writers are merged by event time. A cursor names, for each writer
that there was at the first page, the event after which the next page begins, whether it was given out, passed over for
the offset, or cannot be read. Events that arrive meanwhile have greater ids and change neither the pages nor their
order.

An index knows of events that nobody can read any more. They are passed over and counted, wherever they lie: a page is
filled with what can be read, and the next one begins behind everything that was given out or passed over.
"""

from __future__ import annotations

import heapq
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.catalog import AddFile, AddShard
from custody.errors import InvalidInputError
from custody.eventlog import Damage, TableOfContents
from custody.format.number_sets import distinct
from custody.index import Days, ShardCache, integers
from custody.model import Event
from custody.query import (
    ALL_TIMES,
    IdRange,
    JoinedChoice,
    JoinedShards,
    Scan,
    SearchHits,
    SearchStats,
    ShardChoice,
    ShardSet,
    TimeBounds,
    blocks_that_may_match,
    facets_of,
    facets_of_table,
    search_state,
)
from custody.read import reader
from custody.read.cache import EventIds, caches_of
from custody.read.found_events import FoundEvents, objects_of
from custody.read.kept_looks import KeptLooks
from custody.read.merged_matches import KEPT_MAX, KeptMatches, MergedMatches, Window
from custody.read.results import LossTracker, Notices
from custody.read.time_travel import AsOf, Revisions
from custody.read.tombstone_filter import hidden_ids
from custody.read.views import open_views, side_by_side
from custody.workspace import Workspace

# A damaged repository may have millions: an answer names so many, and counts all.
LOST_NAMED_MAX = 1000
HISTOGRAM_MAX = 1000
"""Spans of one histogram: each is a search of its own."""
_NONE = np.empty(0, np.int64)
TIME_MAX = 1 << 62
"""Times beyond are none that a query can name."""


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and the writer whose id sequence it belongs to."""

    writer: str
    event: Event


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of a search; `total` is exact and counts all matches, those included that cannot be read any more.

    Each writer's events come in the order of their ids, the last stored first (or the first stored, with
    `oldest_first`); writers are merged by event time. `cursor` asks for the next page, None when there is none.
    `explained` describes for each writer what the search did.
    """

    total: int
    events: tuple[StoredEvent, ...]
    notices: tuple[str, ...]
    cursor: str | None = None
    lost: int = 0
    """How many events that match were passed over on the way to this page because they cannot be read."""
    lost_ids: tuple[tuple[str, int], ...] = ()
    """Writer and id of the first `LOST_NAMED_MAX` of them, of each writer."""
    explained: Mapping[str, SearchStats] = field(default_factory=dict, compare=False)
    as_of: Revisions = field(default_factory=dict, compare=False)
    """The revisions that the answer is made of, by writer; asked for by them, it stays the same. What still waits in
    journals is in no revision."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the matching events.

    With `cursor` it begins behind the page that gave it; `offset` is how many events are passed over from there, or
    from the first one, for good. Events that cannot be read do not count for limit and offset.
    """

    limit: int
    offset: int = 0
    oldest_first: bool = False
    cursor: str | None = None


class SearchSource:
    """One writer's events at one moment, without those that must not be given out.

    Args:
        workspace: the writer's files.
        view: the moment.
        attributes: the attributes of events that are indexed.
        notices: take what is damaged or absent.
    """

    def __init__(
        self, workspace: Workspace, view: reader.Snapshot, attributes: Sequence[str], notices: Notices
    ) -> None:
        self.writer = workspace.writer
        self.workspace = workspace
        self.view = view
        # Nothing waits as a rule, and nothing is hidden: of most writers a question needs no more than that.
        self.tail = view.tail if view.tail.is_empty else view.visible_tail(workspace)
        self._attributes = attributes
        self._keeps_terms = False
        self._scans: list[tuple[EventIds, EventIds, Scan]] = []
        """Of the tail, once terms of it are kept: its ids and times, and the terms that were asked for."""
        self.hidden = hidden_ids(workspace, view.state, notices)
        """The ids of live events that must not be given out; a shard knows them all the same."""
        self._notices = notices
        self._losses = LossTracker(notices)
        self._remembered: dict[int, tuple[Event, ...]] | None = None

    def shards(self, opened: ShardCache) -> ShardSet:
        """Return the writer's live shards."""
        workspace = self.workspace
        state, facts = self.view.state, opened.facts(workspace.writer)
        ordered = caches_of(workspace).shards(workspace, state)
        facts.follow(state.revision, ordered.names, ordered.bounds, workspace.filter_files)
        return ShardSet(opened, state, ordered, workspace.shard_path, self.hidden, workspace.stored_shard, facts)

    def log_tables(self, shard: AddShard) -> Iterator[pa.Table]:
        """Yield the events of a shard's logs, a few blocks at a time."""
        return reader.tables_of_logs(self.workspace, self.view.state, shard.log_paths, self._notices)

    def candidate_tables(self, shard: AddShard, question: query.Query, explained: SearchStats) -> Iterator[pa.Table]:
        """Yield the blocks of a shard's logs that can hold a match by their bounds."""

        def choose(file: AddFile, toc: TableOfContents) -> Sequence[int]:
            chosen = blocks_that_may_match(question, file, toc)
            explained.scanned_blocks += len(toc.blocks)
            explained.scanned_blocks_pruned += len(toc.blocks) - len(chosen)
            return chosen

        return reader.tables_of_logs(self.workspace, self.view.state, shard.log_paths, self._notices, choose)

    def find(self, event_ids: EventIds, *, keep: bool = False) -> FoundEvents:
        """Find the events with these ids, which go up; those that cannot be read are left out.

        `objects_of` makes events of what was found for several writers, and `given` returns those of this one. With
        `keep` the cache keeps the events themselves, which are likely to be asked for again.
        """
        if self._remembered is not None:
            is_known = [event_id in self._remembered for event_id in event_ids.tolist()]
            event_ids, keep = event_ids[~np.array(is_known, np.bool_)], True
        if not len(event_ids):
            return FoundEvents()
        return reader.find(self.workspace, event_ids, self.view, self._losses, keep=keep)

    def given(self, event_ids: EventIds, events: list[Event]) -> list[Event]:
        """Return the events with these ids, which go up, of which `events` were made of what `find` returned."""
        if self._remembered is None:
            return events
        for event in events:
            # An id that was given out twice has both events.
            self._remembered[event.event_id] = (*self._remembered.get(event.event_id, ()), event)
        return [event for event_id in event_ids.tolist() for event in self._remembered.get(event_id, ())]

    def get_many(self, event_ids: EventIds, *, keep: bool = False) -> list[Event]:
        """Return the events with these ids, in id order; as `find`."""
        ids = distinct(event_ids)
        return self.given(ids, objects_of([self.find(ids, keep=keep)], caches_of(self.workspace).events)[0])

    def remember(self) -> None:
        """Keep what is read from now on, for searches that meet the same events again, now or later."""
        self._remembered = {}
        self.keep_terms()

    def keep_terms(self) -> None:
        """Keep the terms that are taken from the tail from now on, for more searches of this moment."""
        self._keeps_terms = True

    def waiting(self, question: query.Query) -> tuple[EventIds, EventIds]:
        """Return the ids and the times, ms since the epoch, of the events of the tail that match, ids going down."""
        if self.tail.is_empty:
            return _NONE, _NONE
        parts = [(_NONE, _NONE)]
        for ids, times, scan in self._tail_scans():
            chosen = scan.match(question)
            parts.append((ids[chosen], times[chosen]))
        ids, times = (np.concatenate(columns) for columns in zip(*parts, strict=True))
        order = np.argsort(ids, kind="stable")[::-1]
        return ids[order], times[order]

    def _tail_scans(self) -> Iterator[tuple[EventIds, EventIds, Scan]]:
        """Yield parts of the tail, as ids, times and what is asked."""
        if self._scans:
            yield from self._scans
            self.tail.release_memory()
            return
        scans = []
        for look in self.tail.looks():
            if not look.num_rows:
                continue
            times = look.column("event_time").cast(pa.int64())
            one = integers(look.column("event_id"), np.int64), integers(times, np.int64), Scan(look, self._attributes)
            yield one
            scans += [one] if self._keeps_terms else []
        # Only now: a question that failed half-way must not leave a part of the events for the next one.
        self._scans = scans

    def readable(self, event_ids: EventIds) -> npt.NDArray[np.bool_]:
        """Return which of some events can be read, found without decoding them."""
        return reader.readable(self.workspace, event_ids, self.view, self._losses)

    def lost_of(self, event_ids: EventIds) -> EventIds:
        """Return which of some events lie in what `get_many` or `readable` found to be damaged."""
        return self._losses.of(event_ids)

    def count_blocks(self, event_ids: Sequence[int]) -> int:
        """Return how many blocks of logs `get_many` reads for these events."""
        return reader.count_blocks(self.workspace, event_ids, self.view)


class JoinedSearch(NamedTuple):
    """What searches of some writers share, as long as each is at the same state."""

    shards: JoinedShards
    matches: KeptMatches
    revisions: Revisions


class SearchedWriters(list[SearchSource]):
    """The events of writers at one moment, and what searches of them share; `kept` has that of earlier questions."""

    def __init__(self, sources: Iterable[SearchSource], kept: KeptLooks | None = None) -> None:
        super().__init__(sources)
        self._kept = kept
        self._joined: JoinedSearch | None = None

    def joined(self, opened: ShardCache) -> JoinedSearch:
        """Return what searches of these writers share."""
        if self._joined is None:
            states = [source.view.state for source in self]
            found = None if self._kept is None else self._kept.of_states(states)
            if not isinstance(found, JoinedSearch):
                sets = [source.shards(opened) for source in self]
                found = JoinedSearch(JoinedShards(sets), KeptMatches(), revisions_of(self))
                if self._kept is not None:
                    self._kept.keep_of_states(states, found)
            self._joined = found
        return self._joined


def open_sources(
    workspaces: Iterable[Workspace],
    attributes: Sequence[str],
    notices: Notices,
    as_of: AsOf | None = None,
    times: TimeBounds = ALL_TIMES,
    kept: KeptLooks | None = None,
) -> SearchedWriters:
    """Return the events of writers, now or as of a revision or a time; logs of some times, ms, that are gone are named.

    What was seen of writers that did not change since is taken from `kept`.

    Raises:
        NotFoundError, PrunedError, CorruptionError: as `snapshot_at` and `reader.snapshot`.
    """
    views = list(open_views(workspaces, notices, as_of, kept))
    doubtful = [
        of_writer
        for of_writer in views
        if as_of is not None or kept is None or not kept.has_all_logs(of_writer[0].writer, of_writer[1])
    ]

    def absent_of(of_writer: tuple[Workspace, reader.Snapshot]) -> list[Damage]:
        damages: list[Damage] = []
        reader.name_absent(of_writer[0], of_writer[1].state, times, damages.append)
        return damages

    for damages in side_by_side(absent_of, doubtful, of=[workspace for workspace, _ in doubtful]):
        for damage in damages:
            notices(damage)
    sources = (SearchSource(workspace, view, attributes, notices) for workspace, view in views)
    # States of the past are made anew for each question.
    return SearchedWriters(sources, kept if as_of is None else None)


def revisions_of(sources: Iterable[SearchSource]) -> Revisions:
    """Return the revisions of the catalogs that an answer is made of; a writer without one has committed nothing."""
    return {one.writer: one.view.state.revision for one in sources if one.view.state.revision >= 0}


@contextmanager
def opening_threads(asking: int = 1, *, is_remote: bool) -> Iterator[Executor | None]:
    """Give the threads that open shards, and ask them where several are to; None where one thread is quicker.

    To open a shard of a disk is work of Python: eight threads take half as long again as one, whether the system has
    the pages or not. Of an object store it is waiting for requests.
    """
    if asking == 1 and not is_remote:
        yield None
        return
    # Starts threads only when shards have to be opened, or are asked by several.
    with ThreadPoolExecutor(_OPENING_THREADS if asking == 1 else asking) as pool:
        yield pool


def search(
    sources: SearchedWriters,
    shards: ShardCache,
    question: query.Query,
    attributes: Sequence[str],
    page: Page,
    pool: Executor | None = None,
    *,
    is_parallel: bool = False,
    is_counted: bool = True,
) -> SearchResult:
    """Return a page of the events that match; with `is_parallel` threads of `pool` ask several shards at once.

    Without `is_counted` the total is 0, and the search ends where the page is full.

    Raises:
        InvalidInputError: the cursor is none, or of a search in the other order; or a number is below zero.
    """
    for name, number in (("limit", page.limit), ("offset", page.offset)):
        if number < 0:
            raise InvalidInputError(f"{name}: expected 0 or more, got {number}.")
    places = _places(sources, page)
    is_kept = page.limit <= _KEPT_PAGE
    request = _Request(shards, question, attributes, page.oldest_first, pool, is_parallel, is_kept, is_counted)
    of_several = _SearchOfSeveral(sources, places, request, page)
    known = of_several.known_page() if page.limit and len(places) > 1 else None
    if known is not None:
        return known
    expected = page.offset + page.limit
    matches, numbers = of_several.matches(places, expected)
    if page.limit and len(matches) > 1:
        merged = of_several.merge(matches, numbers, expected, is_first=page.cursor is None)
        known = None if merged is None else of_several.page_of(merged, page.offset, matches)
        if known is not None:
            return known
    events = _page(matches, page)
    cursor = None
    # Behind `has_more`, which passes over what cannot be read: the next page does not meet it again.
    has_more = [one.has_more() for one in matches] if page.limit else []
    if any(has_more):
        given = {source.writer: place for source, place in places}
        cursor = _encoded(_Cursor(page.oldest_first, given | {one.writer: one.place for one in matches}))
    return SearchResult(
        sum(one.total for one in matches) if is_counted else 0,
        tuple(events),
        tuple(notice for one in matches for notice in one.notices),
        cursor,
        sum(one.lost for one in matches),
        tuple((one.writer, event_id) for one in matches for event_id in one.lost_ids),
        of_several.explained(lambda: {one.writer: one.explain() for one in matches}),
        of_several.joined.revisions,
    )


class Explained(Mapping[str, SearchStats]):
    """What a search did by writer, made when somebody asks: to count blocks takes as long as a small search."""

    def __init__(self, make: Callable[[], Mapping[str, SearchStats]]) -> None:
        self._make = make

    @cached_property
    def _stats(self) -> Mapping[str, SearchStats]:
        return self._make()

    def __getitem__(self, writer: str) -> SearchStats:
        return self._stats[writer]

    def __iter__(self) -> Iterator[str]:
        return iter(self._stats)

    def __len__(self) -> int:
        return len(self._stats)


class _SearchOfSeveral:
    """One search of some writers, of which those are asked that may have a match.

    Args:
        sources: all writers.
        places: those that are searched, and the id behind which the page begins for each.
        request: the query, and the order of events.
        page: what is asked for.
    """

    def __init__(
        self, sources: SearchedWriters, places: Sequence[tuple[SearchSource, int]], request: _Request, page: Page
    ) -> None:
        self._sources = sources
        self._places = places
        self._request = request
        self._page = page
        self.joined = sources.joined(request.shards)

    @cached_property
    def _choice(self) -> JoinedChoice:
        return self.joined.shards.choose(self._request.question)

    @property
    def _may_be_kept(self) -> bool:
        """Whether what matches is the same in the next question, as long as no writer commits."""
        # What is kept is given out with its total.
        return (
            self._request.is_counted
            and len(self._places) == len(self._sources)
            and all(source.tail.is_empty for source in self._sources)
        )

    def known_page(self) -> SearchResult | None:
        """Return the page from the order of what matches that is kept, with more of it where it does not reach."""
        if not self._may_be_kept:
            return None
        request, page = self._request, self._page
        merged = self.joined.matches.get(request.question, oldest_first=page.oldest_first)
        if merged is None:
            return None
        begin: int | None = page.offset
        if page.cursor is not None:
            by_source = [place for _, place in self._places]
            before = merged.begin_of([by_source[each.source] for each in merged.windows])
            begin = None if before is None else before + page.offset
        if begin is None or begin + page.limit > KEPT_MAX:
            return None
        if merged.reaches(begin + page.limit):
            return self.page_of(merged, begin)
        # From the first match on, and further each time, so that few pages look for more.
        reach = min(_REACH_GROWTH * (begin + page.limit), KEPT_MAX)
        matches, numbers = self.matches(_starts(self._sources, oldest_first=page.oldest_first), reach)
        further = self.merge(matches, numbers, reach, is_first=True) if matches else None
        return None if further is None else self.page_of(further, begin, matches)

    def matches(
        self, places: Sequence[tuple[SearchSource, int]], expected: int
    ) -> tuple[list[WriterMatches], list[int]]:
        """Return what matches behind some places, of the writers that may have a match, and the numbers of these.

        `expected` is about how many will be taken or passed over of all writers together.
        """
        chosen, place_of = set(self._choice.catalogs), {source.writer: place for source, place in places}
        asked = [
            (number, source, place_of[source.writer])
            for number, source in enumerate(self._sources)
            if source.writer in place_of and (number in chosen or not source.tail.is_empty)
        ]
        # One writer gives the whole page; of several, each is likely to give its share.
        at_a_time = expected if len(asked) == 1 else -(-expected // max(len(asked), 1))
        # One more than is asked for: it shows whether another page follows.
        has_times = self._page.limit > 0 and len(asked) > 1

        def matches_of(of_writer: tuple[int, SearchSource, int]) -> WriterMatches:
            number, source, place = of_writer
            return WriterMatches(
                source,
                self._request,
                place,
                expected + 1,
                max(at_a_time, 1),
                has_times=has_times,
                choice=self._choice.of(number),
            )

        found = side_by_side(matches_of, asked, of=[source.workspace for _, source, _ in asked])
        return found, [number for number, _, _ in asked]

    def merge(
        self, matches: Sequence[WriterMatches], numbers: Sequence[int], reach: int, *, is_first: bool
    ) -> MergedMatches | None:
        """Return what matches in the order of a page, None where an index does not tell the times.

        With `is_first` it begins with the first match of all, and is kept for the next question.
        """
        windows = []
        for one, number in zip(matches, numbers, strict=True):
            if one.times is None:
                return None
            windows.append(Window(number, one.ids, one.times, one.total, one.explained))
        oldest_first = self._page.oldest_first
        merged = MergedMatches(windows, reach, oldest_first=oldest_first)
        if is_first and reach <= KEPT_MAX and self._may_be_kept and not any(one.notices for one in matches):
            self.joined.matches.put(self._request.question, merged, oldest_first=oldest_first)
        return merged

    def page_of(
        self, merged: MergedMatches, begin: int, matches: Sequence[WriterMatches] | None = None
    ) -> SearchResult | None:
        """Return the page that begins at a place of an order, None where something on the way cannot be read.

        `matches` are those of which the order was made just now.
        """
        cut = merged.cut(self._sources, begin, begin + self._page.limit, keep=self._request.keeps_events)
        if cut is None:
            return None
        windows = merged.windows
        writers = [self._sources[each.source].writer for each in windows]
        cursor = None
        if any(end < len(each.ids) for each, end in zip(windows, cut.ends, strict=True)):
            places = {source.writer: place for source, place in self._places}
            for writer, each, end in zip(writers, windows, cut.ends, strict=True):
                if end:
                    places[writer] = int(each.ids[end - 1])
            cursor = _encoded(_Cursor(self._page.oldest_first, places))

        def stats() -> dict[str, SearchStats]:
            found = {}
            for writer, each, first, end in zip(writers, windows, cut.firsts, cut.ends, strict=True):
                # From what is kept, no shard was asked.
                known = replace(each.stats, searched=0, counted=0, seconds=0.0) if matches is None else each.stats
                blocks = self._sources[each.source].count_blocks(each.ids[first:end].tolist())
                found[writer] = replace(known, blocks=blocks)
            return found

        return SearchResult(
            merged.total,
            tuple(StoredEvent(writers[number], event) for number, event in cut.events),
            tuple(notice for one in matches or () for notice in one.notices),
            cursor,
            explained=self.explained(stats),
            as_of=self.joined.revisions,
        )

    def explained(self, found: Callable[[], Mapping[str, SearchStats]]) -> Explained:
        """Return what is told of a search, of which `found` returns what was done for writers that were asked."""

        def every() -> dict[str, SearchStats]:
            asked, searched = found(), {source.writer for source, _ in self._places}
            return {
                source.writer: asked.get(source.writer) or self._choice.of(number).stats
                for number, source in enumerate(self._sources)
                if source.writer in searched
            }

        return Explained(every)


def count_facets(
    sources: SearchedWriters,
    shards: ShardCache,
    question: query.Query,
    attributes: Sequence[str],
    fields: Sequence[str],
    days: Days,
) -> tuple[dict[str, Counter[str]], list[str]]:
    """Return how many of the events that match have each value of some fields, and notices; `day` counts `days`."""
    counts: dict[str, Counter[str]] = {name: Counter() for name in fields}
    notices: list[str] = []

    choice = sources.joined(shards).shards.choose(question)

    def counted_of(numbered: tuple[int, SearchSource]) -> tuple[dict[str, Counter[str]], list[str]]:
        number, source = numbered
        live, of_source = source.shards(shards), choice.of(number)
        tables, readable = source.log_tables, source.readable
        of_writer, said = facets_of(live, of_source, tables, readable, question, fields, attributes, days)
        for look in source.tail.looks():
            facets_of_table(of_writer, look, question, attributes, days)
        return of_writer, said

    workspaces = [source.workspace for source in sources]
    for of_writer, said in side_by_side(counted_of, list(enumerate(sources)), of=workspaces):
        notices += said
        for name, values in of_writer.items():
            counts[name].update(values)
    return counts, notices


@dataclass(frozen=True, slots=True)
class Bucket:
    """A span of event times, ms since the epoch, both included, and how many events that match fall into it."""

    first_ms: int
    last_ms: int
    events: int


def count_buckets(
    sources: SearchedWriters,
    shards: ShardCache,
    question: query.Query,
    attributes: Sequence[str],
    bounds: TimeBounds,
    count: int,
) -> tuple[list[Bucket], list[str]]:
    """Return how many events that match fall into each of `count` spans of the same length within bounds, and notices.

    Each is the total of a search: the shards of a span are few, and the others are not opened. The last span is shorter
    where the length does not fit; there are fewer spans than `count` where a span would be shorter than a millisecond.
    """
    first, last = bounds
    length = max(-(-(last - first + 1) // count), 1)
    buckets, notices = [], dict[str, None]()
    for source in sources:
        source.keep_terms()
    for start in range(first, last + 1, length):
        end = min(start + length - 1, last)
        within = query.And([question, query.NumericRange("event_time", start, end)])
        answer = search(sources, shards, within, attributes, Page(0))
        notices.update(dict.fromkeys(answer.notices))
        buckets.append(Bucket(start, end, answer.total))
    return buckets, list(notices)


@dataclass(frozen=True, slots=True)
class _Request:
    """The query and the order of its results, the same for every writer."""

    shards: ShardCache
    question: query.Query
    attributes: Sequence[str]
    oldest_first: bool
    pool: Executor | None
    is_parallel: bool
    keeps_events: bool = False
    """Whether the page is one that somebody looks at, and likely to be asked for again."""
    is_counted: bool = True
    """Whether the exact total is wanted, for which each shard that may match is asked."""


# Pages show a hundred, and are looked at again; who takes more goes through everything once.
_KEPT_PAGE = 100
# What is fetched behind the first share of a page, as a part of that.
_SHARE_PART = 4
_OPENING_THREADS = 8
# A page behind what is kept of a query is likely to be followed by another one.
_REACH_GROWTH = 4


class WriterMatches:
    """The events of one writer behind a place that match, in the order of their ids, up or down.

    Ids come from the index, a window at a time; events are fetched as they are needed.

    Args:
        source: the writer's events.
        request: the query, and the order of events.
        place: the id behind which they begin.
        expected: about how many will be taken or passed over.
        at_a_time: how many are fetched at once, at first.
        has_times: whether the times of events are looked up with their ids.
        choice: the shards of the writer that may have a match, where they are known.
    """

    def __init__(
        self,
        source: SearchSource,
        request: _Request,
        place: int,
        expected: int,
        at_a_time: int,
        *,
        has_times: bool = False,
        choice: ShardChoice | None = None,
    ) -> None:
        self.writer = source.writer
        self.place = place
        """The id of the last event that was taken or passed over."""
        self.lost = 0
        """How many were passed over because they cannot be read."""
        self.lost_ids: list[int] = []
        """The first of them."""
        self.notices: dict[str, None] = {}
        self._source = source
        self._request = request
        self._window = expected
        self._at_a_time = at_a_time
        self._fetched: list[EventIds] = []
        self._waiting, self._waiting_times = source.waiting(request.question)
        self._ids: EventIds = _NONE
        """Ids that were found behind those of the chunk."""
        self.times: EventIds | None = None
        """When the events of the ids that were found first happened, ms since the epoch, as far as nothing was taken;
        None where the index does not tell, or nobody asked."""
        # True until a window of ids comes back that is not full.
        self._may_follow = True
        answer = self._find_ids(choice, is_first=True, with_times=has_times)
        self.total = (answer.total or 0) + len(self._waiting)
        """All events of the writer that match, also those before the place and those that are lost; where the request
        is not counted, those that wait."""
        self.explained = answer.explained
        self._chunk: EventIds = _NONE
        """Ids whose events were fetched; those before number `_passed` were taken or passed over."""
        self._passed = 0
        self._ready: deque[tuple[int, Event]] = deque()
        """The events that could be read, each with its number in the chunk."""

    @property
    def ids(self) -> EventIds:
        """The ids that were found first, as far as nothing was taken."""
        return self._ids

    def head(self) -> Event | None:
        """Return the next event that can be read, None behind the last one."""
        while True:
            self._pass_to(self._ready[0][0] if self._ready else len(self._chunk))
            if self._ready:
                return self._ready[0][1]
            ids = self._next(self._at_a_time)
            if not len(ids):
                return None
            self._fetch(ids)
            # First a writer's share of the page. The page nearly always lacks a few more of some writers only; where it
            # lacks many of one, ever more at once cost less for each.
            is_first = len(self._fetched) == 1
            self._at_a_time = max(self._at_a_time // _SHARE_PART, 2) if is_first else 2 * self._at_a_time

    def take(self) -> Event | None:
        """Return the next event that can be read, and go behind it."""
        event = self.head()
        if event is not None:
            self._passed = self._ready.popleft()[0] + 1
            self.place = event.event_id
        return event

    def take_many(self, count: int) -> Iterator[Event]:
        """Yield the next `count` events that can be read, and go behind each."""
        while count > 0 and self.head() is not None:
            for number, event in islice(_popped(self._ready), count):
                if number > self._passed:
                    self._pass_to(number)
                self._passed, self.place = number + 1, event.event_id
                count -= 1
                yield event

    def skip(self, count: int) -> None:
        """Go behind the next `count` events that can be read, or behind the last one; decodes nothing."""
        while count > 0 and len(ids := self._next(count)):
            is_readable = self._source.readable(ids)
            count -= int(is_readable.sum())
            self._pass_over(ids, ~is_readable)

    def has_more(self) -> bool:
        """Whether an event follows that can be read; what cannot is passed over, and nothing is decoded."""
        # What was fetched and could not be read lies before the first event that is ready.
        self._pass_to(self._ready[0][0] if self._ready else len(self._chunk))
        count = 1
        while not self._ready and len(ids := self._next(count)):
            is_readable = self._source.readable(ids)
            if is_readable.any():
                first = int(is_readable.argmax())
                self._pass_over(ids[:first], ~is_readable[:first])
                self._ids = np.concatenate([ids[first:], self._ids])
                return True
            self._pass_over(ids, ~is_readable)
            count *= 2
        return bool(self._ready)

    def explain(self) -> SearchStats:
        """Return what was done, with the number of blocks of logs that events were fetched from."""
        ids: list[int] = np.concatenate([np.empty(0, np.int64), *self._fetched]).tolist()
        self.explained.blocks = self._source.count_blocks(ids)
        return self.explained

    def _fetch(self, ids: EventIds) -> None:
        """Fetch events; called when nothing is ready."""
        self._fetched.append(ids)
        event_ids = ids.tolist()
        # An id that was given out twice, which verify names, has one number and both events.
        numbers = {event_id: number for number, event_id in reversed(list(enumerate(event_ids)))}
        events = self._source.get_many(ids, keep=self._request.keeps_events)
        ordered = events if self._request.oldest_first else events[::-1]
        self._chunk, self._passed = ids, 0
        self._ready.extend((numbers[event.event_id], event) for event in ordered)

    def _pass_to(self, number: int) -> None:
        """Pass over what could not be fetched before a number of the chunk."""
        # Asked for each event, and nearly always nothing lies between.
        if number > self._passed:
            over = self._chunk[self._passed : number]
            self._pass_over(over, np.ones(len(over), np.bool_))
            self._passed = number

    def _pass_over(self, ids: EventIds, unread: npt.NDArray[np.bool_]) -> None:
        if len(ids):
            self.place = int(ids[-1])
            lost = self._source.lost_of(ids[unread])
            self.lost += len(lost)
            room = LOST_NAMED_MAX - len(self.lost_ids)
            self.lost_ids += lost[:room].tolist()

    def _next(self, count: int) -> EventIds:
        """Return the next ids, at most `count`, none behind the last one; they are not given again."""
        if not len(self._ids) and self._may_follow:
            # Twice as many each time, so that a search whose first matches cannot be read needs few rounds.
            self._window *= 2
            self._find_ids(None)
        ids, self._ids = self._ids[:count], self._ids[count:]
        return ids

    def _find_ids(self, choice: ShardChoice | None, *, is_first: bool = False, with_times: bool = False) -> SearchHits:
        """Look the next window of ids behind the place up, in the index and in the tail."""
        request, source = self._request, self._source
        above, below = (self.place, None) if request.oldest_first else (None, self.place)
        window = IdRange(self._window, below, above, request.oldest_first)

        def scan_logs(shard: AddShard, question: query.Query) -> EventIds:
            tables = source.candidate_tables(shard, question, scanned)
            return _scan_tables(tables, question, request.attributes)

        shards, scanned = source.shards(request.shards), SearchStats()
        answer = search_state(
            shards,
            scan_logs,
            request.question,
            window,
            count=is_first and request.is_counted,
            pool=request.pool,
            is_parallel=request.is_parallel,
            with_times=with_times,
            choice=choice,
        )
        answer.explained.scanned_blocks = scanned.scanned_blocks
        answer.explained.scanned_blocks_pruned = scanned.scanned_blocks_pruned
        self.notices.update(dict.fromkeys(answer.notices))
        ids, self.times = answer.event_ids, answer.times
        if len(self._waiting) or not _is_strict(ids):
            ids, places = np.unique(np.concatenate([ids, window.of(self._waiting)]), return_index=True)
            ordered = slice(None, self._window) if request.oldest_first else slice(None, -self._window - 1, -1)
            ids, places = ids[ordered], places[ordered]
            if answer.times is not None:
                times = window.of_others(self._waiting, self._waiting_times)
                self.times = np.concatenate([answer.times, times])[places]
        # A window that is not full was the last one: nothing matches behind it.
        self._may_follow = len(ids) == self._window
        self._ids = ids
        return answer


def _is_strict(ids: EventIds) -> bool:
    """Whether each id is there once, in the order of a search."""
    steps = np.diff(ids)
    return bool((steps < 0).all() or (steps > 0).all())


class _Cursor(msgspec.Struct, frozen=True):
    """For each writer the id of the event behind which the next page begins: the content of a cursor's text."""

    oldest_first: bool
    places: dict[str, int]


_CURSOR = msgspec.json.Decoder(_Cursor)


def _scan_tables(tables: Iterable[pa.Table], question: query.Query, attributes: Sequence[str]) -> EventIds:
    """Return the ids of the events of some tables that match, found without an index."""
    parts = [integers(table.column("event_id"), np.int64)[Scan(table, attributes).match(question)] for table in tables]
    return np.concatenate([_NONE, *parts])


def _places(sources: Iterable[SearchSource], page: Page) -> list[tuple[SearchSource, int]]:
    """Return the writers that are searched, and the id behind which the page begins for each."""
    cursor = _decoded(page)
    places = []
    for source in sources:
        # Newest first, a writer that was not there at the first page has only events that come before that page. Oldest
        # first, its events come behind, so it is searched from its beginning.
        if cursor is not None and not page.oldest_first and source.writer not in cursor.places:
            continue
        place = cursor.places.get(source.writer) if cursor else None
        places.append((source, _start(source, oldest_first=page.oldest_first) if place is None else place))
    return places


def _start(source: SearchSource, *, oldest_first: bool) -> int:
    """Return the id behind which the first page begins."""
    return -1 if oldest_first else source.view.next_event_id


def _starts(sources: Iterable[SearchSource], *, oldest_first: bool) -> list[tuple[SearchSource, int]]:
    """Return writers, and the id behind which the first page begins for each."""
    return [(source, _start(source, oldest_first=oldest_first)) for source in sources]


def _page(matches: Sequence[WriterMatches], page: Page) -> list[StoredEvent]:
    """Take the events of a page; of several writers the next one by time."""
    if page.limit and len(matches) == 1:
        # Nothing to merge, and a lineage takes a thousand.
        matches[0].skip(page.offset)
        return [StoredEvent(matches[0].writer, event) for event in matches[0].take_many(page.limit)]
    merged = _merged(matches, oldest_first=page.oldest_first)
    return list(islice(merged, page.offset, page.offset + page.limit)) if page.limit else []


def _popped(ready: deque[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
    while ready:
        yield ready.popleft()


def _merged(matches: Sequence[WriterMatches], *, oldest_first: bool) -> Iterator[StoredEvent]:
    """Yield the events of several writers, the next one by time; nothing is fetched before it is asked for."""
    # Each writer's events stay in the order of their ids: the first of the merge are the same however long a page is.
    heads: list[tuple[int, int]] = []

    def look(number: int) -> None:
        event = matches[number].head()
        if event is not None:
            # Of one time that of the first writer.
            heapq.heappush(heads, (event.event_time if oldest_first else -event.event_time, number))

    for number in range(len(matches)):
        look(number)
    while heads:
        _, number = heapq.heappop(heads)
        event = matches[number].take()
        if event is not None:
            yield StoredEvent(matches[number].writer, event)
        look(number)


def _encoded(cursor: _Cursor) -> str:
    # Hex needs no quoting, neither in a URL nor in a shell.
    return msgspec.json.encode(cursor).hex()


def _decoded(page: Page) -> _Cursor | None:
    if page.cursor is None:
        return None
    try:
        cursor = _CURSOR.decode(bytes.fromhex(page.cursor))
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidInputError("cursor: expected what the page before gave, got something else.") from error
    if cursor.oldest_first != page.oldest_first:
        raise InvalidInputError("cursor: it goes on with a search in the other order; give --oldest as before.")
    return cursor
