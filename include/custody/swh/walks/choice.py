"""Choices among rows that are in arrays: of several ways to one thing the best, of several paths the smallest."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def spans(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers of several ranges, one range behind the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    found: np.ndarray = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return found


def best_rows(keys: np.ndarray, depths: np.ndarray, paths: Callable[[np.ndarray], pa.Array]) -> np.ndarray:
    """Return the best row of each key, by rising keys: that with the least depth, and of these with the smallest path.

    Args:
        keys: int64, not negative.
        depths: int32, not negative; keys times the greatest depth have to fit into 63 bits.
        paths: gives the paths of some rows; only those are asked for that a choice is to be made between.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    deep = int(depths.max()) + 1
    ranks = keys * deep + depths
    order = np.argsort(ranks)
    sorted_ranks = ranks[order]
    sorted_keys = sorted_ranks // deep
    is_first = np.concatenate([[True], sorted_keys[1:] != sorted_keys[:-1]])
    chosen: np.ndarray = order[is_first]
    begins = np.flatnonzero(is_first)
    # Rows as good as the best of their key, as far as the depth says.
    ends = np.searchsorted(sorted_ranks, sorted_ranks[begins], "right")
    several = np.flatnonzero(ends - begins > 1)
    if len(several):
        counts = (ends - begins)[several]
        rows = order[spans(begins[several], counts)]
        groups = np.repeat(several, counts)
        table = pa.table({"group": groups, "path": paths(rows)})
        places = np.asarray(pc.sort_indices(table, [("group", "ascending"), ("path", "ascending")]))
        chosen[several] = rows[places[np.cumsum(counts) - counts]]
    return chosen
