"""One writer's part of a search: its events that match, one after the other, fetched as they are needed.

An index knows of events that nobody can read any more. They are passed over and counted, wherever they lie: a page is
filled with what can be read, and the place where the next one begins is behind all that was given out or passed over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from whoosh import query

from custody.catalog import AddShard, CatalogState
from custody.index import Shards, integers
from custody.model import Event
from custody.query import Found, LiveShards, Scan, Window, search_state

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

    def shards(self, opened: Shards) -> LiveShards:
        """Return the writer's live shards."""
        return LiveShards(opened, self.state, self.shard_path, self.buried)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of each writer."""

    shards: Shards
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

    def _ask(self, *, is_first: bool = False) -> Found:
        """Ask for the ids behind the place."""
        question, source = self._question, self._source
        above, below = (self.place, None) if question.oldest_first else (None, self.place)
        window = Window(self._window, below, above, question.oldest_first)

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
