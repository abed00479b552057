"""Walks that carry numbers: what lies below, the least number above, the greatest below, and the frontier."""

from __future__ import annotations

import numpy as np

from custody.swh.walks.arrays import GraphArrays, spans

NONE_ABOVE = np.iinfo(np.int64).max
"""No number, where the least one is looked for."""
NONE_BELOW = np.iinfo(np.int64).min
"""No number, where the greatest one is looked for."""
_ROOTS_AT_ONCE = 16_384


def reached(graph: GraphArrays, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


def least(graph: GraphArrays, values: np.ndarray) -> np.ndarray:
    """Carry the least of some numbers down.

    Args:
        values: of each directory its own, or NONE_ABOVE; on return the least of its own and those above it.

    Returns:
        The same of each content.
    """
    for lo, hi in graph.levels():
        src, dst = graph.arcs(lo, hi)
        np.minimum.at(values, dst, values[src])
    found = np.full(len(graph.contents), NONE_ABOVE)
    for lo, hi in graph.slices():
        src, held = graph.held_arcs(lo, hi)
        np.minimum.at(found, held, values[src])
    return found


def greatest(graph: GraphArrays, dates: np.ndarray, within: np.ndarray) -> np.ndarray:
    """Return the greatest number of the contents in each directory, at any depth; NONE_BELOW where there is none.

    Args:
        dates: of each content, or NONE_BELOW.
        within: which directories count, as bool; others have none and hand none on.
    """
    found = np.full(graph.count, NONE_BELOW)
    for lo, hi in graph.slices():
        src, held = graph.held_arcs(lo, hi)
        np.maximum.at(found, src, dates[held])
    found[~within] = NONE_BELOW
    for lo, hi in reversed(list(graph.levels())):
        src, dst = graph.arcs(lo, hi)
        counted = within[src]
        np.maximum.at(found, src[counted], found[dst[counted]])
    return found


def frontier(graph: GraphArrays, roots: np.ndarray, dates: np.ndarray, latest: np.ndarray) -> np.ndarray:
    """Return which directories are frontier because of some roots, as bool.

    What matters of a root is its date, so that a directory is entered once for each date.

    Args:
        roots: numbers of directories.
        dates: of each root.
        latest: what `greatest` gives.
    """
    found = np.zeros(graph.count, bool)
    holds = np.diff(graph.held_first) > 0
    for start in range(0, len(roots), _ROOTS_AT_ONCE):
        part = slice(start, start + _ROOTS_AT_ONCE)
        _enter(graph, roots[part], dates[part], latest, holds, found)
    return found


def _enter(
    graph: GraphArrays, roots: np.ndarray, dates: np.ndarray, latest: np.ndarray, holds: np.ndarray, found: np.ndarray
) -> None:
    """Walk down from some roots and mark the frontier that they meet."""
    different, ranks = np.unique(dates, return_inverse=True)
    span = len(different)
    # Pairs of directory and date in one number: those of a level lie between two others.
    bounds = graph.bounds * span
    waiting: list[list[np.ndarray]] = [[] for _ in range(len(bounds) - 1)]
    _queue(waiting, bounds, np.unique(roots * span + ranks))
    for level in range(len(waiting)):
        if not waiting[level]:
            continue
        pairs = np.unique(np.concatenate(waiting[level]))
        waiting[level] = []
        directories = pairs // span
        counts = graph.first[directories + 1] - graph.first[directories]
        below = graph.below[spans(graph.first[directories], counts)].astype(np.int64)
        rank = np.repeat(pairs % span, counts)
        # What has no dated content below it has no frontier below it either.
        is_dated = latest[below] != NONE_BELOW
        below, rank = below[is_dated], rank[is_dated]
        is_frontier = holds[below] & (latest[below] < different[rank])
        found[below[is_frontier]] = True
        _queue(waiting, bounds, np.unique((below * span + rank)[~is_frontier]))


def _queue(waiting: list[list[np.ndarray]], bounds: np.ndarray, pairs: np.ndarray) -> None:
    """Let sorted pairs wait for the turn of their level."""
    cuts = np.searchsorted(pairs, bounds)
    for level in np.flatnonzero(np.diff(cuts)).tolist():
        waiting[level].append(pairs[cuts[level] : cuts[level + 1]])
