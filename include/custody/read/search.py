"""One writer's part of a search: its events that match, one after the other, fetched as they are needed.

An index knows of events that nobody can read any more. They are passed over and counted, wherever they lie: a page is
filled with what can be read, and the place where the next one begins is behind all that was given out or passed over.

One search over all writers: pages of events, a cursor to go on from, exact totals.

Each writer's events come in the order of their ids; writers are merged by event time. A cursor names, for each writer
that there was at the first page, the event after which the next page begins, whether it was given out, passed over
for the offset, or cannot be read: events that arrive meanwhile have greater ids and change neither the pages nor
their order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.catalog import AddShard, CatalogState
from custody.errors import InvalidInputError
from custody.index import ShardCache, integers
from custody.model import Event
from custody.query import IdRange, Scan, SearchHits, SearchStats, ShardSet, search_state

EventIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Source:
    """One writer's events at one moment, and how to get at them."""

    writer: str
    state: CatalogState
    buried: EventIds
    """Live events that must not be given out; `tail`, `log_tables` and `get_many` have none of them."""
    tail: pa.Table
    tail_scan: Scan
    """Of `tail`: several searches of one moment take its terms once."""
    next_event_id: int
    shard_path: Callable[[AddShard], Path]
    log_tables: Callable[[AddShard], Iterable[pa.Table]]
    get_many: Callable[[Sequence[int]], list[Event]]
    readable: Callable[[EventIds], npt.NDArray[np.bool_]]
    """Which of some events can be read, found without decoding them."""
    lost: Callable[[EventIds], int]
    """How many of some events lie in what was found to be damaged by `get_many` or `readable`."""
    count_blocks: Callable[[Sequence[int]], int]
    """How many blocks of logs `get_many` reads."""

    def shards(self, opened: ShardCache) -> ShardSet:
        """Return the writer's live shards."""
        return ShardSet(opened, self.state, self.shard_path, self.buried)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of each writer."""

    shards: ShardCache
    asked: query.Query
    attributes: Sequence[str]
    oldest_first: bool
    pool: Executor | None


class Matches:
    """The events of one writer behind a place that match, in the order of their ids, up or down.

    Args:
        source: the writer's events.
        question: what is asked, and which events come first.
        place: the id behind which they begin.
        expected: about how many will be taken or passed over.
        together: how many are fetched at a time, at first.
    """

    def __init__(self, source: Source, question: Question, place: int, expected: int, together: int) -> None:
        self.writer = source.writer
        self.place = place
        """The id of the last event that was taken or passed over."""
        self.lost = 0
        """How many were passed over because they cannot be read."""
        self.notices: dict[str, None] = {}
        self._source = source
        self._question = question
        self._window = expected
        self._together = together
        self._fetched: list[EventIds] = []
        self._waiting = np.sort(matching(source.tail, source.tail_scan, question.asked))[::-1]
        self._ids: EventIds = np.empty(0, np.int64)
        """Ids that were found behind those of the chunk."""
        self._may_follow = True
        found = self._ask(is_first=True)
        self.total = (found.total or 0) + len(self._waiting)
        """All events of the writer that match, also those before the place and those that are lost."""
        self.explained = found.explained
        self._chunk: EventIds = np.empty(0, np.int64)
        """Ids whose events were fetched; those before number `_passed` were taken or passed over."""
        self._passed = 0
        self._ready: deque[tuple[int, Event]] = deque()
        """The events that could be read, each with its number in the chunk."""

    def head(self) -> Event | None:
        """Return the next event that can be read, None behind the last one."""
        while True:
            self._pass_to(self._ready[0][0] if self._ready else len(self._chunk))
            if self._ready:
                return self._ready[0][1]
            ids = self._next(self._together)
            if not len(ids):
                return None
            self._fetch(ids)
            self._together *= 2

    def take(self) -> Event | None:
        """Return the next event that can be read, and go behind it."""
        event = self.head()
        if event is not None:
            self._passed = self._ready.popleft()[0] + 1
            self.place = event.event_id
        return event

    def skip(self, count: int) -> None:
        """Go behind the next `count` events that can be read, or behind the last one; decodes nothing."""
        while count > 0 and len(ids := self._next(count)):
            found = self._source.readable(ids)
            count -= int(found.sum())
            self._pass_over(ids, ~found)

    def has_more(self) -> bool:
        """Whether an event follows that can be read; what cannot is passed over, and nothing is decoded."""
        self._pass_to(self._ready[0][0] if self._ready else len(self._chunk))
        together = 1
        while not self._ready and len(ids := self._next(together)):
            found = self._source.readable(ids)
            if found.any():
                first = int(found.argmax())
                self._pass_over(ids[:first], ~found[:first])
                self._ids = np.concatenate([ids[first:], self._ids])
                return True
            self._pass_over(ids, ~found)
            together *= 2
        return bool(self._ready)

    def explain(self) -> None:
        """Count the blocks of logs that events were fetched from."""
        ids: list[int] = np.concatenate([np.empty(0, np.int64), *self._fetched]).tolist()
        self.explained.blocks = self._source.count_blocks(ids)

    def _fetch(self, ids: EventIds) -> None:
        """Fetch events; called when nothing is ready."""
        self._fetched.append(ids)
        wanted = ids.tolist()
        # An id that was given out twice, which verify names, has one number and both events.
        numbers = {event_id: number for number, event_id in reversed(list(enumerate(wanted)))}
        events = self._source.get_many(wanted)
        ordered = events if self._question.oldest_first else events[::-1]
        self._chunk, self._passed = ids, 0
        self._ready.extend((numbers[event.event_id], event) for event in ordered)

    def _pass_to(self, number: int) -> None:
        """Pass over what could not be fetched before a number of the chunk."""
        over = self._chunk[self._passed : number]
        self._pass_over(over, np.ones(len(over), np.bool_))
        self._passed = number

    def _pass_over(self, ids: EventIds, unread: npt.NDArray[np.bool_]) -> None:
        if len(ids):
            self.place = int(ids[-1])
            self.lost += self._source.lost(ids[unread])

    def _next(self, count: int) -> EventIds:
        """Return the next ids, at most `count`, none behind the last one; they are not given again."""
        if not len(self._ids) and self._may_follow:
            self._window *= 2
            self._ask()
        ids, self._ids = self._ids[:count], self._ids[count:]
        return ids

    def _ask(self, *, is_first: bool = False) -> SearchHits:
        """Ask for the ids behind the place."""
        question, source = self._question, self._source
        above, below = (self.place, None) if question.oldest_first else (None, self.place)
        window = IdRange(self._window, below, above, question.oldest_first)

        def scan_logs(shard: AddShard, asked: query.Query) -> EventIds:
            return scanned(source.log_tables(shard), asked, question.attributes)

        shards = source.shards(question.shards)
        found = search_state(shards, scan_logs, question.asked, window, count=is_first, pool=question.pool)
        self.notices.update(dict.fromkeys(found.notices))
        ids = np.unique(np.concatenate([found.event_ids, window.of(self._waiting)]))
        ids = (ids if question.oldest_first else ids[::-1])[: self._window]
        self._may_follow = len(ids) == self._window
        self._ids = ids
        return found


def scanned(tables: Iterable[pa.Table], question: query.Query, attributes: Sequence[str]) -> EventIds:
    """Return the ids of the events of some tables that match, found without an index."""
    parts = [matching(table, Scan(table, attributes), question) for table in tables]
    return np.concatenate([np.empty(0, np.int64), *parts])


def matching(table: pa.Table, scan: Scan, question: query.Query) -> EventIds:
    """Return the ids of the events of a table that match; `scan` is of that table."""
    return integers(table.column("event_id"), np.int64)[scan.match(question)]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and the writer whose id sequence it belongs to."""

    writer: str
    event: Event


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of a search; `total` is exact and counts all matches, those included that cannot be read any more.

    Each writer's events come in the order of their ids, the last stored first (or the first stored, when that was
    asked for); writers are merged by event time. `cursor` asks for the next page, None when there is none.
    `explained` says for each writer what was done.
    """

    total: int
    events: tuple[StoredEvent, ...]
    notices: tuple[str, ...]
    cursor: str | None = None
    lost: int = 0
    """How many events that match were passed over on the way to this page because they cannot be read."""
    explained: Mapping[str, SearchStats] = field(default_factory=dict, compare=False)


@dataclass(frozen=True, slots=True)
class Page:
    """Which page of the matching events is wanted.

    With `cursor` it begins behind the page that gave it; `offset` is how many events are passed over from there, or
    from the first one, for good. Events that cannot be read do not count for limit and offset.
    """

    limit: int
    offset: int = 0
    oldest_first: bool = False
    cursor: str | None = None


class _Cursor(msgspec.Struct, frozen=True):
    """For each writer the id of the event behind which the next page begins; what the text of a cursor holds."""

    oldest_first: bool
    places: dict[str, int]


def search(
    sources: Iterable[Source],
    shards: ShardCache,
    asked: query.Query,
    attributes: Sequence[str],
    page: Page,
    pool: Executor | None = None,
) -> SearchResult:
    """Return a page of the events that match.

    Raises:
        InvalidInputError: the cursor is none, or of a search in the other order; or a number is below zero.
    """
    for name, number in (("limit", page.limit), ("offset", page.offset)):
        if number < 0:
            raise InvalidInputError(f"{name}: expected 0 or more, got {number}.")
    places = _places(sources, page)
    question = Question(shards, asked, attributes, page.oldest_first, pool)
    expected = page.offset + page.limit
    together = page.limit if len(places) == 1 else -(-expected // max(len(places), 1))
    found = [Matches(source, question, place, expected + 1, max(together, 1)) for source, place in places]
    stored = _page(found, page)
    has_more = [matches.has_more() for matches in found] if page.limit else []
    for matches in found:
        matches.explain()
    notices = [notice for matches in found for notice in matches.notices]
    text = _encoded(_Cursor(page.oldest_first, {matches.writer: matches.place for matches in found}))
    return SearchResult(
        sum(matches.total for matches in found),
        tuple(stored),
        tuple(notices),
        text if any(has_more) else None,
        sum(matches.lost for matches in found),
        {matches.writer: matches.explained for matches in found},
    )


def _places(sources: Iterable[Source], page: Page) -> list[tuple[Source, int]]:
    """Return the writers that are asked, and the id behind which the page begins for each."""
    cursor = _decoded(page)
    places = []
    for source in sources:
        if cursor is not None and not page.oldest_first and source.writer not in cursor.places:
            continue  # a writer that was not there at the first page
        place = cursor.places.get(source.writer) if cursor else None
        start = source.next_event_id if not page.oldest_first else -1
        places.append((source, start if place is None else place))
    return places


def _page(found: Sequence[Matches], page: Page) -> list[StoredEvent]:
    """Take the events of a page; of several writers the next one by time."""
    if page.limit and len(found) == 1:
        found[0].skip(page.offset)
    elif page.limit:
        for _ in range(page.offset):
            if _take_next(found, page) is None:
                break
    stored: list[StoredEvent] = []
    while len(stored) < page.limit and (item := _take_next(found, page)) is not None:
        stored.append(item)
    return stored


def _take_next(found: Sequence[Matches], page: Page) -> StoredEvent | None:
    # Each writer's events stay in the order of their ids: the first of the merge are the same however long a page is.
    heads = [(event.event_time, matches) for matches in found if (event := matches.head()) is not None]
    if not heads:
        return None
    chosen = (min if page.oldest_first else max)(heads, key=lambda head: head[0])[1]
    event = chosen.take()
    return None if event is None else StoredEvent(chosen.writer, event)


def _encoded(cursor: _Cursor) -> str:
    return msgspec.json.encode(cursor).hex()


def _decoded(page: Page) -> _Cursor | None:
    if page.cursor is None:
        return None
    try:
        found = msgspec.json.decode(bytes.fromhex(page.cursor), type=_Cursor)
    except (ValueError, msgspec.DecodeError) as error:
        raise InvalidInputError("cursor: expected what the page before gave, got something else.") from error
    if found.oldest_first != page.oldest_first:
        raise InvalidInputError("cursor: it goes on with a search in the other order; give --oldest as before.")
    return found
