"""custody's own shards, searched as those of a catalog are: the filters of all together, then what may match.

What a search keeps for the same question is dropped before each: `again` measures with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from whoosh import query

from benchmarks.index.peers.base import TIMED, Answer, InProcess
from benchmarks.index.peers.whoosh_peer import as_whoosh
from benchmarks.index.workload import ATTRIBUTES, LIMIT, Question, Rows
from custody.catalog import AddShard
from custody.catalog.persistent_map import PersistentMap
from custody.catalog.state import EMPTY
from custody.format.names import FILTERS, filters_name
from custody.index import (
    OpenShard,
    ShardCache,
    ShardFacts,
    build_shard,
    filter_files,
    shard_filter,
    write_filter_file,
)
from custody.index.fields import Layout
from custody.index.filter_bank import CountMemo
from custody.query.joined_shards import JoinedShards, has_terms
from custody.query.shard_search import search_state
from custody.query.shard_set import EventIds, IdRange, LiveShards, ShardSet
from custody.rollover.keeping_filters import SHARDS_MIN
from custody.vfs import PosixFileSystem


class Custody(InProcess):
    """custody's shards, one a piece, and custody's reader."""

    name = "custody"

    def __init__(self, folder: Path, layout: Layout = "packed") -> None:
        self.about = "shards of a piece each, all fields of custody, words of details too; synced"
        self._folder = folder
        self._layout = layout
        self._fs = PosixFileSystem()
        self._built: list[Path] = []

    def prepare(self, rows: Rows) -> Any:
        return rows.table

    def add(self, prepared: Any) -> None:
        path = self._folder / f"{len(self._built):04d}"
        build_shard(self._fs, path, prepared, ATTRIBUTES, layout=self._layout)
        self._built.append(path)

    def finish(self) -> None:
        opened = {path.name: OpenShard(self._fs, path) for path in self._built}
        shards = {name: _listed(name, shard) for name, shard in opened.items()}
        self._state = replace(EMPTY, revision=0, shards=PersistentMap(shards))
        self._live = LiveShards.of(self._state)
        self._paths = [self._folder / name for name in self._live.names]
        self._files = self._folder / FILTERS
        if len(shards) >= SHARDS_MIN:
            # As the pass does it that writes a checkpoint.
            self._fs.make_directory(self._files)
            bounds = dict(zip(self._live.names, map(tuple, self._live.bounds().tolist()), strict=True))
            filters = [shard_filter(shard, bounds[name]) for name, shard in opened.items()]
            write_filter_file(self._fs, self._files / filters_name(0), filters)
        self.forget()

    def forget(self) -> None:
        """Close all shards, so that the next question opens its own."""
        self._shards = ShardCache(self._fs)
        self._facts = ShardFacts()
        find_files = partial(filter_files, self._fs, [self._files])
        self._facts.follow(0, self._live.names, self._live.bounds, find_files)
        self._set = ShardSet(self._shards, self._state, self._live, self._path, facts=self._facts)
        self._joined = JoinedShards([self._set])

    def _path(self, shard: AddShard) -> Path:
        return self._folder / shard.name

    def visits(self, counts: Sequence[int], repeats: int) -> dict[int, dict[str, list[float]]]:
        """Return how long questions take that have to visit so many shards, in ms; their times prune the others."""
        times_by_size: dict[int, dict[str, list[float]]] = {}
        for count in counts:
            times = int(self._live.first_times[:count].min()), int(self._live.last_times[:count].max())
            asked = {
                "a uuid that no shard has": Question(terms=(("flowfile_uuid", "none"),), times=times),
                "exact total of a type": Question(terms=(("event_type", "route"),), times=times, wanted="total"),
            }
            times_by_size[count] = {name: [] for name in asked}
            for name, question in asked.items():
                for _ in range(repeats):
                    times_by_size[count][name] += self.measure(question)[1]
        return times_by_size

    def forget_answers(self) -> None:
        self._facts.counts = CountMemo()

    def again(self, question: Question) -> list[float]:
        """Return how long a question takes that was asked before, each time, in ms."""
        self.ask(question)
        return [self.timed(question)[1] for _ in range(TIMED)]

    def ask(self, question: Question) -> Answer:
        asked = as_whoosh(question)
        if question.wanted == "newest":
            choice = self._joined.choose(asked).of(0)
            hits = search_state(self._set, _no_scan, asked, IdRange(LIMIT), count=False, choice=choice)
            ids: list[int] = hits.event_ids.tolist()
            return ids
        paths = self._that_may_match(asked)
        if question.wanted == "total":
            return sum(self._shards.open(path).count(asked) for path in paths)
        counts: dict[str, int] = {}
        for path in paths:
            for name, count in self._shards.open(path).facet(asked, "event_type").items():
                counts[name] = counts.get(name, 0) + count
        return counts

    def _that_may_match(self, asked: query.Query) -> list[Path]:
        """Return the shards that neither their times nor their filters rule out, the newest first."""
        numbers = self._joined.choose(asked).of(0).numbers.tolist()
        paths = [self._paths[number] for number in numbers]
        if has_terms(asked):
            for path in paths:
                self._facts.filters.offer(path.name, self._shards.open(path))
        return paths


def _no_scan(shard: AddShard, question: query.Query) -> EventIds:
    raise AssertionError(f"{shard.name} has all fields, and is whole: {question}")


def _listed(name: str, shard: OpenShard) -> AddShard:
    """Return what a catalog says of a shard."""
    about, zones = shard.description, shard.numbers("event_time").zones
    return AddShard(
        name=name,
        documents=about.documents,
        first_event_id=about.first_event_id,
        last_event_id=about.last_event_id,
        first_event_time_ms=int(zones[0].min()),
        last_event_time_ms=int(zones[1].max()),
    )
