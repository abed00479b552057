"""One search over all writers: pages of events, a cursor to go on from, exact totals.

Each writer's events come in the order of their ids; writers are merged by event time. A cursor names, for each writer
that there was at the first page, the event after which the next page begins, whether it was given out, passed over
for the offset, or cannot be read: events that arrive meanwhile have greater ids and change neither the pages nor
their order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

import msgspec
from whoosh import query

from custody.errors import InvalidInputError
from custody.index import Shards
from custody.model import Event
from custody.query import Explained
from custody.repository.matches import Matches, Question, Source


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
    explained: Mapping[str, Explained] = field(default_factory=dict, compare=False)


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
    shards: Shards,
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
