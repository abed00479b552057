"""The arrays of a graph whose arcs do not fit into memory: made a range at a time, from sorted runs on disk.

Arcs are cut into pieces as they are read. Ids and names of all pieces are merged into what numbers them; then each
piece is written again as numbers, sorted, and the pieces are merged by ranges of sources, each pair of ends once. From
these arcs follow the levels, from the levels the order of the directories, and in this order the arcs are written.
What is in memory is one piece or range, and of each directory a few numbers. The files are those of `make_arrays`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from custody.format.number_sets import distinct
from custody.swh.walks.array_files import SUFFIX, ArrayFile, map_bare, write_bare
from custody.swh.walks.graph_arrays import (
    have_places,
    in_order,
    levels_of,
    places_of,
    spans,
    split_names,
    weighted_slices,
)
from custody.swh.walks.name_runs import NameRuns
from custody.swh.walks.number_runs import NumberRuns, least_of_each
from custody.vfs import FileSystem

_PART = 1 << 20
_COLUMNS: dict[str, type[np.generic]] = {"src": np.int64, "dst": np.int64, "name": np.int32}


@dataclass(frozen=True, slots=True)
class Room:
    """What may be in memory at once."""

    arcs: int
    """Arcs of a piece or a range; one directory that has more is in memory as a whole."""
    nodes: int
    """Directories, contents and roots, of which walks have some numbers each in memory."""


@dataclass(frozen=True, slots=True)
class _Arcs:
    """Arcs on disk by their sources: the first of each source and one more, where they lead to, and their names."""

    first: np.ndarray
    ends: np.ndarray
    names: np.ndarray


def write_arrays(
    fs: FileSystem, arcs: Iterable[pa.Table], tops: Iterable[np.ndarray], target: Path, scratch: Path, room: Room
) -> bool:
    """Write the arrays of a graph into a folder that is there.

    Args:
        fs: where folders are.
        arcs: pieces as `make_arrays` takes them.
        tops: ids of directories that may have no arcs.
        target: the folder of the arrays.
        scratch: an empty folder for what is not kept.
        room: how much may be in memory.

    Returns:
        Whether the vectors of the walks fit into memory; otherwise nothing was written.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    return _Builder(fs, target, scratch, room).write(arcs, tops)


