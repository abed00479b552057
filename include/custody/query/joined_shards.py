"""The live shards of several catalogs in one list, of which those that can match a query are chosen in one go.

To choose shards takes some calls whatever their number: of eight writers as much as of one with as many shards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from whoosh import query

from custody.catalog import AddShard
from custody.index import JoinedFilters, leaves
from custody.query.cut_values import long_conditions
from custody.query.may_match import columns_asked, may_match_file
from custody.query.shard_set import NO_IDS, EventIds, SearchStats, ShardSet, time_bounds

FEW_SHARDS = 2
"""Open shards that are asked one by one: the filters of all cost 30 µs to look at, one that lacks a term 10."""


@dataclass(frozen=True, slots=True)
class ShardChoice:
    """The shards of one catalog that can match, by their numbers in it, and what was said of the others."""

    numbers: EventIds
    stats: SearchStats


@dataclass(frozen=True, slots=True)
class JoinedChoice:
    """The shards of all catalogs that can match, by their numbers among all, which go up; after each step of choosing.

    `starts` has the first number of each catalog, and behind it one more than the last of all.
    """

    starts: EventIds
    by_time: EventIds
    by_statistics: EventIds
    numbers: EventIds

    @property
    def catalogs(self) -> list[int]:
        """The numbers of the catalogs that have a shard which can match."""
        return np.flatnonzero(np.diff(np.searchsorted(self.numbers, self.starts))).tolist()

    def of(self, catalog: int) -> ShardChoice:
        """Return what was chosen of one catalog."""
        start, stop = self.starts[catalog : catalog + 2].tolist()
        own = [
            part[slice(*np.searchsorted(part, (start, stop)).tolist())]
            for part in (self.by_time, self.by_statistics, self.numbers)
        ]
        by_time, by_statistics, by_filters = map(len, own)
        stats = SearchStats(
            shards=stop - start,
            pruned=stop - start - by_filters,
            pruned_by_statistics=by_time - by_statistics,
            pruned_by_filters=by_statistics - by_filters,
        )
        return ShardChoice(own[2] - start, stats)


class JoinedShards:
    """The live shards of some catalogs, each at one state."""

    def __init__(self, sets: Sequence[ShardSet]) -> None:
        self._sets = sets
        self._live = [each.live for each in sets]
        self._starts = np.cumsum([0, *(len(live.shards) for live in self._live)])

    @cached_property
    def _times(self) -> tuple[EventIds, EventIds]:
        if len(self._live) == 1:
            return self._live[0].first_times, self._live[0].last_times
        # Of no catalog at all there are none.
        firsts = [NO_IDS, *(live.first_times for live in self._live)]
        return np.concatenate(firsts), np.concatenate([NO_IDS, *(live.last_times for live in self._live)])

    @cached_property
    def _filters(self) -> JoinedFilters:
        return JoinedFilters([each.facts.filters for each in self._sets], [live.names for live in self._live])

    def choose(self, question: query.Query) -> JoinedChoice:
        """Return the shards that can match.

        Raises:
            InvalidInputError: a kind of query that custody does not know.
        """
        first, last = time_bounds(question)
        firsts, lasts = self._times
        by_time = numbers = np.flatnonzero((firsts <= last) & (lasts >= first))
        if columns := columns_asked(question):
            numbers = numbers[[not self._is_ruled_out(number, question, columns) for number in numbers.tolist()]]
        by_statistics = numbers
        if len(numbers) and has_terms(question) and not self._are_few_open(numbers):
            long = long_conditions(question)
            # A shard whose events are gone in part is in no way special here: what matches nothing gives out nothing.
            may = self._filters.may_match(numbers, question, lambda about: not long.unanswerable(about))
            numbers = numbers if may is None else numbers[may]
        return JoinedChoice(self._starts, by_time, by_statistics, numbers)

    @cached_property
    def _shards(self) -> list[tuple[ShardSet, AddShard]]:
        return [(each, shard) for each, live in zip(self._sets, self._live, strict=True) for shard in live.shards]

    def _are_few_open(self, numbers: EventIds) -> bool:
        """Whether some shards are so few, all open, that to ask each takes less than to look at the filters of all."""
        if len(numbers) > FEW_SHARDS:
            return False
        chosen = (self._shards[number] for number in numbers.tolist())
        return all(each.opened.is_open(each.path(shard)) for each, shard in chosen)

    def _is_ruled_out(self, number: int, question: query.Query, columns: frozenset[str]) -> bool:
        """Whether the statistics that the catalog keeps of a shard's logs say that no event of theirs can match."""
        each, shard = self._shards[number]
        # A log that is not live does not count: its events are not given out, whatever they are.
        files = [each.state.files[path] for path in shard.log_paths if path in each.state.files]
        return bool(files) and not any(may_match_file(question, file, columns) for file in files)


def has_terms(question: query.Query) -> bool:
    """Whether a query has terms, of which filters know."""
    return any(isinstance(leaf, query.Term | query.Phrase) for leaf in leaves(question))
