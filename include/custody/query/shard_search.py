"""The search over the live shards of one catalog, without the events whose log is gone.

Shards whose times cannot match are not opened, nor those of which an earlier search found out that nothing matches.
The others are asked from the newest to the oldest, and no more of them than the wanted events need; an exact total asks
all of them, but keeps no events. A shard that is gone, damaged, or older than a field of the query, is answered from
its logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeVar

import numpy as np
from whoosh import query

from custody.catalog import AddShard, CatalogState
from custody.errors import CorruptionError, FormatVersionError, NotFoundError
from custody.format.number_sets import distinct, is_among
from custody.index import OpenShard, Plan
from custody.query.cut_values import CutShards, long_conditions
from custody.query.joined_shards import JoinedShards, ShardChoice, has_terms
from custody.query.shard_set import (
    NO_IDS,
    EventIds,
    IdRange,
    OldShards,
    SearchHits,
    SearchStats,
    ShardSet,
    beside_times,
    fields_of,
)
from custody.store import carried

# Bounds how many shards are opened ahead of a search that may need no more of them.
_WAVE_MAX = 16
_Answer = TypeVar("_Answer")


class _KnownCounts:
    """How many events match a query in shards, as far as earlier searches found out."""

    def __init__(self, live: ShardSet, question: query.Query, *, are_wanted: bool) -> None:
        self._live = live
        self._counts = self._within = live.facts.counts_of(question, in_files=are_wanted)
        self._times = None
        apart = beside_times(question)
        if apart is not None:
            # Of a shard within the times the number is that of every other question whose times have it as a whole.
            others, self._times = apart
            self._within = live.facts.counts_of(others, in_files=are_wanted)

    def of(self, numbers: EventIds, shards: Sequence[AddShard]) -> Mapping[str, int]:
        """Return what is known, by the names of the shards, of those of some that give out all of their events."""
        if not self._counts and not self._within:
            return {}
        gives_out_all = self._live.giving_out_all(numbers)
        if self._times is None and gives_out_all.all():
            return self._counts
        # Once a question, over all shards, however few of them are asked: nothing more belongs into it.
        is_within = [True] * len(shards)
        if self._times is not None:
            is_within = self._live.live.are_within(numbers, self._times).tolist()
        found: dict[str, int] = {}
        for shard, gives_all, within in zip(shards, gives_out_all.tolist(), is_within, strict=True):
            count = (self._within if within else self._counts).get(shard.name) if gives_all else None
            if count is not None:
                found[shard.name] = count
        return found

    def put(self, shard: AddShard, count: int) -> None:
        """Keep how many events of a shard match, if it gives out all of its events: then the number stays the same."""
        if not self._live.is_whole(shard) or len(self._live.buried_in(shard)):
            return
        times = self._times
        is_within = times is None or (times[0] <= shard.first_event_time_ms and shard.last_event_time_ms <= times[1])
        (self._within if is_within else self._counts)[shard.name] = count


class _NeedsLogsError(Exception):
    """A shard cannot answer: its logs have to, and they are read by the thread of the search alone."""


def search_state(
    live: ShardSet,
    scan_logs: Callable[[AddShard, query.Query], EventIds],
    question: query.Query,
    id_range: IdRange | None = None,
    *,
    count: bool = True,
    pool: Executor | None = None,
    is_parallel: bool = False,
    with_times: bool = False,
    choice: ShardChoice | None = None,
) -> SearchHits:
    """Ask the live shards; `scan_logs` returns the ids of the matching events of a shard's logs, without the shard.

    Shards that are not open yet are opened by the threads of `pool`; with `is_parallel` its threads also ask them,
    several at once, for the same answers in the same order. With `with_times` the times of events are looked up, too.
    `choice` is what was chosen of the shards, where it was chosen for several catalogs together.

    Raises:
        InvalidInputError: a kind of query that custody does not know.
    """
    start = time.perf_counter()
    search = _Search(
        live, scan_logs, _Asked(question), id_range or IdRange(), pool if is_parallel else None, with_times, choice
    )
    event_ids, total = search.run(count, pool)
    search.explained.old = len(search._old.names)
    search.notices += [*search._old.notices(), *search._cut.notices()]
    search.explained.seconds = time.perf_counter() - start
    times = search.times_of(event_ids) if with_times else None
    return SearchHits(event_ids, total if count else None, tuple(search.notices), search.explained, times)


class _Asked:
    """A query, and what is made of it once for all shards."""

    def __init__(self, question: query.Query) -> None:
        self.question = question
        self.fields = fields_of(question)
        self.long = long_conditions(question)
        self.has_terms = has_terms(question)

    @cached_property
    def plan(self) -> Plan:
        return Plan(self.question)


@dataclass
class _Search:
    live: ShardSet
    scan_logs: Callable[[AddShard, query.Query], EventIds]
    asked: _Asked
    id_range: IdRange
    asking: Executor | None = None
    """Its threads ask several shards at once."""
    with_times: bool = False
    choice: ShardChoice | None = None
    notices: list[str] = field(default_factory=list)
    explained: SearchStats = field(default_factory=SearchStats)

    def __post_init__(self) -> None:
        self._failed: set[str] = set()
        """The names of shards that could not be read."""
        self._old = OldShards()
        self._cut = CutShards()
        self._missing = self.id_range.limit
        """How many ids the page lacks; None for all."""
        self._times: list[tuple[EventIds, EventIds]] = []
        """Ids that shards gave, and the times of their events."""

    def run(self, count: bool, pool: Executor | None) -> tuple[EventIds, int]:
        numbers, candidates, do_overlap = self._candidates()
        # Shards of one catalog hold disjoint ranges of ids as a rule. Only after a rebuild, or with gaps in the ids,
        # do ranges overlap; then the order of shards is not the order of events.
        if do_overlap:
            return self._merge_overlapping(candidates)
        memo = _KnownCounts(self.live, self.asked.question, are_wanted=count)
        known = memo.of(numbers, candidates)
        ordered = [shard for shard in candidates if known.get(shard.name) != 0] if known else candidates
        parts: list[EventIds] = []
        counted: dict[str, int] = {}
        for shards in self._opened(ordered[::-1] if self.id_range.oldest_first else ordered, pool):
            # Shards behind these hold only older events (or newer ones, oldest first): the page is full.
            if self._is_full():
                break
            for shard, (ids, whole) in self._each(shards, _Search._next_ids):
                # Asked at once with others, a shard gave as many as the page lacked before them.
                parts.append(ids[: self._missing])
                if whole is not None:
                    counted[shard.name] = whole
                    self._remember(memo, shard, whole)
                self._missing = None if self._missing is None else self._missing - len(parts[-1])
                if self._is_full():
                    break
        event_ids = np.concatenate(parts) if parts else NO_IDS
        if not count:
            return event_ids, 0
        rest = [shard for shard in candidates if shard.name not in counted]
        return event_ids, sum(counted.values()) + self._rest(memo, known, rest)

    def times_of(self, event_ids: EventIds) -> EventIds | None:
        """Return the times of events that this search found; None where a shard did not tell."""
        ids = np.concatenate([NO_IDS, *(ids for ids, _ in self._times)])
        times = np.concatenate([NO_IDS, *(times for _, times in self._times)])
        if len(ids) == len(event_ids) and (ids == event_ids).all():
            return times
        if not len(ids):
            return None
        order = np.argsort(ids)
        places = order[np.searchsorted(ids[order], event_ids).clip(max=len(ids) - 1)]
        return times[places] if (ids[places] == event_ids).all() else None

    def _rest(self, memo: _KnownCounts, known: Mapping[str, int], shards: Sequence[AddShard]) -> int:
        """Return how many events match of the shards that were not counted yet."""
        total, unknown = 0, list[AddShard]()
        # As many as the question has shards: nothing more belongs into this loop.
        for shard in shards:
            number = known.get(shard.name)
            if number is None:
                unknown.append(shard)
            else:
                total += number
        self.explained.counted += len(shards) - len(unknown)
        for shard, number in self._each(unknown, _Search._count):
            total += number
            self._remember(memo, shard, number)
        return total

    def _remember(self, memo: _KnownCounts, shard: AddShard, count: int) -> None:
        """Keep how many events of a shard match for the next search."""
        # Not of one that is damaged or old: its logs were counted, and it may be whole the next time.
        if shard.name not in self._failed and shard.name not in self._old.names:
            memo.put(shard, count)

    def _is_full(self) -> bool:
        return self._missing is not None and self._missing <= 0

    def _each(
        self, shards: Sequence[AddShard], ask: Callable[[_Search, AddShard], _Answer]
    ) -> Iterator[tuple[AddShard, _Answer]]:
        """Yield shards in their order with their answers; with threads, several are asked at once.

        What is noted and counted is that of the answers that were taken, in their order, whatever the threads did.
        """
        if self.asking is None or len(shards) == 1:
            for shard in shards:
                yield shard, ask(self, shard)
            return

        missing, names, fields = self._missing, dict(self._old.names), set(self._old.fields)

        def work(shard: AddShard) -> tuple[_Search, _Answer] | None:
            search = _Search(self.live, _refuse, self.asked, self.id_range, with_times=self.with_times)
            # As it is now: this search goes on while the threads work.
            search._missing, search._old = missing, OldShards(dict(names), set(fields))
            try:
                return search, ask(search, shard)
            except _NeedsLogsError:
                return None

        for shard, done in zip(shards, self.asking.map(carried(work), shards), strict=True):
            if done is None:
                yield shard, ask(self, shard)
                continue
            search, answer = done
            self.explained.searched += search.explained.searched
            self.explained.counted += search.explained.counted
            self._times += search._times
            yield shard, answer

    def _candidates(self) -> tuple[EventIds, list[AddShard], bool]:
        """Return the shards that can match, their numbers first, the newest events first; and whether their ranges of
        ids overlap.
        """
        choice = self.choice or JoinedShards((self.live,)).choose(self.asked.question).of(0)
        self.explained = choice.stats
        live = self.live.live
        shards = [live.shards[number] for number in choice.numbers.tolist()]
        return choice.numbers, shards, live.overlap(choice.numbers)

    def _may_hold(self, shard: AddShard) -> bool:
        """Whether ids of the range can be in a shard."""
        below, above = self.id_range.below, self.id_range.above
        return (below is None or shard.first_event_id < below) and (above is None or shard.last_event_id > above)

    def _is_within(self, shard: AddShard) -> bool:
        """Whether all ids of a shard are in the range, so that those within it are all its matches."""
        below, above = self.id_range.below, self.id_range.above
        return (below is None or shard.last_event_id < below) and (above is None or shard.first_event_id > above)

    def _opened(self, ordered: Sequence[AddShard], pool: Executor | None) -> Iterator[list[AddShard]]:
        """Yield the shards that may hold ids of the range in waves that grow; a wave is opened at once."""
        remaining = filter(self._may_hold, ordered)
        wave = 1
        while shards := list(islice(remaining, wave)):
            if pool is not None:
                closed = [shard for shard in shards if not self.live.opened.is_open(self.live.path(shard))]
                if len(closed) > 1:
                    list(pool.map(carried(self._open_quietly), closed))
            yield shards
            # Waves grow: the newest shard alone often answers, and a search without a limit soon opens many at once.
            wave = min(2 * wave, _WAVE_MAX)

    def _open_quietly(self, shard: AddShard) -> None:
        try:
            self.live.open(shard)
        # Not remembered here, in a thread of the pool: `_ask` meets the same error and says so once.
        except (NotFoundError, CorruptionError, FormatVersionError):
            return  # reported when the shard is asked

    def _next_ids(self, shard: AddShard) -> tuple[EventIds, int | None]:
        """Return as many ids of a shard as the page lacks; see `_ids_within`."""
        return self._ids_within(shard, self._missing)

    def _ids_within(self, shard: AddShard, limit: int | None) -> tuple[EventIds, int | None]:
        """Return the ids of one shard within the range, and the number of all its matches where that is known then."""
        id_range = self.id_range
        buried = self.live.buried_in(shard)
        # Hidden events may be among the first matches: ask for as many more as there can be.
        enough = None if limit is None else limit + len(buried)
        # Otherwise the shard knows events whose log is gone: all its ids are read and compared with the live logs.
        if self.live.is_whole(shard):
            ids = self._ask(shard, lambda index: self._ids_of(index, enough))
            if ids is not None:
                self.explained.searched += 1
                is_all = self._is_within(shard) and (enough is None or len(ids) < enough)
                shown = _without(ids, buried)
                return shown[:limit], len(shown) if is_all else None
        everything = self._all_ids(shard)
        return IdRange(limit, id_range.below, id_range.above, id_range.oldest_first).of(everything), len(everything)

    def _ids_of(self, index: OpenShard, limit: int | None) -> EventIds:
        """Return as many ids of a shard within the range; with times, those are kept."""
        within, order = self.id_range, self.id_range.oldest_first
        if not self.with_times:
            return index.search(self.asked.plan, limit, below=within.below, above=within.above, oldest_first=order)
        ids, times = index.search_with_times(
            self.asked.plan, limit, below=within.below, above=within.above, oldest_first=order
        )
        self._times.append((ids, times))
        return ids

    def _count(self, shard: AddShard) -> int:
        if self.live.is_whole(shard):
            buried = self.live.buried_in(shard)
            total = self._ask(
                shard, lambda index: index.count(self.asked.plan) - index.count_of(self.asked.plan, buried)
            )
            if total is not None:
                self.explained.counted += 1
                return total
        return len(self._all_ids(shard))

    def _all_ids(self, shard: AddShard) -> EventIds:
        """Return the ids of all live events of a shard that match, going down."""
        ids = self._ask(shard, lambda index: index.search(self.asked.plan))
        if ids is None:
            ids = self._scan(shard)
        shown = _without(ids, self.live.buried_in(shard))
        return shown if self.live.is_whole(shard) else _live(self.live.state, shown)

    def _scan(self, shard: AddShard) -> EventIds:
        """Return the ids of the events of a shard's logs that match, going down."""
        self.explained.scanned += 1
        # In the order in which an index would give them, each id once.
        return distinct(self.scan_logs(shard, self.asked.question))[::-1]

    def _merge_overlapping(self, candidates: list[AddShard]) -> tuple[EventIds, int]:
        """Answer from shards whose id ranges overlap: each is asked for all its matches."""
        self.explained.searched += len(candidates)
        ids = distinct(np.concatenate([self._all_ids(shard) for shard in candidates]))[::-1]
        return self.id_range.of(ids), len(ids)

    def _ask(self, shard: AddShard, ask: Callable[[OpenShard], _Answer]) -> _Answer | None:
        """Return what a shard answers, None when it cannot be read."""
        try:
            index = self.live.current(shard, self.asked.fields, self._old)
            if index is None:
                return None
            if unanswerable := self.asked.long.unanswerable(index.description):
                self._cut.add(shard.name, shard.documents, unanswerable)
                return None
            if self.asked.has_terms:
                self.live.facts.filters.offer(shard.name, index)
            answer = ask(index)
        except (NotFoundError, CorruptionError, FormatVersionError) as error:
            # Not kept open: it may be rebuilt at any moment, and the next search is to see the new one.
            self.live.opened.forget(self.live.path(shard))
            self._failed.add(shard.name)
            notice = f"{shard.documents} events were searched without an index, which is slow: {error}"
            # A shard is asked twice, for ids and for the total, and would be named twice.
            if notice not in self.notices:
                self.notices.append(notice)
            return None
        return answer


def _refuse(shard: AddShard, question: query.Query) -> EventIds:
    """Take the place of `scan_logs` in the threads that ask shards."""
    raise _NeedsLogsError(shard.name)


def _without(event_ids: EventIds, buried: EventIds) -> EventIds:
    """Drop the ids of events that must not be given out."""
    return event_ids[~is_among(event_ids, buried)] if len(buried) else event_ids


def _live(state: CatalogState, event_ids: EventIds) -> EventIds:
    """Drop ids that no live log holds: the shard outlived their log."""
    files = sorted(state.files.values(), key=lambda file: file.first_event_id)
    firsts = np.array([file.first_event_id for file in files], np.int64)
    lasts = np.array([file.last_event_id for file in files], np.int64)
    if not files:
        return event_ids[:0]
    # Live logs do not overlap, so the last log that begins at or before an id is the only one that can hold it.
    holder = np.searchsorted(firsts, event_ids, side="right") - 1
    return event_ids[(holder >= 0) & (event_ids <= lasts[holder])]
