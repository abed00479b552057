"""The live shards of a catalog as a search sees them: which can match, which events are wanted, what was done."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from whoosh import query

from custody.catalog import AddShard, CatalogState
from custody.index import OpenShard, QueryEvaluator, ShardCache, ShardFacts, TermSet, leaves

if TYPE_CHECKING:
    from custody.index import StoredShard

TIME = "event_time"
ALL_TIMES = (-(1 << 63), (1 << 63) - 1)
# Reversed bounds: no time lies between them, and a union with them changes nothing.
NO_TIMES = (ALL_TIMES[1], ALL_TIMES[0])

TimeBounds = tuple[int, int]


def time_bounds(question: query.Query) -> TimeBounds:
    """Return the least and the greatest event time that can match, ms since the epoch, both included.

    Raises:
        InvalidInputError: a kind of query that custody does not know.
    """
    return _TimeBoundsOf().evaluate(question)


def beside_times(question: query.Query) -> tuple[query.Query, TimeBounds] | None:
    """Return what a query asks beside ranges of event times, and their bounds; None if it asks for one of both alone.

    Of a shard whose events are all within the bounds, the query asks for just that.
    """
    if type(question) is not query.And:
        return None
    parts = question.children()
    times: list[query.Query] = []
    others: list[query.Query] = []
    for part in parts:
        (times if type(part) is query.NumericRange and part.fieldname == TIME else others).append(part)
    if not times or not others:
        return None
    return others[0] if len(others) == 1 else query.And(others), time_bounds(query.And(times))


class _TimeBoundsOf(QueryEvaluator[TimeBounds]):
    """Answers with bounds of the event time; a condition on another field leaves them open."""

    def all(self) -> TimeBounds:
        return ALL_TIMES

    def none(self) -> TimeBounds:
        return NO_TIMES

    def any_term(self, name: str) -> TimeBounds:
        return ALL_TIMES

    def term(self, name: str, text: str) -> TimeBounds:
        return ALL_TIMES

    def prefix(self, name: str, text: str) -> TimeBounds:
        return ALL_TIMES

    def wildcard(self, name: str, pattern: str) -> TimeBounds:
        return ALL_TIMES

    def phrase(self, name: str, words: Sequence[str]) -> TimeBounds:
        return ALL_TIMES

    def number_range(self, name: str, first: int | None, last: int | None) -> TimeBounds:
        if name != TIME:
            return ALL_TIMES
        return ALL_TIMES[0] if first is None else first, ALL_TIMES[1] if last is None else last

    def term_range(self, question: query.TermRange) -> TimeBounds:
        return ALL_TIMES

    def intersect(self, parts: Iterable[TimeBounds]) -> TimeBounds:
        firsts, lasts = zip(ALL_TIMES, *parts, strict=True)
        return max(firsts), min(lasts)

    def unite(self, parts: Iterable[TimeBounds], terms: Mapping[str, TermSet]) -> TimeBounds:
        # One term of another field already leaves all times open.
        if terms:
            return ALL_TIMES
        firsts, lasts = zip(NO_TIMES, *parts, strict=True)
        return min(firsts), max(lasts)

    def complement(self, part: TimeBounds) -> TimeBounds:
        # Bounds say what cannot match, not what does: nothing follows for the other events.
        return ALL_TIMES


def fields_of(question: query.Query) -> set[str]:
    """Return the names of the fields in a query."""
    return {name for leaf in leaves(question) if (name := getattr(leaf, "fieldname", None)) is not None}


EventIds = npt.NDArray[np.int64]
NO_IDS: EventIds = np.empty(0, np.int64)
_NAMED_MAX = 5


@dataclass(frozen=True, slots=True)
class IdRange:
    """The range of ids that a search returns: at most `limit` of them, the newest first or the oldest first.

    `below` and `above` leave out the events with these ids and all on the other side of them.
    """

    limit: int | None = None
    below: int | None = None
    above: int | None = None
    oldest_first: bool = False

    def of(self, event_ids: EventIds) -> EventIds:
        """Return what is wanted of the ids of all events that match, which go down."""
        return self.of_others(event_ids, event_ids)

    def of_others(self, event_ids: EventIds, values: EventIds) -> EventIds:
        """Return the values that belong to what is wanted of the ids of all events that match, which go down."""
        begin, end = 0, len(event_ids)
        if self.below is not None:
            begin = end - int(np.searchsorted(event_ids[::-1], self.below))
        if self.above is not None:
            end -= int(np.searchsorted(event_ids[::-1], self.above, side="right"))
        wanted = values[begin : max(end, begin)]
        return (wanted[::-1] if self.oldest_first else wanted)[: self.limit]

    @property
    def is_whole(self) -> bool:
        """Whether all events that match are wanted."""
        return self.limit is None and self.below is None and self.above is None


@dataclass(slots=True)
class OldShards:
    """Shards that were made before a field was indexed, with the number of their events, and these fields."""

    names: dict[str, int] = field(default_factory=dict)
    fields: set[str] = field(default_factory=set)

    def notices(self) -> list[str]:
        """Say which shards are old, if any are."""
        if not self.names:
            return []
        some = ", ".join(sorted(self.names, reverse=True)[:_NAMED_MAX])
        more = f" and {len(self.names) - _NAMED_MAX} others" if len(self.names) > _NAMED_MAX else ""
        fields = ", ".join(sorted(self.fields))
        return [
            f"{len(self.names)} index shards were made before {fields} was indexed: {some}{more}."
            f" Their {sum(self.names.values())} events were searched without an index, which is slow, until the step "
            "index has made them again; at once: custody index rebuild --stale"
        ]


@dataclass(frozen=True, slots=True)
class LiveShards:
    """The live shards of a state, those of the newest events first; arrays of shape (shards,), times in ms."""

    shards: tuple[AddShard, ...]
    names: tuple[str, ...]
    first_ids: EventIds
    last_ids: EventIds
    first_times: EventIds
    last_times: EventIds
    whole: npt.NDArray[np.bool_]
    """Whether the logs of all events of each are live."""
    partial: frozenset[str]
    """The names of those of which a log is not."""
    folders: dict[str, Path] = field(default_factory=dict)
    """Of those that were opened, by their names: to make a path takes longer than to find what is open."""

    @classmethod
    def of(cls, state: CatalogState) -> LiveShards:
        """Return the live shards of a state."""
        shards = tuple(sorted(state.shards.values(), key=lambda shard: shard.first_event_id, reverse=True))
        whole = [all(path in state.files for path in shard.log_paths) for shard in shards]
        return cls(
            shards,
            tuple(shard.name for shard in shards),
            np.array([shard.first_event_id for shard in shards], np.int64),
            np.array([shard.last_event_id for shard in shards], np.int64),
            np.array([shard.first_event_time_ms for shard in shards], np.int64),
            np.array([shard.last_event_time_ms for shard in shards], np.int64),
            np.array(whole, np.bool_),
            frozenset(shard.name for shard, is_whole in zip(shards, whole, strict=True) if not is_whole),
        )

    def bounds(self) -> EventIds:
        """Return the ids and times of the first and last events of each, shape (shards, 4)."""
        return np.stack([self.first_ids, self.last_ids, self.first_times, self.last_times], axis=1)

    def within(self, times: TimeBounds) -> EventIds:
        """Return the numbers of the shards that have events between two times, both included."""
        return np.flatnonzero((self.first_times <= times[1]) & (self.last_times >= times[0]))

    def are_within(self, numbers: EventIds, times: TimeBounds) -> npt.NDArray[np.bool_]:
        """Return of which of some shards all events are between two times, both included, shape (numbers,)."""
        within: npt.NDArray[np.bool_] = self.first_times[numbers] >= times[0]
        within &= self.last_times[numbers] <= times[1]
        return within

    def overlap(self, numbers: EventIds) -> bool:
        """Whether the ranges of ids of some shards overlap; their numbers go up."""
        return bool((self.first_ids[numbers[:-1]] <= self.last_ids[numbers[1:]]).any())


@dataclass(frozen=True, slots=True)
class ShardSet:
    """The live shards of a catalog, and the ids of live events that must not be given out (`buried`), sorted."""

    opened: ShardCache
    state: CatalogState
    live: LiveShards
    """Those of the state, in their order."""
    find_folder: Callable[[AddShard], Path]
    buried: EventIds = field(default_factory=lambda: NO_IDS)
    stored: Callable[[AddShard], StoredShard | None] = lambda _: None
    """Opens a shard of an object store; None where its folder is on this machine, or there is no such store."""
    facts: ShardFacts = field(default_factory=ShardFacts)
    """What is kept of shards from one search to the next."""

    def path(self, shard: AddShard) -> Path:
        """Return the folder of a shard."""
        folders = self.live.folders
        # Without a lock: two threads find the same.
        folder = folders.get(shard.name)
        if folder is None:
            folder = folders[shard.name] = self.find_folder(shard)
        return folder

    def open(self, shard: AddShard) -> OpenShard:
        """Return a shard, open.

        Raises:
            NotFoundError, CorruptionError, FormatVersionError: it cannot be read.
        """

        def check(opened: OpenShard) -> None:
            # Two shards whose folders were exchanged would answer for each other.
            ids, times = (
                (shard.first_event_id, shard.last_event_id),
                (shard.first_event_time_ms, shard.last_event_time_ms),
            )
            opened.require(shard.documents, (*ids, *times))

        return self.opened.open(self.path(shard), lambda: self.stored(shard), check)

    def buried_in(self, shard: AddShard) -> EventIds:
        """Return which ids of a shard's range must not be given out."""
        if not len(self.buried):
            return NO_IDS
        begin, end = np.searchsorted(self.buried, (shard.first_event_id, shard.last_event_id + 1)).tolist()
        return self.buried[begin:end]

    def giving_out_all(self, numbers: EventIds) -> npt.NDArray[np.bool_]:
        """Return which of some shards, by their numbers, give out all of their events, shape (numbers,)."""
        live = self.live
        gives_all: npt.NDArray[np.bool_] = live.whole[numbers]
        if not len(self.buried):
            return gives_all
        begins = np.searchsorted(self.buried, live.first_ids[numbers])
        ends = np.searchsorted(self.buried, live.last_ids[numbers], side="right")
        gives_all &= begins == ends
        return gives_all

    def is_whole(self, shard: AddShard) -> bool:
        """Whether the logs of all events of a shard are live."""
        return shard.name not in self.live.partial

    def current(self, shard: AddShard, fields: Collection[str], old: OldShards) -> OpenShard | None:
        """Return a shard, open; None, and noted, when it was made before one of some fields was indexed.

        Raises:
            NotFoundError, CorruptionError, FormatVersionError: it cannot be read.
        """
        if shard.name in old.names:
            return None
        index = self.open(shard)
        if index.fields.issuperset(fields):
            return index
        # It may have been rebuilt since it was opened.
        # An open shard stays mapped when its folder is replaced: the new one may have the field.
        self.opened.forget(self.path(shard))
        index = self.open(shard)
        lacking = set(fields).difference(index.fields)
        if not lacking:
            return index
        old.names[shard.name] = shard.documents
        old.fields |= lacking
        return None


