"""The walks in arrays, without Spark: what tasks make of random graphs is what the definitions say."""

from __future__ import annotations

import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from custody.errors import InvalidInputError, StorageError
from custody.swh.tables import (
    CONTENTS_IN_DIRECTORIES,
    CONTENTS_IN_REVISIONS,
    DIRECTORIES_IN_REVISIONS,
    EARLIEST,
    NODE_IDS,
    REVISIONS_IN_ORIGINS,
    TABLES,
)
from custody.swh.walks import tasks
from custody.swh.walks.array_ranges import Room
from custody.swh.walks.graph_arrays import LEVELS_MAX, GraphArrays, best_rows, make_arrays
from custody.swh.walks.graph_walks import NONE_BELOW, find_frontier
from custody.swh.walks.revision_origins import follow, make_history
from custody.swh.walks.sorted_runs import Range, cut_ranges, merge_range, write_run
from custody.vfs import PosixFileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from tests.swh.graphs import Shape, disjoint, random_graph, shapes
from tests.swh.on_spark import expected, rows
from tests.swh.reference import Reference, Row, SmallGraph

PARTS = 3


class Folders:
    """The folders that tasks read and write; those of a first step are made from a graph in memory."""

    def __init__(self, folder: Path, graph: SmallGraph, reference: Reference) -> None:
        self._folder = folder
        edges = [edge for edge in graph.edges if graph.types[edge[0]] == "dir"]
        whole = {
            "src": pa.array([source for source, _, _ in edges], pa.int64()),
            "dst": pa.array([target for _, target, _ in edges], pa.int64()),
            "dst_type": pa.array([graph.types[target] for _, target, _ in edges], pa.string()),
            "name": pa.array([name or b"" for _, _, name in edges], pa.binary()),
        }
        self._write("edges", whole)
        roots = reference.roots()
        self._write(
            "roots",
            {
                "revrel": pa.array(roots, pa.int64()),
                "author_date": pa.array([graph.author.get(root) for root in roots], pa.int64()),
                "top": pa.array([reference.root_directory(root) for root in roots], pa.int64()),
                "is_direct": pa.array([bool(graph.below(root, "dir")) for root in roots], pa.bool_()),
            },
        )
        released = [(root, content) for root in roots for content in graph.below(root, "cnt")]
        self._write(
            "released",
            {
                "revrel": pa.array([root for root, _ in released], pa.int64()),
                "author_date": pa.array([graph.author.get(root) for root, _ in released], pa.int64()),
                "cnt": pa.array([content for _, content in released], pa.int64()),
            },
        )

        of_history = ("ori", "snp", "rel", "rev")
        arcs = [edge for edge in graph.edges if {graph.types[edge[0]], graph.types[edge[1]]} <= set(of_history)]
        pairs = sorted({(source, target) for source, target, _ in arcs})
        self._write(
            "history",
            {
                "src": pa.array([source for source, _ in pairs], pa.int64()),
                "dst": pa.array([target for _, target in pairs], pa.int64()),
            },
        )
        self._write("origins", {"node": pa.array(graph.of("ori"), pa.int64())})

    def at(self, name: str) -> Path:
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        return folder

    def _write(self, name: str, columns: dict[str, pa.Array]) -> None:
        table = pa.table(columns)
        half = table.num_rows // 2
        pq.write_table(table.slice(0, half), self.at(name) / "0.parquet")
        pq.write_table(table.slice(half), self.at(name) / "1.parquet")


