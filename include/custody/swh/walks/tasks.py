"""Tasks of the steps of a build whose graph is in arrays: each public function is one task, from files to files.

Folders of Parquet files go in and come out. A task that is tried again writes its files anew. The tasks of one step
differ in the part of the roots or of the frontier that they walk from, and need nothing of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from custody.format.number_sets import distinct, is_among
from custody.swh.walks.array_ranges import Room, write_arrays
from custody.swh.walks.graph_arrays import GraphArrays, make_arrays
from custody.swh.walks.graph_walks import (
    NONE_ABOVE,
    NONE_BELOW,
    PathRows,
    WalkResult,
    expand,
    find_frontier,
    greatest_below,
    least_above,
    reachable_from,
)
from custody.swh.walks.revision_origins import History, follow, make_history
from custody.swh.walks.sorted_runs import write_parts, write_run
from custody.vfs import PosixFileSystem

# Bounds the memory of a task, whatever the size of the graph.
ROWS_OF_A_RUN = 1_000_000
TOO_LARGE = -1
"""Returned instead of a number of rows: the vectors of walks would take more memory than there may be."""
Part = tuple[int, int]
"""The number of a part, and of how many."""
Columns = dict[str, np.ndarray | pa.Array]
_TYPES = {"is_direct": pa.bool_()}
"""Of columns that are no numbers."""
_NAMES = pa.dictionary(pa.int32(), pa.binary())
_NO_ARCS = pa.schema({"src": pa.int64(), "dst": pa.int64(), "to_directory": pa.bool_(), "name": _NAMES})


def make_graph_arrays(edges: Path, roots: Path, released: Path, arrays: Path, reachable: Path) -> int:
    """Make the arrays of a graph, and list what is below the roots; return how many that are.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    fs = PosixFileSystem()
    tops = distinct(np.asarray(read_rows(roots, "top")["top"].drop_null()))
    graph = make_arrays(read_arcs(edges), tops)
    fresh(fs, arrays)
    graph.write(fs, arrays)
    return _list_reachable(fs, graph, roots, released, reachable)


def make_graph_arrays_by_ranges(
    edges: Path, roots: Path, released: Path, arrays: Path, reachable: Path, scratch: Path, room: Room
) -> int:
    """Do the same with so much in memory at once; return TOO_LARGE, and leave no arrays, where walks need more.

    Raises:
        InvalidInputError: directories lie in each other.
    """
    fs = PosixFileSystem()
    for folder in (arrays, scratch):
        fresh(fs, folder)
    count = sum(pq.read_metadata(path).num_rows for path in roots.glob("*.parquet"))
    # Walks have columns of the roots in memory as well.
    room = Room(room.arcs, room.nodes - count)
    fits = write_arrays(fs, arcs_in_pieces(edges, room.arcs), _tops_in_pieces(roots, room.arcs), arrays, scratch, room)
    fs.remove_tree(scratch)
    if not fits:
        fs.remove_tree(arrays)
        return TOO_LARGE
    return _list_reachable(fs, GraphArrays.open(arrays), roots, released, reachable)


