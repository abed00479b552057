"""The arcs from directories as arrays: made once by a build, then mapped into memory by each task that walks.

Directories are numbered by their level (the longest way down to them), and within a level by their ids. So every arc
leads to a greater number, the arcs of a level lie side by side, and a walk through the numbers in order has met
everything that leads to a directory when its turn comes. `best_rows` chooses among several ways to one thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import InvalidInputError
from custody.format.number_sets import distinct
from custody.swh.walks.array_files import SUFFIX, map_array
from custody.swh.walks.name_runs import columns_of
from custody.swh.walks.number_runs import least_of_each
from custody.vfs import FileSystem

LEVELS_MAX = 10_000
"""Deeper directories are refused: they lie in each other, or somebody wants a build never to end."""
PLACES_MAX = 2**31 - 1
"""Places of directories, contents and names are numbers of 32 bits."""
_SLICE_ARCS = 1 << 20


@dataclass(frozen=True)
class _Columns:
    ids: np.ndarray
    """Of directories by their numbers, int64."""
    sorted_ids: np.ndarray
    numbers: np.ndarray
    """Of directories by `sorted_ids`, int32."""
    bounds: np.ndarray
    """The first number of each level, and behind the last one how many there are; int64."""
    first: np.ndarray
    """The first arc to a directory of each directory, one more at the end; int64."""
    below: np.ndarray
    """The directory that each arc leads to, int32."""
    below_name: np.ndarray
    """The name of each arc, as its place in the names; int32."""
    contents: np.ndarray
    """The ids of contents that are in a directory, sorted; int64."""
    held_first: np.ndarray
    held: np.ndarray
    """The content that each arc leads to, as its place in `contents`; int32."""
    held_name: np.ndarray
    name_ends: np.ndarray
    name_bytes: np.ndarray


@dataclass(frozen=True)
class GraphArrays(_Columns):
    """Directories, their arcs to directories and contents, and the names of these."""

    @classmethod
    def open(cls, folder: Path) -> GraphArrays:
        """Map the arrays of a folder into memory; processes that do so share them."""
        return cls(**{field.name: map_array(folder / f"{field.name}{SUFFIX}") for field in fields(_Columns)})

    def write(self, fs: FileSystem, folder: Path) -> None:
        """Write the arrays into a folder that is there."""
        for field in fields(_Columns):
            with fs.create(folder / f"{field.name}{SUFFIX}") as file:
                np.lib.format.write_array(file, getattr(self, field.name), allow_pickle=False)

    @property
    def count(self) -> int:
        """How many directories there are."""
        return len(self.ids)

    @cached_property
    def names(self) -> pa.Array:
        """The different names, those of directories with a slash behind; large binaries."""
        buffers = [None, pa.py_buffer(self.name_ends), pa.py_buffer(self.name_bytes)]
        return pa.Array.from_buffers(pa.large_binary(), len(self.name_ends) - 1, buffers)

    def levels(self) -> Iterator[tuple[int, int]]:
        """Give all directories, the topmost level first, in parts of one level whose arcs are about a million."""
        yield from pairwise(distinct(np.concatenate([self.bounds, _cuts(self.first)])).tolist())

    def slices(self) -> Iterator[tuple[int, int]]:
        """Give all directories in parts whose arcs to contents are about a million."""
        yield from pairwise(distinct(np.concatenate([_cuts(self.held_first), [self.count]])).tolist())

    def numbers_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the numbers of directories by their ids, -1 where there is none of an id; int64."""
        if not len(self.sorted_ids):
            return np.full(len(ids), -1, np.int64)
        places = np.minimum(np.searchsorted(self.sorted_ids, ids), len(self.sorted_ids) - 1)
        # Wide, as walks multiply them: a pair of two numbers is one number.
        return np.where(self.sorted_ids[places] == ids, self.numbers[places].astype(np.int64), -1)

    def contents_of(self, ids: np.ndarray) -> np.ndarray:
        """Return the places of contents by their ids, -1 where there is none of an id."""
        if not len(self.contents):
            return np.full(len(ids), -1, np.int64)
        places = np.minimum(np.searchsorted(self.contents, ids), len(self.contents) - 1)
        return np.where(self.contents[places] == ids, places, -1)

    def arcs(self, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the arcs to directories from directories of some numbers: from which, to which."""
        first = self.first[lo : hi + 1]
        return np.repeat(np.arange(lo, hi), np.diff(first)), self.below[first[0] : first[-1]]

    def held_arcs(self, lo: int, hi: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the arcs to contents from directories of some numbers: from which, to which content."""
        first = self.held_first[lo : hi + 1]
        return np.repeat(np.arange(lo, hi), np.diff(first)), self.held[first[0] : first[-1]]


def make_arrays(arcs: pa.Table, tops: np.ndarray) -> GraphArrays:
    """Make the arrays of a graph.

    Args:
        arcs: from directories: `src`, `dst` (int64), `to_directory` (bool), `name` (binary in one dictionary, of a
            directory with a slash behind it). Of several arcs between the same two that with the smallest name counts.
        tops: ids of directories that may have no arcs.

    Raises:
        InvalidInputError: directories lie in each other, or there are more than have places.
    """
    src, dst = (np.asarray(arcs.column(name)) for name in ("src", "dst"))
    to_directory = np.asarray(arcs.column("to_directory").combine_chunks())
    # Different names are few beside arcs: most files are called as one in the commit before.
    names, name = split_names(arcs.column("name"))
    # Freed before the sorting below, which needs the memory.
    del arcs
    inner = np.flatnonzero(to_directory)
    sorted_ids = distinct(np.concatenate([distinct(src), distinct(dst[inner]), tops]))
    _refuse_without_places(sorted_ids, names)
    above, below = (places_of(sorted_ids, ends[inner]) for ends in (src, dst))
    order, numbers, bounds = in_order(_levels(above, below, len(sorted_ids)))
    first, below, below_name = _by_source(numbers[above], numbers[below], name[inner], len(order))
    outer = ~to_directory
    src, dst, name = src[outer], dst[outer], name[outer]
    contents = distinct(dst)
    _refuse_without_places(contents)
    above = numbers[places_of(sorted_ids, src)]
    held = places_of(contents, dst)
    del src, dst
    held_first, held, held_name = _by_source(above, held, name, len(order))
    ends, data = columns_of(names)
    return GraphArrays(
        ids=sorted_ids[order],
        sorted_ids=sorted_ids,
        numbers=numbers,
        bounds=bounds,
        first=first,
        below=below,
        below_name=below_name,
        contents=contents,
        held_first=held_first,
        held=held,
        held_name=held_name,
        name_ends=ends,
        name_bytes=data,
    )


def have_places(*counts: int) -> bool:
    """Whether so many directories, contents or names can be numbered."""
    return max(counts) <= PLACES_MAX


def _refuse_without_places(*columns: np.ndarray | pa.Array) -> None:
    counts = [len(column) for column in columns]
    if not have_places(*counts):
        raise InvalidInputError(
            f"graph: expected at most {PLACES_MAX} directories, contents and names in memory, got {max(counts)}: "
            "lower swh.memory_bytes below 120 bytes an arc, so that the graph is walked by joins."
        )


def split_names(encoded: pa.ChunkedArray) -> tuple[pa.Array, np.ndarray]:
    """Return the names of a column in one dictionary, by their bytes as large binaries, and the place of each row's."""
    names = encoded.chunk(0).dictionary if encoded.num_chunks else pa.array([], pa.binary())
    order = np.asarray(pc.sort_indices(names)).astype(np.int64)
    ranks = np.empty(len(order), np.int32)
    ranks[order] = np.arange(len(order), dtype=np.int32)
    places = np.concatenate([np.empty(0, np.int32), *(np.asarray(chunk.indices) for chunk in encoded.chunks)])
    return names.cast(pa.large_binary()).take(pa.array(order)), ranks[places]


def in_order(level: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Number directories by level: return their places in that order, the number of each, and bounds of the levels."""
    # Stable: within a level the order of the ids stays.
    order = np.argsort(level, kind="stable").astype(np.int32)
    numbers = np.empty(len(order), np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(level))]) if len(level) else np.zeros(1, np.int64)
    return order, numbers, bounds


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
    # Only rows of equal depth need their paths, which are costly to put together.
    several = np.flatnonzero(ends - begins > 1)
    if len(several):
        counts = (ends - begins)[several]
        rows = order[spans(begins[several], counts)]
        groups = np.repeat(several, counts)
        table = pa.table({"group": groups, "path": paths(rows)})
        places = np.asarray(pc.sort_indices(table, [("group", "ascending"), ("path", "ascending")]))
        chosen[several] = rows[places[np.cumsum(counts) - counts]]
    return chosen


def spans(starts: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Return the numbers of several ranges, one range behind the other."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: np.ndarray = np.arange(total) + np.repeat(starts - (ends - counts), counts)
    return numbers


def too_deep() -> InvalidInputError:
    """The error of directories that lie in each other."""
    return InvalidInputError(f"graph: expected at most {LEVELS_MAX} levels of directories, got more, or a circle.")


def weighted_slices(counts: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Give ranges whose counts sum up to so much at most; one alone may count more."""
    ends = np.cumsum(counts)
    start = before = 0
    while start < len(counts):
        stop = max(int(np.searchsorted(ends, before + most, "right")), start + 1)
        yield start, stop
        start, before = stop, int(ends[stop - 1])


def places_of(held: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the places of values among sorted ones; a part at a time, as places are twice as wide on the way."""
    places = np.empty(len(values), np.int32)
    for start in range(0, len(values), _SLICE_ARCS):
        part = values[start : start + _SLICE_ARCS]
        # By rising values, as neighbours among them lie on one page of what is mapped.
        order = np.argsort(part)
        places[start + order] = np.searchsorted(held, part[order])
    return places


def levels_of(first: np.ndarray, targets: np.ndarray, most: int) -> np.ndarray:
    """The length of the longest way down to each directory: a directory gets its level when all above it have one.

    Args:
        first: the first arc of each directory, one more at the end.
        targets: where each arc leads to.
        most: how many arcs are looked at at once.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    count = len(first) - 1
    arcs_left = np.zeros(count, np.int32)
    for start in range(0, len(targets), most):
        np.add.at(arcs_left, targets[start : start + most], 1)
    level = np.full(count, -1, np.int16)
    ready = np.flatnonzero(arcs_left == 0).astype(np.int32)
    # Directories in a circle are never ready: they keep the level -1.
    for number in range(LEVELS_MAX + 1):
        if not len(ready):
            break
        level[ready] = number
        ready = np.sort(np.concatenate([ready[:0], *_freed(ready, first, targets, arcs_left, most)]))
    if count and level.min() < 0:
        raise too_deep()
    return level


def _freed(
    ready: np.ndarray, first: np.ndarray, targets: np.ndarray, arcs_left: np.ndarray, most: int
) -> Iterator[np.ndarray]:
    """Take the arcs of directories away; give those to which none is left, each once."""
    for begin in range(0, len(ready), _SLICE_ARCS):
        sources = ready[begin : begin + _SLICE_ARCS].astype(np.int64)
        starts = first[sources]
        counts = first[sources + 1] - starts
        for lo, hi in weighted_slices(counts, most):
            met = targets[spans(starts[lo:hi], counts[lo:hi])]
            # With `.at`, as a directory may be met several times in a round.
            np.subtract.at(arcs_left, met, 1)
            yield distinct(met[arcs_left[met] == 0]).astype(np.int32)


def _cuts(first: np.ndarray) -> np.ndarray:
    """Where to cut sources, the first one included, so that they and their arcs are about a million in a part."""
    by_arcs = np.searchsorted(first, np.arange(0, int(first[-1]), _SLICE_ARCS), "right") - 1
    return np.concatenate([by_arcs, np.arange(0, len(first), _SLICE_ARCS)])


def _by_source(
    src: np.ndarray, dst: np.ndarray, name: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Sort arcs by where they come from, each pair once; return the first of each source, ends and names."""
    span = int(dst.max(initial=0)) + 1
    # Names are numbered in their order: the smallest name has the least number.
    keys, names = least_of_each(src.astype(np.int64) * span + dst, name)
    # Keys begin with the source: one search finds where the arcs of each begin.
    first = np.searchsorted(keys, np.arange(count + 1, dtype=np.int64) * span)
    return first, (keys % span).astype(np.int32), names


def _levels(above: np.ndarray, below: np.ndarray, count: int) -> np.ndarray:
    order = np.argsort(above, kind="stable")
    first = np.searchsorted(above[order], np.arange(count + 1))
    return levels_of(first, below[order], max(len(below), 1))