def built(folder: Path, graph: SmallGraph, node_filter: str) -> dict[str, set[Row]]:
    """Do the tasks of all steps in their order, as Spark would."""
    folders = Folders(folder, graph, Reference(graph, node_filter))
    arrays, roots, released = folders.at("arrays"), folders.at("roots"), folders.at("released")
    dates, leaves, listed = folders.at("dates"), folders.at("leaves"), folders.at("listed")
    tasks.make_graph_arrays(folders.at("edges"), roots, released, arrays, folders.at("reachable"))
    tasks.earliest_dates(arrays, roots, released, dates, folders.at(EARLIEST))
    tasks.latest_contents(arrays, dates, folders.at("reachable") if node_filter == "heads" else None, leaves)
    parts = [(number, PARTS) for number in range(PARTS)]
    for part in parts:
        tasks.part_of_frontier(arrays, roots, leaves, folders.at("parts"), part)
    tasks.whole_frontier(folders.at("parts"), listed)
    for part in parts:
        tasks.directories_in_revisions(arrays, roots, leaves, listed, folders.at(DIRECTORIES_IN_REVISIONS), 50, part)
        tasks.contents_in_revisions(arrays, roots, released, listed, folders.at(CONTENTS_IN_REVISIONS), 50, part)
        tasks.contents_in_directories(arrays, listed, folders.at(CONTENTS_IN_DIRECTORIES), 50, part)
    tasks.make_history_arrays(folders.at("history"), folders.at("origins"), folders.at("history-arrays"))
    for part in parts:
        tasks.revisions_in_origins(folders.at("history-arrays"), roots, folders.at(REVISIONS_IN_ORIGINS), 50, part)
    nodes = rows(folders.at("reachable"), "node") | {(root,) for root in Reference(graph, node_filter).roots()}
    return {
        "nodes": nodes | {(origin,) for origin in graph.of("ori")},
        "earliest": rows(dates, "node", "author_date"),
        "earliest_revisions": table(folders, EARLIEST, "node", "author_date", "revrel"),
        "max_leaf": rows(leaves, "dir", "max_leaf"),
        "frontier": rows(listed, "dir"),
        "d_in_r": table(
            folders,
            DIRECTORIES_IN_REVISIONS,
            *("dir", "dir_max_author_date", "revrel", "revrel_author_date", "path"),
        ),
        "c_in_r": table(folders, CONTENTS_IN_REVISIONS, "cnt", "revrel", "revrel_author_date", "path"),
        "c_in_d": table(folders, CONTENTS_IN_DIRECTORIES, "cnt", "dir", "path"),
        "r_in_o": table(folders, REVISIONS_IN_ORIGINS, "revrel", "ori"),
    }


def table(made: Folders, name: str, *columns: str) -> set[Row]:
    """Merge the runs of a table into files of about seventy rows, each with keys of its own, and read them."""
    fs, runs = PosixFileSystem(), sorted(made.at(name).glob("*.parquet"))
    fs.remove_tree(made.at(f"table-{name}"))
    target = made.at(f"table-{name}")
    written = [
        merge_range(fs, TABLES[name], runs, part, target / f"{part.number:05}.parquet", group_rows=16)
        for part in cut_ranges(runs, TABLES[name], 70)
    ]
    files = [file for file in written if file is not None]
    assert all(one.last_key < other.first_key for one, other in pairwise(files))
    assert sum(pq.read_metadata(run).num_rows for run in runs) == sum(file.rows for file in files)
    return rows(target, *columns)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("node_filter", ["heads", "all"])
def test_what_is_walked_in_arrays_is_what_the_definitions_say(tmp_path: Path, node_filter: str) -> None:
    rng = random.Random(13)  # noqa: S311 - a test's graphs
    graphs = [
        random_graph(
            Shape(
                seed=rng.randrange(1 << 32),
                contents=rng.randint(2, 40),
                directories=rng.randint(3, 40),
                revisions=rng.randint(3, 20),
                releases=rng.randint(0, 6),
                origins=rng.randint(1, 4),
                depth=rng.randint(1, 6),
                dates=rng.choice([2, 5, 50]),
                undated=rng.choice([0.0, 0.1, 0.5]),
            )
        )
        for _ in range(200)
    ]
    whole, shifts = disjoint(graphs)
    found = built(tmp_path, whole, node_filter)
    wanted: dict[str, set[Row]] = {name: set() for name in found}
    for graph, shift in zip(graphs, shifts, strict=True):
        for name, part in expected(Reference(graph, node_filter), shift).items():
            wanted[name] |= part
    for name, held in wanted.items():
        assert len(held) > 200
        assert found[name] == held, f"{name}: too many {found[name] - held}, missing {held - found[name]}"