class _Builder:
    def __init__(self, fs: FileSystem, target: Path, scratch: Path, room: Room) -> None:
        self._fs = fs
        self._target = target
        self._scratch = scratch
        self._room = room
        self._pieces = 0

    def write(self, arcs: Iterable[pa.Table], tops: Iterable[np.ndarray]) -> bool:
        names = NameRuns(self._fs, self._scratch / "names")
        directories, contents = self._runs("directory-ids"), self._runs("content-ids")
        self._split(arcs, names, directories, contents)
        for ids in tops:
            directories.add(distinct(ids))
        names.merge(self._room.arcs)
        sorted_ids = self._merged(directories, "sorted-ids")
        content_ids = self._merged(contents, "contents")
        counts = (len(sorted_ids), len(content_ids), names.count)
        if len(sorted_ids) + len(content_ids) > self._room.nodes or not have_places(*counts):
            return False
        self._keep("sorted_ids", np.int64, sorted_ids)
        self._keep("contents", np.int64, content_ids)
        self._keep("name_ends", np.int64, names.ends())
        self._keep("name_bytes", np.uint8, names.data())
        inner = self._by_source("inner", names, sorted_ids, sorted_ids)
        outer = self._by_source("outer", names, sorted_ids, content_ids)
        level = levels_of(inner.first, inner.ends, self._room.arcs)
        order, numbers, bounds = in_order(level)
        del level
        self._keep("bounds", np.int64, bounds)
        self._keep("numbers", np.int32, numbers)
        self._write("ids", np.int64, len(order), (sorted_ids[order[part]] for part in _parts(len(order))))
        self._keep_arcs(("first", "below", "below_name"), inner, order, numbers)
        self._keep_arcs(("held_first", "held", "held_name"), outer, order, None)
        return True

    def _runs(self, name: str) -> NumberRuns:
        return NumberRuns(self._fs, self._scratch / name)

    def _split(self, arcs: Iterable[pa.Table], names: NameRuns, directories: NumberRuns, contents: NumberRuns) -> None:
        """Write each piece of the arcs: by what they lead to, with the places of their names in a run of the names."""
        for piece in arcs:
            different, name = split_names(piece.column("name"))
            names.add(different)
            src, dst = (np.asarray(piece.column(column)) for column in ("src", "dst"))
            to_directory = np.asarray(piece.column("to_directory").combine_chunks().cast(pa.uint8())).astype(bool)
            for kind, chosen in (("inner", to_directory), ("outer", ~to_directory)):
                for column, values in (("src", src), ("dst", dst), ("name", name)):
                    write_bare(self._fs, self._piece(kind, self._pieces, column), values[chosen])
            directories.add(distinct(np.concatenate([distinct(src), distinct(dst[to_directory])])))
            contents.add(distinct(dst[~to_directory]))
            self._pieces += 1

    def _piece(self, kind: str, number: int, column: str) -> Path:
        return self._scratch / f"{kind}-{number:06}-{column}"

    def _merged(self, runs: NumberRuns, name: str) -> np.ndarray:
        path = self._scratch / name
        with ArrayFile(self._fs, path, np.int64) as file:
            for keys in runs.merged_keys(self._room.arcs):
                file.append(keys)
        return map_bare(path, np.int64)

    def _by_source(self, kind: str, names: NameRuns, sources: np.ndarray, ends: np.ndarray) -> _Arcs:
        """Write the arcs of all pieces by the places of their sources, each pair once with the smallest name."""
        runs, span = self._runs(f"{kind}-arcs"), max(len(ends), 1)
        for number in range(self._pieces):
            src, dst, name = (map_bare(self._piece(kind, number, column), dtype) for column, dtype in _COLUMNS.items())
            keys = places_of(sources, src).astype(np.int64)
            keys *= span
            keys += places_of(ends, dst)
            runs.add(*least_of_each(keys, names.numbers(number)[name]))
            del src, dst, name, keys
            for column in _COLUMNS:
                self._fs.remove(self._piece(kind, number, column))
        return self._by_ranges(kind, runs, span, len(sources))

    def _by_ranges(self, kind: str, runs: NumberRuns, span: int, sources: int) -> _Arcs:
        types: dict[str, type[np.generic]] = {"first": np.int64, "ends": np.int32, "names": np.int32}
        paths = {column: self._scratch / f"{kind}-{column}" for column in types}
        begun = arcs = 0
        with ExitStack() as stack:
            first, ends, names = (
                stack.enter_context(ArrayFile(self._fs, paths[column], dtype)) for column, dtype in types.items()
            )
            for keys, values in runs.merged(self._room.arcs):
                src = keys // span
                # Those of the last source may go on in the next range, but they begin in this one.
                behind = int(src[-1]) + 1
                for part in _parts(behind - begun):
                    first.append(arcs + np.searchsorted(src, np.arange(begun + part.start, begun + part.stop)))
                begun = max(begun, behind)
                ends.append(keys % span)
                names.append(values)
                arcs += len(keys)
            for part in _parts(sources + 1 - begun):
                first.append(np.full(part.stop - part.start, arcs))
        return _Arcs(*(map_bare(paths[column], dtype) for column, dtype in types.items()))

    def _keep(self, name: str, dtype: type[np.generic], array: np.ndarray) -> None:
        self._write(name, dtype, len(array), (array[part] for part in _parts(len(array))))

    def _write(self, name: str, dtype: type[np.generic], count: int, parts: Iterable[np.ndarray]) -> None:
        with ArrayFile(self._fs, self._target / f"{name}{SUFFIX}", dtype, count) as file:
            for part in parts:
                file.append(part)

    def _keep_arcs(
        self, names: tuple[str, str, str], arcs: _Arcs, order: np.ndarray, numbers: np.ndarray | None
    ) -> None:
        """Write arcs by the numbers of their sources; those to directories with the numbers of these."""
        counts = (len(order) + 1, len(arcs.ends), len(arcs.ends))
        types: tuple[type[np.generic], ...] = (np.int64, np.int32, np.int32)
        with ExitStack() as stack:
            first, ends, arc_names = (
                stack.enter_context(ArrayFile(self._fs, self._target / f"{name}{SUFFIX}", dtype, count))
                for name, dtype, count in zip(names, types, counts, strict=True)
            )
            first.append(np.zeros(1, np.int64))
            done = 0
            for of_source, rows in _rows_in(arcs.first, order, self._room.arcs):
                to = arcs.ends[rows]
                if numbers is not None:
                    keys = np.repeat(np.arange(len(of_source)), of_source) * len(order) + numbers[to]
                    by_number = np.argsort(keys)
                    to, rows = numbers[to[by_number]], rows[by_number]
                ends.append(to)
                arc_names.append(arcs.names[rows])
                first.append(done + np.cumsum(of_source))
                done += len(rows)


def _rows_in(first: np.ndarray, order: np.ndarray, most: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give the arcs of sources in an order, so many at a time: how many each source has, and their places."""
    for part in _parts(len(order)):
        sources = order[part].astype(np.int64)
        starts = first[sources]
        counts = first[sources + 1] - starts
        for lo, hi in weighted_slices(counts, most):
            yield counts[lo:hi], spans(starts[lo:hi], counts[lo:hi])


def _parts(count: int) -> Iterator[slice]:
    for start in range(0, count, _PART):
        yield slice(start, min(start + _PART, count))
