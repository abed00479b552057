"""The first matches of several writers in one order, from which pages are cut without another look at an index.

Of each writer a window of ids and times is known. Within a writer events follow each other by id, whatever their times
say: an event waits for those before it. So the key of an event is the least time up to it (the greatest, oldest first),
and a stable sort of the keys is the merge. What matches in shards that do not change stays the same, so the order is
kept for the next page, and for a page that is looked at again.

Whether an event can be read decides what comes next: each is read, or found to be readable, before a page relies on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from whoosh import query

from custody.index import leaves
from custody.model import Event
from custody.query import SearchStats
from custody.read.cache import EventIds, EventKey, caches_of
from custody.read.found_events import FoundEvents, objects_of
from custody.read.views import side_by_side

if TYPE_CHECKING:
    from custody.read.search import SearchSource

KEPT_MAX = 2048
"""Matches of each writer that are kept of a query, at most: twenty pages of a hundred."""
_QUERIES_MAX = 64
# A query with more conditions takes longer to compare than to ask.
_LEAVES_MAX = 32


@dataclass(frozen=True, slots=True)
class Window:
    """The first matches of a writer, whose ids go up or down, with their times, ms since the epoch."""

    source: int
    """The number of the writer among those that are searched."""
    ids: EventIds
    times: EventIds
    total: int
    """How many there are in all."""
    stats: SearchStats


class Cut(NamedTuple):
    """A page: its events, each with the number of its window, and how much of each window lies before its end."""

    events: list[tuple[int, Event]]
    firsts: list[int]
    ends: list[int]


class MergedMatches:
    """The first matches of several writers in the order of a page; may be used by several threads.

    Args:
        windows: of each writer that has any; each has `reach` matches and one more, or all that there are.
        oldest_first: the order.
        reach: how many matches of all are in order.
    """

    def __init__(self, windows: Sequence[Window], reach: int, *, oldest_first: bool) -> None:
        self.windows = windows
        self._oldest_first = oldest_first
        keys = [
            np.maximum.accumulate(each.times) if oldest_first else -np.minimum.accumulate(each.times)
            for each in windows
        ]
        # Of one time the first writer's come first.
        order = np.argsort(np.concatenate(keys), kind="stable")[:reach]
        self._owners = np.repeat(np.arange(len(windows)), [len(each.ids) for each in windows])[order]
        self._is_whole = len(order) < reach
        """Whether these are all matches."""
        self.total = sum(each.total for each in windows)
        self._readable = [0] * len(windows)
        """How many of the first matches of each window were found to be readable."""
        self._kept: list[tuple[int, EventKey] | None] = [None] * len(order)
        """Of matches whose events were kept: the window, and the key in the cache of events."""

    def reaches(self, end: int) -> bool:
        """Whether so many matches are in order, or all that there are."""
        return self._is_whole or end <= len(self._owners)

    def begin_of(self, places: Sequence[int | None]) -> int | None:
        """Return how many matches lie before some places, the id of the last match before in each window or None.

        None where that is no beginning of this order.
        """
        passed = []
        for each, place in zip(self.windows, places, strict=True):
            # The ids go up oldest first, down otherwise.
            ids, wanted = (each.ids, place) if self._oldest_first else (-each.ids, None if place is None else -place)
            passed.append(0 if wanted is None else int(np.searchsorted(ids, wanted, side="right")))
        begin = sum(passed)
        if begin > len(self._owners) or self._counts(begin) != passed:
            return None
        return begin

    def cut(self, sources: Sequence[SearchSource], begin: int, end: int, *, keep: bool) -> Cut | None:
        """Return the matches from one place in the order up to another one; None where one on the way cannot be read.

        With `keep` the cache keeps the events themselves.
        """
        firsts, ends = self._counts(begin), self._counts(end)
        kept = self._from_cache(sources, begin, end) if keep else None
        if kept is not None:
            return Cut(kept, firsts, ends)
        numbers = [number for number, behind in enumerate(ends) if behind > firsts[number]]
        if not all(self._is_readable(sources, number, firsts[number], ends[number]) for number in range(len(ends))):
            return None

        def ids_of(number: int) -> EventIds:
            ids = self.windows[number].ids[firsts[number] : ends[number]]
            return ids if self._oldest_first else ids[::-1]

        def find(number: int) -> FoundEvents:
            return sources[self.windows[number].source].find(ids_of(number), keep=keep)

        of = [sources[self.windows[number].source].workspace for number in numbers]
        found = side_by_side(find, numbers, of=of)
        read_of: dict[int, Iterator[tuple[Event, EventKey | None]]] = {}
        # The rows of all writers become events in one go.
        made = objects_of(found, caches_of(sources[0].workspace).events) if found else []
        for number, of_writer, objects in zip(numbers, found, made, strict=True):
            wanted = ids_of(number)
            events = sources[self.windows[number].source].given(wanted, objects)
            # More than that are events of an id that was given out twice.
            if len(events) != len(wanted):
                return None
            ordered = events if self._oldest_first else events[::-1]
            read_of[number] = iter([(event, of_writer.keys.get(event.event_id) if keep else None) for event in ordered])
        for number, (behind, each) in enumerate(zip(ends, self.windows, strict=True)):
            self._readable[number] = max(self._readable[number], min(behind + 1, len(each.ids)))
        cut = []
        for place, number in enumerate(self._owners[begin:end].tolist(), begin):
            event, key = next(read_of[number])
            cut.append((number, event))
            if key is not None:
                self._kept[place] = number, key
        return Cut(cut, firsts, ends)

    def _counts(self, end: int) -> list[int]:
        """Return how many of the first matches in order each window has."""
        return np.bincount(self._owners[:end], minlength=len(self.windows)).tolist()  # type: ignore[no-any-return]

    def _from_cache(self, sources: Sequence[SearchSource], begin: int, end: int) -> list[tuple[int, Event]] | None:
        """Return the events of a page that was read before, if it has any and all are kept."""
        places = self._kept[begin:end]
        # An offset behind the last match asks for no place at all, so none lacks its event. What was passed over may be
        # unreadable all the same, and has to be counted as lost. Behind events that are kept, `cut` looked already.
        if not places:
            return None
        known = [place for place in places if place is not None]
        if len(known) < len(places):
            return None
        cached = caches_of(sources[0].workspace).events.get_many([key for _, key in known])
        found = [(number, event) for (number, _), event in zip(known, cached, strict=True) if event is not None]
        return found if len(found) == len(places) else None

    def _is_readable(self, sources: Sequence[SearchSource], number: int, first: int, end: int) -> bool:
        """Whether those before some events of a window, and the one behind them, can be read."""
        ids, known = self.windows[number].ids, self._readable[number]
        # That behind them, too: without it, those that follow might come before what other writers have.
        others = np.concatenate([ids[known:first], ids[max(end, known) : end + 1]])
        return not len(others) or bool(sources[self.windows[number].source].readable(others).all())


class KeptMatches:
    """The orders of the last queries, of writers at one state; may be used by several threads."""

    def __init__(self) -> None:
        self._merged: dict[tuple[query.Query, bool], MergedMatches] = {}
        self._lock = Lock()

    def get(self, question: query.Query, *, oldest_first: bool) -> MergedMatches | None:
        """Return what is kept of a query."""
        if len(leaves(question)) > _LEAVES_MAX:
            return None
        with self._lock:
            merged = self._merged.pop((question, oldest_first), None)
            if merged is not None:
                self._merged[question, oldest_first] = merged
            return merged

    def put(self, question: query.Query, merged: MergedMatches, *, oldest_first: bool) -> None:
        """Keep the order of a query."""
        if len(leaves(question)) > _LEAVES_MAX:
            return
        with self._lock:
            self._merged[question, oldest_first] = merged
            while len(self._merged) > _QUERIES_MAX:
                del self._merged[next(iter(self._merged))]
