"""Histories in arrays: the origins that lead to each revision and release.

Histories are chains of thousands of revisions. All that matters of a node is what leads to it, so nodes are taken out
and their neighbours joined over the gap, many at once, until little is left to walk; then they come back in reverse
order, each with the origins of what led to it. (`custody.spark.swh.join_steps` does the same by joins, and says why it
ends soon.) Nodes are taken out once; origins are then followed some at a time, which bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from custody.errors import InvalidInputError
from custody.format.number_sets import distinct
from custody.swh.walks.graph_arrays import spans
from custody.vfs import FileSystem

_CHAIN_PASSES = 2
_GROWTH = 2
"""A node goes when it leaves at most so many times as many arcs as it had."""
_WORTH = 50
"""A round is worth it when at least one in so many arcs goes to or from the nodes that it takes out."""
_ORIGINS_FIRST, _ORIGINS_MAX = 16, 65_536
_SUFFIX = ".npy"


@dataclass(frozen=True)
class History:
    """A history without most of its nodes, and what led to these; nodes are numbered by their ids."""

    ids: np.ndarray
    """Of nodes, sorted; int64."""
    origins: np.ndarray
    """The nodes that are origins."""
    src: np.ndarray
    """Arcs that are left, sorted: from which node."""
    dst: np.ndarray
    taken: np.ndarray
    """Nodes that were taken out, once for each that led to it; those that went last come first."""
    up: np.ndarray
    """What led to each of these."""
    bounds: np.ndarray
    """Where the nodes of each round begin in `taken`, and where the last ones end."""

    @classmethod
    def open(cls, folder: Path) -> History:
        """Map the arrays of a folder into memory."""
        return cls(**{field.name: np.load(folder / f"{field.name}{_SUFFIX}", mmap_mode="r") for field in fields(cls)})

    def write(self, fs: FileSystem, folder: Path) -> None:
        """Write the arrays into a folder that is there."""
        for field in fields(self):
            with fs.create(folder / f"{field.name}{_SUFFIX}") as file:
                np.lib.format.write_array(file, getattr(self, field.name), allow_pickle=False)


def make_history(src: np.ndarray, dst: np.ndarray, origins: np.ndarray) -> History:
    """Take most nodes out of a history; all are given by their ids, arcs lead from what is newer.

    Raises:
        InvalidInputError: revisions follow each other in a circle.
    """
    ids = distinct(np.concatenate([src, dst, origins]))
    count = len(ids)
    # An arc is one number, the source first: one `unique` sorts arcs and drops repeated ones.
    arcs = distinct(np.searchsorted(ids, src) * count + np.searchsorted(ids, dst))
    numbers = np.searchsorted(ids, distinct(origins))
    stays = np.zeros(count, bool)
    # Origins are what is asked for, so none of them is taken out.
    stays[numbers] = True
    taken: list[tuple[np.ndarray, np.ndarray]] = []
    for _ in range(_CHAIN_PASSES):
        led, arcs = _without_chains(arcs, count)
        taken.append(led)
    while len(arcs):
        led, remaining = _without_some(arcs, count, stays, seed=len(taken))
        if (len(arcs) - remaining[0]) * _WORTH < len(arcs):
            break
        taken.append(led)
        arcs = remaining[1]
    # What went last comes back first: by then it is known what leads to its neighbours.
    taken.reverse()
    none = np.empty(0, np.int64)
    return History(
        ids=ids,
        origins=numbers,
        src=arcs // max(count, 1),
        dst=arcs % max(count, 1),
        taken=np.concatenate([none, *(nodes for nodes, _ in taken)]),
        up=np.concatenate([none, *(ups for _, ups in taken)]),
        bounds=np.cumsum([0, *(len(nodes) for nodes, _ in taken)]),
    )


def _without_chains(arcs: np.ndarray, count: int) -> tuple[tuple[np.ndarray, np.ndarray], np.ndarray]:
    """Take out the nodes that one other leads to: return these, each with the end of its chain, and the arcs left."""
    src, dst = arcs // max(count, 1), arcs % max(count, 1)
    is_single = np.bincount(dst, minlength=count) == 1
    into = is_single[dst]
    end = np.arange(count)
    end[dst[into]] = src[into]
    # One back, two back, four back: as often as the longest chain has binary digits.
    for _ in range(count.bit_length() + 1):
        if not is_single[end].any():
            break
        end = end[end]
    else:
        raise InvalidInputError("graph: expected histories without cycles, got a revision among its own ancestors.")
    nodes = dst[into]
    return (nodes, end[nodes]), distinct(end[src[~into]] * count + dst[~into])


def _without_some(
    arcs: np.ndarray, count: int, stays: np.ndarray, seed: int
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[int, np.ndarray]]:
    """Take out nodes of which no two are neighbours.

    Returns:
        Nodes and what led to them; how many of the arcs stayed, and these with the arcs over the gaps.
    """
    src, dst = arcs // count, arcs % count
    ins, outs = np.bincount(dst, minlength=count), np.bincount(src, minlength=count)
    chosen = (ins * outs <= _GROWTH * (ins + outs)) & ~stays
    # A number of chance decides between neighbours, another one each round.
    # Seeded by the round, so that a step that is done again makes the same arrays.
    chance = np.random.default_rng(seed).permutation(count)
    both = chosen[src] & chosen[dst]
    # Of two neighbours one stays: a gap next to a gap could not be bridged in the same round.
    losing = np.where(chance[src[both]] < chance[dst[both]], dst[both], src[both])
    chosen[losing] = False
    into, out = chosen[dst], chosen[src]
    nodes, ups = dst[into], src[into]
    # Arcs are sorted by where they come from.
    first, counts = np.searchsorted(src, nodes), outs[nodes]
    bridges = np.repeat(ups, counts) * count + dst[spans(first, counts)]
    untouched = arcs[~(into | out)]
    return (nodes, ups), (len(untouched), distinct(np.concatenate([untouched, bridges])))


def follow(history: History, origins: np.ndarray, *, rows_wanted: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give which nodes some origins lead to: nodes and origins, both as numbers, sorted; some origins at a time.

    Args:
        history: as `make_history` makes it.
        origins: numbers of nodes, sorted.
        rows_wanted: about how many rows there are to be at a time.
    """
    # Few at first, as nobody knows yet to how much an origin leads.
    start, count = 0, _ORIGINS_FIRST
    while start < len(origins):
        part = origins[start : start + count]
        nodes, places = _led(history, part)
        yield nodes, part[places]
        start += len(part)
        # As many as the last part lets expect, and at most four times as many: origins differ.
        count = int(min(max(len(part) * rows_wanted / max(len(nodes), 1), 1), len(part) * 4, _ORIGINS_MAX))