@dataclass(slots=True)
class SearchStats:
    """The statistics of a search: how many shards were handled in which way, and how long it took."""

    shards: int = 0
    pruned: int = 0
    """Not opened: no event of theirs can match, by time, by the statistics of their logs, or by filters of terms."""
    pruned_by_statistics: int = 0
    """Those of them that only the statistics ruled out: bounds of sizes, times of lineage, sources."""
    pruned_by_filters: int = 0
    """Those of them that only the filters of terms ruled out, which a process keeps of shards that it asked before."""
    searched: int = 0
    counted: int = 0
    """Asked for the number of matches only."""
    scanned: int = 0
    """Answered from their logs."""
    old: int = 0
    """Those of them that do not know a field that is asked for."""
    blocks: int = 0
    """Blocks of event logs that events were fetched from."""
    scanned_blocks: int = 0
    """Blocks of the logs that were read instead of shards, as far as the catalog knows them."""
    scanned_blocks_pruned: int = 0
    """Those of them that were not read: by their bounds no event of theirs can match."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class SearchHits:
    """The ids of a search in the requested order; `total` counts all matches, None when it was not requested."""

    event_ids: EventIds
    total: int | None
    notices: tuple[str, ...]
    explained: SearchStats
    times: EventIds | None = None
    """When these events happened, ms since the epoch; None where the index does not tell, or nobody asked."""