def test_a_graph_without_directories_has_tables_of_its_releases_only(tmp_path: Path) -> None:
    graph = SmallGraph({0: "cnt", 1: "rel", 2: "rev"}, [(1, 0, None)], {1: 5})
    found = built(tmp_path, graph, "all")
    assert found["c_in_r"] == {(0, 1, 5, b"")}
    assert found["earliest_revisions"] == {(0, 5, 1)}
    assert found["c_in_d"] == found["d_in_r"] == found["frontier"] == set()


def test_a_task_that_is_tried_again_leaves_the_same_files(tmp_path: Path) -> None:
    graph = random_graph(Shape(5, 60, 50, 30, 6, 3, 4, 50, 0.1))
    once = built(tmp_path, graph, "all")
    assert built(tmp_path, graph, "all") == once


@pytest.mark.in_parts(4)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(shape=shapes(300), room=st.sampled_from([1, 2, 7, 40, 200, 5000]))
def test_arrays_made_by_ranges_are_those_made_at_once_to_the_last_byte(
    tmp_path_factory: pytest.TempPathFactory, shape: Shape, room: int
) -> None:
    graph = random_graph(shape)
    folder = tmp_path_factory.mktemp("ranges")
    made = Folders(folder, graph, Reference(graph, "all"))
    inputs = (made.at("edges"), made.at("roots"), made.at("released"))
    count = tasks.make_graph_arrays(*inputs, made.at("arrays"), made.at("reachable"))
    ranges = (made.at("ranges"), made.at("reachable-by-ranges"), made.at("scratch"))
    for _ in ("at first", "tried again"):
        (folder / "scratch").mkdir(exist_ok=True)
        (folder / "scratch" / "left by a try that died").write_bytes(b"x")
        assert tasks.make_graph_arrays_by_ranges(*inputs, *ranges, Room(room, 10_000)) == count
    written = {path.name: path.read_bytes() for path in (folder / "ranges").iterdir()}
    assert written == {path.name: path.read_bytes() for path in (folder / "arrays").iterdir()}
    assert rows(folder / "reachable-by-ranges", "node") == rows(folder / "reachable", "node")
    assert not (folder / "scratch").exists()


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("taken", [0, 3])
def test_a_task_that_died_at_any_write_is_done_again_with_the_same_arrays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, taken: int
) -> None:
    graph = random_graph(Shape(6, 20, 20, 10, 3, 2, 3, 20, 0.1))
    made = Folders(tmp_path, graph, Reference(graph, "all"))
    inputs, room = (made.at("edges"), made.at("roots"), made.at("released")), Room(25, 1000)
    outputs = (tmp_path / "arrays", tmp_path / "reachable", tmp_path / "scratch")
    counting = Fault(count=0)
    monkeypatch.setattr(tasks, "PosixFileSystem", lambda: FaultyFileSystem(PosixFileSystem(), counting))
    count = tasks.make_graph_arrays_by_ranges(*inputs, *outputs, room)
    wanted = {path.name: path.read_bytes() for path in (tmp_path / "arrays").iterdir()}
    assert counting.met > 100
    # From the write on at which it dies nothing reaches the disk any more, and nothing is cleared away.
    for first in range(1 + taken, counting.met + 1, 7):
        dying = Fault(first=first, count=None, taken_bytes=taken)
        monkeypatch.setattr(tasks, "PosixFileSystem", lambda fault=dying: FaultyFileSystem(PosixFileSystem(), fault))
        with pytest.raises(StorageError):
            tasks.make_graph_arrays_by_ranges(*inputs, *outputs, room)
        monkeypatch.setattr(tasks, "PosixFileSystem", PosixFileSystem)
        assert tasks.make_graph_arrays_by_ranges(*inputs, *outputs, room) == count
        assert {path.name: path.read_bytes() for path in (tmp_path / "arrays").iterdir()} == wanted


