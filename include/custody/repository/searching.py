"""One search over all writers: pages of events, a cursor to go on from, exact totals.

Each writer's events come in the order of their ids; writers are merged by event time. A cursor names, for each writer
that there was at the first page, the event after which the next page begins: events that arrive meanwhile have
greater ids and change neither the pages nor their order.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.catalog import AddShard, CatalogState
from custody.errors import InvalidInputError
from custody.index import Shards, integers
from custody.model import Event
from custody.query import Explained, LiveShards, Scan, Window, search_state

EventIds = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class StoredEvent:
    """An event and the writer whose id sequence it belongs to."""

    writer: str
    event: Event


@dataclass(frozen=True, slots=True)
class SearchResult:
    """A page of a search; `total` is exact and counts all matches.

    Each writer's events come in the order of their ids, the last stored first (or the first stored, when that was
    asked for); writers are merged by event time. `cursor` asks for the next page, None when there is none.
    `explained` says for each writer what was done.
    """

    total: int
    events: tuple[StoredEvent, ...]
    notices: tuple[str, ...]
    cursor: str | None = None
    explained: Mapping[str, Explained] = field(default_factory=dict, compare=False)


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
    count_blocks: Callable[[Sequence[int]], int]
    """How many blocks of logs `get_many` reads."""

    def shards(self, opened: Shards) -> LiveShards:
        """Return the writer's live shards."""
        return LiveShards(opened, self.state, self.shard_path, self.buried)


@dataclass(frozen=True, slots=True)
class Page:
    """Which page of the matching events is wanted; with `cursor` the one behind the page that gave it."""

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
    shards: Shards,
    question: query.Query,
    attributes: Sequence[str],
    page: Page,
    pool: Executor | None = None,
) -> SearchResult:
    """Return a page of the events that match.

    Raises:
        InvalidInputError: the cursor is none, or of a search in the other order.
    """
    cursor = _decoded(page)
    total = 0
    notices: list[str] = []
    explained: dict[str, Explained] = {}
    places: dict[str, int] = {}
    wanted: dict[str, tuple[Source, list[int]]] = {}
    for source in sources:
        if cursor is not None and not page.oldest_first and source.writer not in cursor.places:
            continue  # a writer that was not there at the first page
        place = cursor.places.get(source.writer) if cursor else None
        start = source.next_event_id if not page.oldest_first else -1
        places[source.writer] = start if place is None else place
        ids, count, said, done = _ids(source, shards, question, attributes, page, places[source.writer], pool)
        wanted[source.writer] = source, ids
        total += count
        notices += said
        explained[source.writer] = done
    stored = list(islice(_merged(wanted, page), page.limit))
    for writer, (source, ids) in wanted.items():
        explained[writer].blocks = source.count_blocks(_fetched(wanted, ids, page))
    for item in stored:
        places[item.writer] = item.event.event_id
    has_more = sum(len(ids) for _, ids in wanted.values()) > page.offset + len(stored)
    text = _encoded(_Cursor(page.oldest_first, places)) if has_more and stored else None
    return SearchResult(total, tuple(stored), tuple(notices), text, explained)


def _ids(
    source: Source,
    shards: Shards,
    question: query.Query,
    attributes: Sequence[str],
    page: Page,
    place: int,
    pool: Executor | None,
) -> tuple[list[int], int, tuple[str, ...], Explained]:
    """Return the ids that the page may need of one writer, one more than that, and the number of all that match."""
    limit = page.offset + page.limit + 1
    above, below = (place, None) if page.oldest_first else (None, place)
    window = Window(limit, below, above, page.oldest_first)

    def scan_logs(shard: AddShard, asked: query.Query) -> EventIds:
        return _scanned(source.log_tables(shard), asked, attributes)

    found = search_state(source.shards(shards), scan_logs, question, window, pool=pool)
    waiting = np.sort(_matching(source.tail, source.tail_scan, question))[::-1]
    ids = np.sort(np.concatenate([found.event_ids, window.of(waiting)]))
    ordered = ids if page.oldest_first else ids[::-1]
    return ordered[:limit].tolist(), (found.total or 0) + len(waiting), found.notices, found.explained


def _scanned(tables: Iterable[pa.Table], question: query.Query, attributes: Sequence[str]) -> EventIds:
    """Return the ids of the events of some tables that match, found without an index."""
    parts = [_matching(table, Scan(table, attributes), question) for table in tables]
    return np.concatenate([np.empty(0, np.int64), *parts])


def _matching(table: pa.Table, scan: Scan, question: query.Query) -> EventIds:
    return integers(table.column("event_id"), np.int64)[scan.match(question)]


def _merged(wanted: Mapping[str, tuple[Source, list[int]]], page: Page) -> Iterator[StoredEvent]:
    """Yield the events of the page and behind it; without other writers only those of the page are fetched."""
    if len(wanted) == 1:
        [(source, ids)] = wanted.values()
        yield from _stored(source, _fetched(wanted, ids, page), page)
        return
    events = [_stored(source, ids, page) for source, ids in wanted.values()]
    # Merged, not sorted: the first events of the merge stay the same however long a page is.
    merged = heapq.merge(*events, key=lambda stored: stored.event.event_time, reverse=not page.oldest_first)
    yield from islice(merged, page.offset, page.offset + page.limit)


def _fetched(wanted: Mapping[str, object], ids: list[int], page: Page) -> list[int]:
    """Return which ids of a writer are fetched: of one among several, all that may be on the page."""
    return ids[page.offset : page.offset + page.limit] if len(wanted) == 1 else ids


def _stored(source: Source, ids: list[int], page: Page) -> list[StoredEvent]:
    stored = [StoredEvent(source.writer, event) for event in source.get_many(ids)]
    return stored if page.oldest_first else stored[::-1]


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
