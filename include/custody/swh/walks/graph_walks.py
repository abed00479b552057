"""Walks over a graph in arrays, level by level: some carry numbers, one carries paths.

Those with numbers find what lies below some directories, the least number above, the greatest below, and the frontier.
The one with paths, `expand`, finds everything below directories, each thing once with the best path to it: the one with
the fewest names, and of several such the smallest in bytes. All ways to a directory are known at its turn, so only the
best one goes on. A path is put together once for each directory, and only paths of equal depth are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.format.number_sets import distinct
from custody.swh.walks.graph_arrays import GraphArrays, best_rows, spans

NONE_ABOVE = np.iinfo(np.int64).max
"""No number, where the least one is looked for."""
NONE_BELOW = np.iinfo(np.int64).min
"""No number, where the greatest one is looked for."""
# Bounds how many pairs of directory and date wait at once.
_ROOTS_AT_ONCE = 16_384
_NOTHING = pa.scalar(b"", pa.large_binary())
_START = -1
"""The row above that of a top, which has no name and no path."""


@dataclass(frozen=True)
class PathRows:
    """A thing (a directory's number, or a content's place) below a top, and the best path to it."""

    thing: np.ndarray
    top: np.ndarray
    """The top's place among the tops."""
    path: pa.Array


@dataclass(frozen=True)
class WalkResult:
    """The findings below some tops: directories of the barrier, and contents; each sorted by things, then tops."""

    tops: np.ndarray
    walked: int
    """How many directories were walked into, each once for each top."""
    settled: PathRows
    contents: PathRows | None