def test_where_numbers_of_nodes_or_their_places_do_not_fit_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = random_graph(Shape(6, 20, 20, 10, 3, 2, 3, 20, 0.1))
    reference = Reference(graph, "all")
    made = Folders(tmp_path, graph, reference)
    inputs = (made.at("edges"), made.at("roots"), made.at("released"))
    outputs = (made.at("arrays"), made.at("reachable"), tmp_path / "scratch")
    assert tasks.make_graph_arrays_by_ranges(*inputs, *outputs, Room(10, 1000)) > 0
    opened = GraphArrays.open(tmp_path / "arrays")
    needed = opened.count + len(opened.contents) + len(reference.roots())
    assert tasks.make_graph_arrays_by_ranges(*inputs, *outputs, Room(10, needed)) > 0
    assert tasks.make_graph_arrays_by_ranges(*inputs, *outputs, Room(10, needed - 1)) == tasks.TOO_LARGE
    assert not (tmp_path / "arrays").exists()
    monkeypatch.setattr("custody.swh.walks.graph_arrays.PLACES_MAX", opened.count - 1)
    assert tasks.make_graph_arrays_by_ranges(*inputs, *outputs, Room(10, needed)) == tasks.TOO_LARGE
    assert not any((tmp_path / name).exists() for name in ("arrays", "scratch"))


def test_more_places_than_numbers_of_32_bits_are_refused_with_the_setting_that_helps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = pa.array([b"a", b"b"], pa.binary()).dictionary_encode()
    arcs = pa.table({"src": [1, 1], "dst": [5, 6], "to_directory": [False, False], "name": names})
    monkeypatch.setattr("custody.swh.walks.graph_arrays.PLACES_MAX", 2)
    assert make_arrays(arcs, np.arange(2)).count == 2
    with pytest.raises(
        InvalidInputError, match="at most 2 directories, contents and names in memory, got 3: lower swh"
    ):
        make_arrays(arcs, np.arange(3))


@pytest.mark.parametrize("edges", [[(1, 2), (2, 3), (3, 2)], [(1, 1)], [(1, 2), (2, 1)]])
def test_directories_that_lie_in_each_other_are_refused(tmp_path: Path, edges: list[tuple[int, int]]) -> None:
    graph = SmallGraph(dict.fromkeys((1, 2, 3), "dir"), [(source, target, b"x") for source, target in edges])
    made = Folders(tmp_path, graph, Reference(SmallGraph(graph.types, []), "all"))
    with pytest.raises(InvalidInputError, match=f"expected at most {LEVELS_MAX} levels of directories, got more, or"):
        tasks.make_graph_arrays(*(made.at(name) for name in ("edges", "roots", "released", "arrays", "reachable")))


def test_directories_are_numbered_so_that_every_arc_leads_to_a_greater_number(tmp_path: Path) -> None:
    graph = random_graph(Shape(8, 200, 300, 60, 6, 3, 9, 50, 0.1))
    built(tmp_path, graph, "all")
    opened = GraphArrays.open(tmp_path / "arrays")
    for level, (lo, hi) in enumerate(opened.levels()):
        above, below = opened.arcs(lo, hi)
        assert (below >= hi).all(), level
        assert set(opened.ids[below].tolist()) <= set(graph.of("dir"))
        assert len(above) == len(below)
    assert len(opened.bounds) > 5
    assert opened.numbers_of(opened.ids).tolist() == list(range(opened.count))
    assert opened.numbers_of(np.array([-5, 10**9])).tolist() == [-1, -1]


def test_the_frontier_is_found_below_roots_of_great_numbers_and_many_dates() -> None:
    # The last of many directories are roots, each of another date: number times dates is more than 32 bits hold.
    tops, dates, child, content = 200_000, 12_000, 500_000, 900_000
    roots = np.arange(tops - dates, tops)
    names = pa.array([b"child/", b"file"], pa.binary()).dictionary_encode()
    arcs = {"src": [tops - 1, child], "dst": [child, content], "to_directory": [True, False], "name": names}
    graph = make_arrays(pa.table(arcs), np.arange(tops))
    at_child = graph.numbers_of(np.array([child]))
    latest = np.full(graph.count, NONE_BELOW)
    latest[at_child] = dates - 2
    found = find_frontier(graph, graph.numbers_of(roots), np.arange(dates), latest)
    assert np.flatnonzero(found).tolist() == at_child.tolist()