def earliest_dates(arrays: Path, roots: Path, released: Path, direct: Path, runs: Path) -> int:
    """Find the earliest date of each content and directory, and the earliest revision; return how many have a date."""
    fs, graph = PosixFileSystem(), GraphArrays.open(arrays)
    held, alone = Roots.read(graph, roots), read_rows(released, "author_date", "revrel", "cnt")
    alone = alone.filter(pc.is_valid(alone["author_date"]))
    dates = np.concatenate([held.date, int_column(alone, "author_date")])
    revrels = np.concatenate([held.revrel, int_column(alone, "revrel")])
    # A pair of date and revision as one number: the earlier pair is the smaller one.
    order = np.lexsort((revrels, dates))
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    dates, revrels = dates[order], revrels[order]
    cnt, rank_alone = int_column(alone, "cnt"), rank[len(held.top) :]
    places = graph.contents_of(cnt)
    others, place_of_other = np.unique(cnt[places < 0], return_inverse=True)

    def best_of(counted: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Nodes with a date and the least of their ranks, by the nodes' ids: directories, contents, other contents."""
        values = np.full(graph.count, NONE_ABOVE)
        np.minimum.at(values, held.top[counted], rank[: len(held.top)][counted])
        below, other = least_above(graph, values), np.full(len(others), NONE_ABOVE)
        np.minimum.at(below, places[places >= 0], rank_alone[places >= 0])
        np.minimum.at(other, place_of_other, rank_alone[places < 0])
        for ids, numbers, best in (
            (graph.sorted_ids, graph.numbers, values),
            (graph.contents, None, below),
            (others, None, other),
        ):
            for part in row_parts(len(ids)):
                ranks = best[part if numbers is None else numbers[part]]
                is_dated = ranks != NONE_ABOVE
                yield ids[part][is_dated], ranks[is_dated]

    rows = ({"node": nodes, "author_date": dates[best]} for nodes, best in best_of(held.is_direct))
    count = write_alone(fs, direct, rows)
    for number, (nodes, best) in enumerate(best_of(np.ones(len(held.top), bool))):
        add_run(fs, runs, (0, number), {"node": nodes, "author_date": dates[best], "revrel": revrels[best]})
    return count


def latest_contents(arrays: Path, dates: Path, reachable: Path | None, target: Path) -> int:
    """Find the latest of the earliest dates of the contents in each directory; return how many have one."""
    graph = GraphArrays.open(arrays)
    latest_here = np.full(len(graph.contents), NONE_BELOW)
    for rows in rows_in_pieces(dates, "node", "author_date"):
        places = graph.contents_of(int_column(rows, "node"))
        latest_here[places[places >= 0]] = int_column(rows, "author_date")[places >= 0]
    within = np.full(graph.count, reachable is None)
    for rows in rows_in_pieces(reachable, "node") if reachable is not None else ():
        numbers = graph.numbers_of(int_column(rows, "node"))
        within[numbers[numbers >= 0]] = True
    latest = greatest_below(graph, latest_here, within)
    return write_alone(PosixFileSystem(), target, _by_number(graph, latest != NONE_BELOW, latest))


def part_of_frontier(arrays: Path, roots: Path, leaves: Path, target: Path, part: Part) -> int:
    """Find the directories that are frontier because of a part of the roots."""
    graph = GraphArrays.open(arrays)
    held, latest = Roots.read(graph, roots), read_latest(graph, leaves)
    mine = _slice(len(held.top), part)
    is_frontier = find_frontier(graph, held.top[mine], held.date[mine], latest)
    fs = PosixFileSystem()
    path = target / f"{part[0]:05}.parquet"
    fs.remove(path)
    write_run(fs, path, pa.table({"dir": graph.ids[is_frontier]}))
    return int(is_frontier.sum())


def whole_frontier(parts: Path, target: Path) -> int:
    """Put the parts of the frontier together; return how many directories it has."""
    return write_alone(PosixFileSystem(), target, [{"dir": distinct(int_column(read_rows(parts, "dir"), "dir"))}])


def directories_in_revisions(
    arrays: Path, roots: Path, leaves: Path, barrier: Path, runs: Path, rows_wanted: int, part: Part
) -> int:
    """Write runs of the frontier directories of a part of the roots; return how many rows."""
    graph = GraphArrays.open(arrays)
    held, latest = Roots.read(graph, roots), read_latest(graph, leaves)

    def rows(walk: WalkResult) -> Columns:
        root, row = held.each(walk.tops, walk.settled)
        directory = walk.settled.thing[row]
        columns = {
            "dir": graph.ids[directory],
            "dir_max_author_date": latest[directory],
            "revrel": held.revrel[root],
            "revrel_author_date": held.date[root],
        }
        order = np.lexsort((columns["revrel"], columns["revrel_author_date"], columns["dir"]))
        return {name: column[order] for name, column in columns.items()} | {
            "path": walk.settled.path.take(pa.array(row[order]))
        }

    tops = _by_id(graph, distinct(held.top))
    stopped = read_marked(graph, barrier)
    return _expanded(
        runs, part, expand(graph, _mine(tops, part), stopped, rows_wanted=rows_wanted, with_contents=False), rows
    )


def contents_in_revisions(
    arrays: Path, roots: Path, released: Path, barrier: Path, runs: Path, rows_wanted: int, part: Part
) -> int:
    """Write runs of the contents that a part of the roots has outside of the frontier; return how many rows."""
    fs, graph = PosixFileSystem(), GraphArrays.open(arrays)
    held = Roots.read(graph, roots)

    def rows(walk: WalkResult) -> Columns:
        assert walk.contents is not None  # noqa: S101 - they were asked for
        root, row = held.each(walk.tops, walk.contents)
        content, date, revrel = walk.contents.thing[row], held.date[root], held.revrel[root]
        order = np.lexsort((revrel, date, content))
        return {
            "cnt": graph.contents[content[order]],
            "revrel": revrel[order],
            "revrel_author_date": date[order],
            "path": walk.contents.path.take(pa.array(row[order])),
        }

    count = 0
    # Contents that releases name need no walk: the first part writes them, so that they are there once.
    if part[0] == 0:
        alone = read_rows(released, "cnt", "revrel", "author_date")
        alone = alone.filter(pc.is_valid(alone["author_date"])).rename_columns(["cnt", "revrel", "revrel_author_date"])
        alone = alone.sort_by([(name, "ascending") for name in ("cnt", "revrel_author_date", "revrel")])
        empty = pa.repeat(pa.scalar(b"", pa.large_binary()), alone.num_rows)
        # Under the number of a part that does not exist, so that no run of a walk has its name.
        add_run(fs, runs, (part[1], 0), {name: alone[name] for name in alone.column_names} | {"path": empty})
        count = alone.num_rows
    tops = _by_id(graph, distinct(held.top))
    stopped = read_marked(graph, barrier)
    walks = expand(graph, _mine(tops, part), stopped, rows_wanted=rows_wanted, with_contents=True)
    return count + _expanded(runs, part, walks, rows)


def contents_in_directories(arrays: Path, listed: Path, runs: Path, rows_wanted: int, part: Part) -> int:
    """Write runs of the contents in a part of the frontier directories, at any depth; return how many rows."""
    graph = GraphArrays.open(arrays)

    def rows(walk: WalkResult) -> Columns:
        assert walk.contents is not None  # noqa: S101 - they were asked for
        # Sorted already: by contents, and of one content by tops, which are by their ids.
        directories = graph.ids[walk.tops][walk.contents.top]
        return {"cnt": graph.contents[walk.contents.thing], "dir": directories, "path": walk.contents.path}

    tops = _by_id(graph, np.flatnonzero(read_marked(graph, listed)))
    return _expanded(
        runs, part, expand(graph, _mine(tops, part), None, rows_wanted=rows_wanted, with_contents=True), rows
    )


def make_history_arrays(history: Path, origins: Path, target: Path) -> int:
    """Make the arrays of a history; return how many nodes it has.

    Raises:
        InvalidInputError: revisions follow each other in a circle.
    """
    arcs = read_rows(history, "src", "dst")
    arrays = make_history(
        int_column(arcs, "src"), int_column(arcs, "dst"), int_column(read_rows(origins, "node"), "node")
    )
    fs = PosixFileSystem()
    fresh(fs, target)
    arrays.write(fs, target)
    return len(arrays.ids)


def revisions_in_origins(arrays: Path, roots: Path, runs: Path, rows_wanted: int, part: Part) -> int:
    """Write runs of the roots that a part of the origins leads to, dated or not; return how many rows."""
    fs, history, count = PosixFileSystem(), History.open(arrays), 0
    is_root = is_among(history.ids, int_column(read_rows(roots, "revrel"), "revrel"))
    for number, (nodes, origins) in enumerate(follow(history, _mine(history.origins, part), rows_wanted=rows_wanted)):
        counted = is_root[nodes]
        columns = {"revrel": history.ids[nodes[counted]], "ori": history.ids[origins[counted]]}
        count += add_run(fs, runs, (part[0], number), columns)
    return count


@dataclass(frozen=True)
class Roots:
    """Dated roots that have a directory, sorted by it: numbers of directories, dates, ids of revisions or releases."""

    top: np.ndarray
    date: np.ndarray
    revrel: np.ndarray
    is_direct: np.ndarray

    @classmethod
    def read(cls, graph: GraphArrays, folder: Path) -> Roots:
        """Read what the first step kept of roots."""
        rows = read_rows(folder, "top", "author_date", "revrel", "is_direct")
        rows = rows.filter(pc.and_(pc.is_valid(rows["top"]), pc.is_valid(rows["author_date"])))
        top = graph.numbers_of(int_column(rows, "top"))
        order = np.lexsort((int_column(rows, "revrel"), top))
        is_direct = np.asarray(rows["is_direct"].combine_chunks().cast(pa.uint8())).astype(bool)
        return cls(
            top[order], int_column(rows, "author_date")[order], int_column(rows, "revrel")[order], is_direct[order]
        )

    def _of(self, tops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first root of each directory, and how many it has."""
        first = np.searchsorted(self.top, tops)
        return first, np.searchsorted(self.top, tops, "right") - first

    def each(self, tops: np.ndarray, below: PathRows) -> tuple[np.ndarray, np.ndarray]:
        """Return each row of what was found below tops once for each root of its top: the roots, and the rows."""
        first, counts = self._of(tops)
        repeated = counts[below.top]
        row = np.repeat(np.arange(len(below.top)), repeated)
        behind = np.cumsum(repeated)
        root = np.arange(len(row)) - np.repeat(behind - repeated, repeated) + first[below.top[row]]
        return root, row


def read_arcs(edges: Path) -> pa.Table:
    """Return the arcs from directories to directories and contents, as `make_arrays` takes them."""
    # Names of a piece take a place in a dictionary each and no room of their own.
    return _one_dictionary(list(_small_pieces(edges, ROWS_OF_A_RUN)))


def arcs_in_pieces(edges: Path, rows: int) -> Iterator[pa.Table]:
    """Give the same in pieces of about so many rows."""
    pieces: list[pa.Table] = []
    for piece in _small_pieces(edges, max(min(rows // 4, ROWS_OF_A_RUN), 1)):
        if sum(map(len, pieces)) + len(piece) > rows and pieces:
            yield _one_dictionary(pieces)
            pieces = []
        pieces.append(piece)
    if pieces:
        yield _one_dictionary(pieces)


def _one_dictionary(pieces: list[pa.Table]) -> pa.Table:
    return pa.concat_tables(pieces).unify_dictionaries() if pieces else _NO_ARCS.empty_table()


def _small_pieces(edges: Path, rows: int) -> Iterator[pa.Table]:
    for path in sorted(edges.glob("*.parquet")):
        with pq.ParquetFile(path, read_dictionary=["dst_type"]) as file:
            columns = ["src", "dst", "dst_type", "name"]
            for batch in file.iter_batches(batch_size=rows, columns=columns, use_threads=False):
                yield _arcs_of(pa.Table.from_batches([batch]))


def _arcs_of(rows: pa.Table) -> pa.Table:
    rows = rows.filter(pc.is_in(rows["dst_type"], pa.array(["dir", "cnt"])))
    to_directory = pc.equal(rows["dst_type"], "dir")
    # With the slash, as "a/" is greater than "a-b/", although "a" is smaller than "a-b".
    names = pc.if_else(to_directory, pc.binary_join_element_wise(rows["name"], b"/", b""), rows["name"])
    columns = {"src": rows["src"], "dst": rows["dst"], "to_directory": to_directory}
    return pa.table(columns | {"name": names.dictionary_encode()})


def _tops_in_pieces(roots: Path, rows: int) -> Iterator[np.ndarray]:
    for piece in rows_in_pieces(roots, "top", rows=rows):
        yield np.asarray(piece["top"].drop_null())


def _list_reachable(fs: PosixFileSystem, graph: GraphArrays, roots: Path, released: Path, reachable: Path) -> int:
    """Write which directories and contents are below the roots; return how many."""
    tops = read_rows(roots, "top")["top"].drop_null()
    directories, contents = reachable_from(graph, graph.numbers_of(np.asarray(tops)))
    alone = distinct(int_column(read_rows(released, "cnt"), "cnt"))
    places = graph.contents_of(alone)
    contents[places[places >= 0]] = True

    def parts() -> Iterator[Columns]:
        for ids, is_below in ((graph.ids, directories), (graph.contents, contents)):
            for part in row_parts(len(ids)):
                yield {"node": ids[part][is_below[part]]}
        yield {"node": alone[places < 0]}

    return write_alone(fs, reachable, parts())


def _by_number(graph: GraphArrays, is_listed: np.ndarray, latest: np.ndarray) -> Iterator[Columns]:
    for part in row_parts(graph.count):
        listed = is_listed[part]
        yield {"dir": graph.ids[part][listed], "max_leaf": latest[part][listed]}


def row_parts(count: int) -> Iterator[slice]:
    """Give so many rows, at least none, in parts that bound the memory."""
    for start in range(0, max(count, 1), ROWS_OF_A_RUN):
        yield slice(start, start + ROWS_OF_A_RUN)


def read_rows(folder: Path, *columns: str) -> pa.Table:
    """Return columns of all Parquet files of a folder."""
    parts = []
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            parts.append(file.read(list(columns), use_threads=False))
    if not parts:
        return pa.table({name: pa.array([], _TYPES.get(name, pa.int64())) for name in columns})
    return pa.concat_tables(parts)


def rows_in_pieces(folder: Path, *columns: str, rows: int = ROWS_OF_A_RUN) -> Iterator[pa.Table]:
    """Give the same in pieces of at most so many rows."""
    for path in sorted(folder.glob("*.parquet")):
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=rows, columns=list(columns), use_threads=False):
                yield pa.Table.from_batches([batch])


def read_latest(graph: GraphArrays, leaves: Path) -> np.ndarray:
    """Return the latest date in each directory, as `greatest_below` gave it, from what its step kept."""
    latest = np.full(graph.count, NONE_BELOW)
    for rows in rows_in_pieces(leaves, "dir", "max_leaf"):
        latest[graph.numbers_of(int_column(rows, "dir"))] = int_column(rows, "max_leaf")
    return latest


def read_marked(graph: GraphArrays, listed: Path) -> np.ndarray:
    """Return which directories are listed in the column `dir`, as bool."""
    is_marked = np.zeros(graph.count, bool)
    for rows in rows_in_pieces(listed, "dir"):
        is_marked[graph.numbers_of(int_column(rows, "dir"))] = True
    return is_marked


def int_column(rows: pa.Table, column: str) -> np.ndarray:
    """Return a column of numbers without nulls as an array."""
    return np.asarray(rows[column])


def add_run(fs: PosixFileSystem, folder: Path, name: tuple[int, int], columns: Columns) -> int:
    """Write sorted rows as a run, named by the part that found them and a number; return how many rows."""
    rows = pa.table(columns)
    path = folder / f"{name[0]:05}-{name[1]:06}.parquet"
    fs.remove(path)
    if rows.num_rows:
        write_run(fs, path, rows)
    return int(rows.num_rows)


def write_alone(fs: PosixFileSystem, folder: Path, parts: Iterable[Columns]) -> int:
    """Write the one file of a folder that a task makes alone, of one part or more; return how many rows."""
    fresh(fs, folder)
    return write_parts(fs, folder / "00000.parquet", map(pa.table, parts))


def fresh(fs: PosixFileSystem, folder: Path) -> None:
    """Make a folder that is empty, whatever an earlier try left in it."""
    # An earlier try of the task may have left files that this one does not write.
    fs.remove_tree(folder)
    fs.make_directory(folder)


def _expanded(runs: Path, part: Part, walks: Iterator[WalkResult], rows: Callable[[WalkResult], Columns]) -> int:
    """Write what each walk found as a run."""
    fs, count = PosixFileSystem(), 0
    for number, result in enumerate(walks):
        count += add_run(fs, runs, (part[0], number), rows(result))
    return count


def _by_id(graph: GraphArrays, directories: np.ndarray) -> np.ndarray:
    return directories[np.argsort(graph.ids[directories], kind="stable")]


def _slice(count: int, part: Part) -> slice:
    number, of = part
    # Parts of equal size but for one, without gaps: each part begins where the one before it ends.
    return slice(count * number // of, count * (number + 1) // of)


def _mine(tops: np.ndarray, part: Part) -> np.ndarray:
    return tops[_slice(len(tops), part)]