def reachable_from(graph: GraphArrays, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which directories are at or below some (numbers), and which contents are in these: two arrays of bool."""
    directories = np.zeros(graph.count, bool)
    directories[starts] = True
    for lo, hi in graph.levels():
        src, dst = graph.arcs(lo, hi)
        directories[dst[directories[src]]] = True
    contents = np.zeros(len(graph.contents), bool)
    for lo, hi in graph.slices():
        src, held = graph.held_arcs(lo, hi)
        contents[held[directories[src]]] = True
    return directories, contents


def least_above(graph: GraphArrays, values: np.ndarray) -> np.ndarray:
    """Carry the least of some numbers down.

    Args:
        values: of each directory its own, or NONE_ABOVE; on return the least of its own and those above it.

    Returns:
        The same of each content.
    """
    for lo, hi in graph.levels():
        src, dst = graph.arcs(lo, hi)
        # From the top level on: all that is above a directory is known before it hands its own number on.
        np.minimum.at(values, dst, values[src])
    of_contents = np.full(len(graph.contents), NONE_ABOVE)
    for lo, hi in graph.slices():
        src, held = graph.held_arcs(lo, hi)
        np.minimum.at(of_contents, held, values[src])
    return of_contents


def greatest_below(graph: GraphArrays, dates: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return the greatest number of the contents in each directory, at any depth; NONE_BELOW where there is none.

    Args:
        dates: of each content, or NONE_BELOW.
        within: which directories count, as bool; others have none and hand none on.
    """
    latest = np.full(graph.count, NONE_BELOW)
    for lo, hi in graph.slices():
        src, held = graph.held_arcs(lo, hi)
        np.maximum.at(latest, src, dates[held])
    latest[~within] = NONE_BELOW
    # From the bottom level on: all that is below a directory is known before it hands its own number up.
    for lo, hi in reversed(list(graph.levels())):
        src, dst = graph.arcs(lo, hi)
        counted = within[src]
        np.maximum.at(latest, src[counted], latest[dst[counted]])
    return latest


def find_frontier(graph: GraphArrays, roots: np.ndarray, dates: np.ndarray, latest: np.ndarray) -> np.ndarray:
    """Return which directories are frontier because of some roots, as bool.

    What matters of a root is its date, so that a directory is entered once for each date.

    Args:
        roots: numbers of directories.
        dates: of each root.
        latest: what `greatest_below` gives.
    """
    is_frontier = np.zeros(graph.count, bool)
    # Compared in place: differences would be eight bytes of each directory.
    holds = graph.held_first[1:] > graph.held_first[:-1]
    for start in range(0, len(roots), _ROOTS_AT_ONCE):
        part = slice(start, start + _ROOTS_AT_ONCE)
        _enter(graph, roots[part], dates[part], latest, holds, is_frontier)
    return is_frontier


def expand(
    graph: GraphArrays, tops: np.ndarray, barrier: np.ndarray | None, *, rows_wanted: int, with_contents: bool
) -> Iterator[WalkResult]:
    """Walk down from each of some directories (numbers, all different), a part of them at a time.

    Args:
        graph: where to walk.
        tops: numbers of directories, in any order; what is found refers to them.
        barrier: directories, as bool, that are settled and not walked into; None walks everywhere.
        rows_wanted: about how many rows a part is to find.
        with_contents: whether contents in what was walked into are looked for.
    """
    # Few at first, as nobody knows yet how much lies below a top.
    start, count = 0, _TOPS_FIRST
    while start < len(tops):
        part = tops[start : start + count]
        result = _Walk(graph, part, barrier).walk(with_contents)
        yield result
        rows = max(result.walked, len(result.settled.thing), len(result.contents.thing) if result.contents else 0, 1)
        start += len(part)
        # As much as the last part lets hope, and not much more: tops differ.
        count = int(min(max(len(part) * rows_wanted / rows, 1), len(part) * 4, _TOPS_MAX))


class _Walk:
    """One walk; rows that were walked into are numbered as they come."""

    def __init__(self, graph: GraphArrays, tops: np.ndarray, barrier: np.ndarray | None) -> None:
        self._graph = graph
        self._tops = tops
        self._barrier = barrier
        self._paths: list[pa.Array] = []
        self._walked: list[tuple[np.ndarray, np.ndarray]] = []
        """Of each level the pairs (directory x tops + top) and their depths."""
        self._count = 0
        self._settled: list[tuple[np.ndarray, ...]] = []
        self._waiting: list[list[tuple[np.ndarray, ...]]] = [[] for _ in range(len(graph.bounds) - 1)]
        """Of each level the pairs that wait, their depths, the rows above them and the names of the last arcs."""

    def walk(self, with_contents: bool) -> WalkResult:
        graph, span = self._graph, len(self._tops)
        pairs = self._tops.astype(np.int64) * span + np.arange(span)
        none = np.full(span, _START)
        self._send(pairs, np.zeros(span, np.int32), none, none)
        for level in range(len(self._waiting)):
            if self._waiting[level]:
                rows, self._waiting[level] = _together(self._waiting[level]), []
                pairs, depths, paths = self._best(*rows)
                self._walk_into(pairs, depths, paths)
                directories = pairs // span
                counts = graph.first[directories + 1] - graph.first[directories]
                arcs = spans(graph.first[directories], counts)
                below = graph.below[arcs].astype(np.int64) * span + np.repeat(pairs % span, counts)
                above = np.repeat(np.arange(self._count - len(pairs), self._count), counts)
                self._send(below, np.repeat(depths + 1, counts), above, graph.below_name[arcs])
        pairs, _, paths = self._best(*_together(self._settled))
        settled = self._rows(pairs, paths)
        return WalkResult(self._tops, self._count, settled, self._contents() if with_contents else None)

    def _walk_into(self, pairs: np.ndarray, depths: np.ndarray, paths: pa.Array) -> None:
        self._paths.append(paths)
        self._walked.append((pairs, depths))
        self._count += len(pairs)

    def _send(self, pairs: np.ndarray, depths: np.ndarray, above: np.ndarray, names: np.ndarray) -> None:
        rows: tuple[np.ndarray, ...] = (pairs, depths, above, names)
        directories = pairs // len(self._tops)
        if self._barrier is not None:
            stopped = self._barrier[directories]
            self._settled.append(tuple(column[stopped] for column in rows))
            rows = tuple(column[~stopped] for column in rows)
            directories = directories[~stopped]
        order = np.argsort(directories, kind="stable")
        rows = tuple(column[order] for column in rows)
        cuts = np.searchsorted(directories[order], self._graph.bounds)
        for level in np.flatnonzero(np.diff(cuts)).tolist():
            self._waiting[level].append(tuple(column[cuts[level] : cuts[level + 1]] for column in rows))

    def _best(
        self, pairs: np.ndarray, depths: np.ndarray, above: np.ndarray, names: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, pa.Array]:
        """Of rows to one directory of one top the best: pairs, depths and paths."""
        rows = best_rows(pairs, depths, lambda few: self._joined(above[few], names[few]))
        return pairs[rows], depths[rows], self._joined(above[rows], names[rows])

    def _joined(self, above: np.ndarray, names: np.ndarray) -> pa.Array:
        """The paths of rows above, each with a name behind it."""
        is_top = above == _START
        if is_top.all():
            return pa.repeat(_NOTHING, len(above))
        before = pa.chunked_array(self._paths).take(pa.array(above, mask=is_top))
        last = self._graph.names.take(pa.array(names, mask=is_top))
        return _one(pc.binary_join_element_wise(before, last, _NOTHING, null_handling="replace", null_replacement=""))

    def _rows(self, pairs: np.ndarray, paths: pa.Array) -> PathRows:
        return PathRows(pairs // len(self._tops), pairs % len(self._tops), paths)

    def _contents(self) -> PathRows:
        graph, span = self._graph, len(self._tops)
        self._paths = [pa.concat_arrays(self._paths)] if self._paths else []
        parts = self._walked or [(np.empty(0, np.int64), np.empty(0, np.int32))]
        pairs, depths = (np.concatenate(column) for column in zip(*parts, strict=True))
        directories = pairs // span
        counts = graph.held_first[directories + 1] - graph.held_first[directories]
        arcs = spans(graph.held_first[directories], counts)
        held = graph.held[arcs].astype(np.int64) * span + np.repeat(pairs % span, counts)
        above, names = np.repeat(np.arange(len(pairs)), counts), graph.held_name[arcs]
        pairs, _, paths = self._best(held, np.repeat(depths, counts), above, names)
        return self._rows(pairs, paths)


def _enter(
    graph: GraphArrays,
    roots: np.ndarray,
    dates: np.ndarray,
    latest: np.ndarray,
    holds: np.ndarray,
    is_listed: np.ndarray,
) -> None:
    """Walk down from some roots and mark the frontier that they meet."""
    different, ranks = np.unique(dates, return_inverse=True)
    span = len(different)
    # Pairs of directory and date in one number: those of a level lie between two others.
    bounds = graph.bounds * span
    waiting: list[list[np.ndarray]] = [[] for _ in range(len(bounds) - 1)]
    _queue(waiting, bounds, distinct(roots * span + ranks))
    for level in range(len(waiting)):
        if not waiting[level]:
            continue
        # A directory is entered once for each date, however many ways lead to it.
        pairs = distinct(np.concatenate(waiting[level]))
        waiting[level] = []
        directories = pairs // span
        counts = graph.first[directories + 1] - graph.first[directories]
        below = graph.below[spans(graph.first[directories], counts)].astype(np.int64)
        rank = np.repeat(pairs % span, counts)
        # What has no dated content below it has no frontier below it either.
        is_dated = latest[below] != NONE_BELOW
        below, rank = below[is_dated], rank[is_dated]
        is_frontier = holds[below] & (latest[below] < different[rank])
        # A pair goes no further where its directory is frontier.
        is_listed[below[is_frontier]] = True
        _queue(waiting, bounds, distinct((below * span + rank)[~is_frontier]))


def _queue(waiting: list[list[np.ndarray]], bounds: np.ndarray, pairs: np.ndarray) -> None:
    """Let sorted pairs wait for the turn of their level."""
    cuts = np.searchsorted(pairs, bounds)
    for level in np.flatnonzero(np.diff(cuts)).tolist():
        waiting[level].append(pairs[cuts[level] : cuts[level + 1]])


_TOPS_FIRST, _TOPS_MAX = 64, 32_768


def _together(parts: list[tuple[np.ndarray, ...]]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    if not parts:
        return np.empty(0, np.int64), np.empty(0, np.int32), np.empty(0, np.int64), np.empty(0, np.int32)
    pairs, depths, above, names = (np.concatenate(column) for column in zip(*parts, strict=True))
    return pairs, depths, above, names


def _one(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(array.chunks) if isinstance(array, pa.ChunkedArray) else array