@pytest.mark.parametrize("merge_each", [3, 50])
def test_a_long_history_that_merges_gives_each_revision_its_origins(tmp_path: Path, merge_each: int) -> None:
    commits = 20_000
    # Merges reach over each other: no commit behind the first merge has one way alone to it.
    src, dst = list(range(commits - 1)), list(range(1, commits))
    for node in range(0, commits - 5, merge_each):
        src.append(node)
        dst.append(node + 5)
    first, second = commits, commits + 1
    src += [first, second]
    dst += [0, commits // 2]
    history = make_history(np.array(src), np.array(dst), np.array([first, second, commits + 2]))
    assert len(history.bounds) < 60
    found = {
        (int(node), int(origin))
        for nodes, origins in follow(history, history.origins, rows_wanted=1000)
        for node, origin in zip(history.ids[nodes], history.ids[origins], strict=True)
    }
    wanted = {(node, first) for node in range(commits)} | {(node, second) for node in range(commits // 2, commits)}
    assert found == wanted | {(origin, origin) for origin in (first, second, commits + 2)}


def test_revisions_that_follow_each_other_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="expected histories without cycles"):
        make_history(np.array([9, 1, 2, 3]), np.array([5, 2, 3, 1]), np.array([9]))


def test_of_rows_to_one_thing_the_least_depth_counts_and_then_the_smallest_path() -> None:
    keys = np.array([7, 3, 7, 7, 3, 5])
    depths = np.array([2, 1, 2, 3, 1, 0], np.int32)
    paths = [b"b", b"a-b/", b"a\xff", b"", b"a/", b"z"]
    asked: list[int] = []

    def given(few: np.ndarray) -> pa.Array:
        asked.extend(few.tolist())
        return pa.array([paths[row] for row in few], pa.large_binary())

    assert best_rows(keys, depths, given).tolist() == [1, 5, 2]
    assert sorted(asked) == [0, 1, 2, 4], "paths are asked for only where there is a choice"


def test_ranges_are_cut_between_keys_and_a_key_with_many_rows_stays_whole(tmp_path: Path) -> None:
    fs, spec = PosixFileSystem(), TABLES[CONTENTS_IN_DIRECTORIES]
    for number in range(3):
        keys = np.sort(np.concatenate([np.arange(0, 90_000, 3) + number, np.full(40_000, 30_000)]))
        paths = pa.repeat(pa.scalar(b"x", pa.binary()), len(keys))
        directories = np.arange(len(keys)) * 3 + number
        write_run(fs, tmp_path / f"{number}.parquet", pa.table({"cnt": keys, "dir": directories, "path": paths}))
    runs = sorted(tmp_path.glob("*.parquet"))
    ranges = cut_ranges(runs, spec, 50_000)
    assert ranges[0].first is None
    assert ranges[-1].behind is None
    assert [part.first for part in ranges[1:]] == [part.behind for part in ranges[:-1]]
    files = [
        merge_range(fs, spec, runs, part, tmp_path / f"table-{part.number}.parquet", group_rows=4096) for part in ranges
    ]
    assert sum(file.rows for file in files if file) == 210_000
    assert max(file.rows for file in files if file) < 220_000
    assert len([file for file in files if file]) >= 2
    assert cut_ranges([], spec, 50_000) == [Range(0, None, None)]


def test_hashes_are_cut_into_ranges_too(tmp_path: Path) -> None:
    fs, spec, rng = PosixFileSystem(), TABLES[NODE_IDS], np.random.default_rng(4)
    hashes = sorted(rng.bytes(20) for _ in range(100_000))
    for number in range(2):
        some = hashes[number::2]
        columns = {"sha1_git": pa.array(some, pa.binary()), "type": ["cnt"] * len(some), "id": np.arange(len(some))}
        write_run(fs, tmp_path / f"{number}.parquet", pa.table(columns))
    runs = sorted(tmp_path.glob("*.parquet"))
    ranges = cut_ranges(runs, spec, 40_000)
    for part in ranges:
        merge_range(fs, spec, runs, part, tmp_path / f"table-{part.number}.parquet", group_rows=4096)
    found = [pq.read_table(tmp_path / f"table-{part.number}.parquet").column("sha1_git").to_pylist() for part in ranges]
    assert len(found) == 3
    assert [key for file in found for key in file] == hashes