def _led(history: History, origins: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The nodes that some origins lead to, and the origins' places: by nodes, then by origins."""
    span = len(origins)
    reached = latest = origins * span + np.arange(span)
    while len(latest):
        first = np.searchsorted(history.src, latest // span)
        counts = np.searchsorted(history.src, latest // span, "right") - first
        below = distinct(history.dst[spans(first, counts)] * span + np.repeat(latest % span, counts))
        latest = below[~_among(below, reached)]
        reached = np.sort(np.concatenate([reached, latest]))
    for begin, end in zip(history.bounds[:-1].tolist(), history.bounds[1:].tolist(), strict=True):
        nodes, ups = history.taken[begin:end], history.up[begin:end]
        first = np.searchsorted(reached, ups * span)
        counts = np.searchsorted(reached, (ups + 1) * span) - first
        more = distinct(np.repeat(nodes, counts) * span + reached[spans(first, counts)] % span)
        # What was taken out is not among what was found before it comes back.
        reached = np.sort(np.concatenate([reached, more]))
    return reached // span, reached % span


def _among(values: np.ndarray, held: np.ndarray) -> np.ndarray:
    """Which values are among others; these are sorted, and some are there."""
    places = np.minimum(np.searchsorted(held, values), len(held) - 1)
    is_held: np.ndarray = held[places] == values
    return is_held
