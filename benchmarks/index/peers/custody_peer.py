"""custody's own shards, asked as a search asks those of a catalog: the filters of all together, then what may match."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from whoosh import query

from benchmarks.index.peers.base import Answer, InProcess
from benchmarks.index.peers.whoosh_peer import as_whoosh
from benchmarks.index.workload import ATTRIBUTES, LIMIT, Question, Rows
from custody.index import JoinedFilters, ShardCache, ShardFacts, build_shard
from custody.index.fields import Layout
from custody.query.joined_shards import FEW_SHARDS, has_terms
from custody.query.shard_set import time_bounds
from custody.vfs import PosixFileSystem


class Custody(InProcess):
    """custody's shards, one a piece, and custody's reader."""

    name = "custody"

    def __init__(self, folder: Path, layout: Layout = "packed") -> None:
        self.about = "shards of a piece each, all fields of custody, words of details too; synced"
        self._folder = folder
        self._layout = layout
        self._fs = PosixFileSystem()
        self._shards = ShardCache(self._fs)
        self._built: list[tuple[Path, int, int]] = []

    def prepare(self, rows: Rows) -> Any:
        return rows.table

    def add(self, prepared: Any) -> None:
        path = self._folder / f"{len(self._built):04d}"
        build_shard(self._fs, path, prepared, ATTRIBUTES, layout=self._layout)
        self._built.append((path, 0, 0))

    def finish(self) -> None:
        self._built.reverse()
        for number, (path, _, _) in enumerate(self._built):
            zones = self._shards.open(path).numbers("event_time").zones
            self._built[number] = path, int(zones[0].min()), int(zones[1].max())
        self.forget()

    def forget(self) -> None:
        """Close all shards, so that the next question opens its own."""
        self._shards = ShardCache(self._fs)
        self._bank = ShardFacts().filters
        self._filters = JoinedFilters([self._bank], [tuple(path.name for path, _, _ in self._built)])

    def visits(self, counts: Sequence[int], repeats: int) -> dict[int, dict[str, list[float]]]:
        """Return how long questions take that have to visit so many shards, in ms; their times prune the others."""
        times_by_size: dict[int, dict[str, list[float]]] = {}
        for count in counts:
            newest = self._built[:count]
            times = min(first for _, first, _ in newest), max(last for _, _, last in newest)
            asked = {
                "a uuid that no shard has": Question(terms=(("flowfile_uuid", "none"),), times=times),
                "exact total of a type": Question(terms=(("event_type", "route"),), times=times, wanted="total"),
            }
            times_by_size[count] = {name: [] for name in asked}
            for name, question in asked.items():
                for _ in range(repeats):
                    times_by_size[count][name] += self.measure(question)[1]
        return times_by_size

    def ask(self, question: Question) -> Answer:
        asked = as_whoosh(question)
        paths = self._that_may_match(asked)
        if question.wanted == "total":
            return sum(self._shards.open(path).count(asked) for path in paths)
        if question.wanted == "facet":
            counts: dict[str, int] = {}
            for path in paths:
                for name, count in self._shards.open(path).facet(asked, "event_type").items():
                    counts[name] = counts.get(name, 0) + count
            return counts
        ids: list[int] = []
        for path in paths:
            ids += self._shards.open(path).search(asked, LIMIT - len(ids)).tolist()
            if len(ids) >= LIMIT:
                break
        return ids

    def _that_may_match(self, asked: query.Query) -> list[Path]:
        """Return the shards that neither their times nor their filters rule out."""
        low, high = time_bounds(asked)
        numbers = [number for number, (_, first, last) in enumerate(self._built) if first <= high and last >= low]
        if len(numbers) > FEW_SHARDS and has_terms(asked):
            may = self._filters.may_match(np.array(numbers, np.int64), asked, lambda _: True)
            numbers = numbers if may is None else [numbers[place] for place in np.flatnonzero(may).tolist()]
            for number in numbers:
                path = self._built[number][0]
                self._bank.offer(path.name, self._shards.open(path))
        return [self._built[number][0] for number in numbers]
