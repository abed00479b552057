"""The provenance tables that Spark builds are those of the definitions, row by row and path by path."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from custody.errors import ConfigurationError, InvalidInputError, NotFoundError
from custody.repository import Repository
from custody.spark.environment import submit_environment
from custody.spark.swh.work import BYTES_OF_A_NODE, Sizes
from custody.swh import open_graph
from custody.swh.build import STEPS
from custody.vfs import PosixFileSystem
from tests.swh.graphs import Shape, disjoint, drawn, random_graph, sha1_git, shapes, write_graph
from tests.swh.on_spark import begin, build_all, compare, rows
from tests.swh.reference import Reference, SmallGraph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    # PySpark's own warnings are not this project's errors.
    pytest.mark.filterwarnings("default"),
]


@pytest.fixture(scope="module")
def session(one_spark: SparkSession) -> SparkSession:
    return one_spark.newSession()


# A build by joins is a hundred small jobs: of the filter with more code every other run tries joins or arrays, the rest
# goes with the long tests.
# tests/unit/swh/test_walks.py has both filters in arrays, without Spark.
@pytest.mark.in_parts(4)
@pytest.mark.parametrize(
    ("node_filter", "by_joins"),
    [
        ("heads", True),
        ("heads", False),
        pytest.param("all", True, marks=pytest.mark.slow),
        pytest.param("all", False, marks=pytest.mark.slow),
    ],
)
def test_two_hundred_small_random_graphs(
    session: SparkSession, tmp_path: Path, node_filter: str, by_joins: bool
) -> None:
    compare(session, tmp_path, drawn(200, 120, 7), node_filter, by_joins=by_joins)


@pytest.mark.in_parts(3)
def test_a_build_with_little_memory_makes_the_arrays_by_ranges_and_the_same_tables(
    session: SparkSession, tmp_path: Path
) -> None:
    from custody.spark.swh.steps import run_step

    graphs = drawn(60, 120, 17)
    beside, _ = disjoint(graphs)
    memory = little_memory(beside)
    arcs = sum(beside.types[source] == "dir" for source, _, _ in beside.edges)
    assert arcs > 2 * Sizes.of_memory(memory).room.arcs, "there are several ranges"
    by_ranges = compare(session, tmp_path, graphs, "heads", memory_bytes=memory)
    at_once = begin(tmp_path / "database", tmp_path / "graph", "at-once", "heads")
    output, _ = run_step(session, at_once, open_graph(PosixFileSystem(), tmp_path / "graph"), STEPS[0])
    former = by_ranges.output(STEPS[0])
    assert former is not None
    assert (former.walks, output.walks) == ("in arrays made by ranges", "in arrays")
    # The other steps read nothing else of the graph. Files have their checksums: they are the same to the last byte.
    assert (former.files, former.kept) == (output.files, output.kept)
    one, other = (
        {path.name: path.read_bytes() for path in build.intermediate(STEPS[0], "arrays").iterdir()}
        for build in (by_ranges, at_once)
    )
    assert one == other
    assert len(one) == 13
    # Spark's workers write what a driver without them writes, to the last byte.
    in_driver = build_all(None, tmp_path / "database", tmp_path / "graph", "in-driver", "heads")
    for step in STEPS:
        by_spark, _ = run_step(session, at_once, open_graph(PosixFileSystem(), tmp_path / "graph"), step)
        done = in_driver.output(step)
        assert done is not None
        assert (done.files, done.kept, done.walks) == (by_spark.files, by_spark.kept, by_spark.walks)
    other = {path.name: path.read_bytes() for path in in_driver.intermediate(STEPS[0], "arrays").iterdir()}
    assert one == other


@pytest.mark.slow
def test_the_job_of_a_step_takes_the_memory_from_the_settings(tmp_path: Path) -> None:
    from custody.spark.submit import step_command

    graph, _ = disjoint(drawn(60, 120, 17))
    folder = write_graph(graph, tmp_path / "graph")
    root = Repository.create(tmp_path / "repository").settings.root
    environ = {**os.environ, **submit_environment(), "CUSTODY__SWH__MEMORY_BYTES": str(little_memory(graph))}
    arguments = ["--repository", str(root), "--graph", str(folder), "--build", "b", "--node-filter", "all"]
    command = step_command(STEPS[0], arguments, master="local[2]", environ=environ)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    # With the default memory a graph of this size is walked in arrays that are made at once.
    assert {unit["note"].partition(", ")[2] for unit in report["details"]} == {"walks in arrays made by ranges"}
    # What it wrote, for whoever asks later which run that was.
    named = {name for unit in report["details"] for name in unit["files"]}
    assert named == {path.as_uri() for path in root.rglob("tables/*/*") if path.is_file()} != set()


def little_memory(graph: SmallGraph) -> int:
    """As much memory as numbers of the nodes take, which is half of what there may be."""
    return 2 * BYTES_OF_A_NODE * sum(kind in ("cnt", "dir", "rev", "rel") for kind in graph.types.values())


@pytest.mark.in_parts(2)
def test_a_history_that_does_not_fit_is_walked_by_joins_beside_arrays(session: SparkSession, tmp_path: Path) -> None:
    from custody.spark.swh import steps
    from custody.spark.swh.steps import run_step

    graph = drawn(1, 60, 3)[0]
    folder = write_graph(graph, tmp_path / "graph")
    build, opened = begin(tmp_path / "database", folder, "b", "all"), open_graph(PosixFileSystem(), folder)
    output, _ = run_step(session, build, opened, STEPS[0])
    assert output.walks == "in arrays"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(steps, "_IN_ARRAYS", {**steps._IN_ARRAYS, STEPS[7]: lambda _: 1 / 0})
        with pytest.raises(ZeroDivisionError):
            run_step(session, build, opened, STEPS[7])
        run_step(session, build, opened, STEPS[7], Sizes(arcs_in_arrays=1))
    found = rows(build.folder / STEPS[7] / "tables" / "revisions_in_origins", "revrel", "ori")
    assert found == Reference(graph, "all").revisions_in_origins()
    assert len(found) > 1


@pytest.mark.slow
def test_where_numbers_of_nodes_do_not_fit_either_arcs_are_kept_for_joins(
    session: SparkSession, tmp_path: Path
) -> None:
    from custody.spark.swh.steps import run_step

    graph = drawn(1, 120, 17)[0]
    folder = write_graph(graph, tmp_path / "graph")
    build, opened = begin(tmp_path / "database", folder, "b", "all"), open_graph(PosixFileSystem(), folder)
    output, _ = run_step(session, build, opened, STEPS[0], Sizes.of_memory(BYTES_OF_A_NODE * 2 * 10))
    assert output.walks == "by joins"
    assert not build.has_intermediate(STEPS[0], "arrays")
    assert rows(build.folder / STEPS[0] / "kept" / "reachable", "node")
    assert build.has_intermediate(STEPS[0], "directories")


@pytest.mark.slow
@pytest.mark.parametrize("node_filter", ["heads", "all"])
# The first batch is of the smallest graphs, the second one of all kinds. To shrink one would take hours: none is.
@settings(max_examples=2, phases=[Phase.generate], suppress_health_check=list(HealthCheck))
@given(batch=st.lists(shapes(400), min_size=200, max_size=200))
def test_two_hundred_random_graphs_of_any_shape(
    session: SparkSession, tmp_path_factory: pytest.TempPathFactory, node_filter: str, batch: list[Shape]
) -> None:
    graphs = [random_graph(shape) for shape in batch]
    for by_joins in (True, False):
        compare(session, tmp_path_factory.mktemp("graphs"), graphs, node_filter, by_joins=by_joins)


@pytest.mark.slow
@pytest.mark.parametrize("node_filter", ["heads", "all"])
def test_graphs_of_ten_thousand_nodes(session: SparkSession, tmp_path: Path, node_filter: str) -> None:
    large = Shape(3, 4500, 3500, 1500, 300, 100, 9, 5000, 0.1)
    for by_joins in (True, False):
        compare(session, tmp_path / str(by_joins), [random_graph(large)], node_filter, by_joins=by_joins)


@pytest.mark.slow
def test_rounds_grow_with_the_logarithm_of_a_history_that_merges_at_every_third_commit(
    session: SparkSession, tmp_path: Path
) -> None:
    from custody.spark.swh.steps import run_step

    commits = 10_000
    # Merges reach over each other: no commit behind the first merge has one way alone to it.
    edges: list[tuple[int, int, bytes | None]] = [(node, node + 1, None) for node in range(commits - 1)]
    edges += [(node, node + 5, None) for node in range(0, commits - 5, 3)]
    edges += [(commits + 1, commits, None), (commits, 0, b"main"), (commits + 3, commits + 2, None)]
    edges.append((commits + 2, commits // 2, b"fork"))
    types = dict.fromkeys(range(commits), "rev") | {commits: "snp", commits + 1: "ori"}
    types |= {commits + 2: "snp", commits + 3: "ori"}
    graph = SmallGraph(types, edges)
    folder = write_graph(graph, tmp_path / "graph")
    build, opened = begin(tmp_path / "database", folder, "b", "all"), open_graph(PosixFileSystem(), folder)
    run_step(session, build, opened, STEPS[0])
    output, _ = run_step(session, build, opened, STEPS[7])
    found = rows(build.folder / STEPS[7] / "tables" / "revisions_in_origins", "revrel", "ori")
    assert found == Reference(graph, "all").revisions_in_origins()
    assert len(found) == commits + commits // 2
    assert output.rounds < commits / 30


@pytest.mark.in_parts(2)
def test_the_earliest_revision_of_a_whole_graph_is_that_of_the_definition(
    session: SparkSession, tmp_path: Path
) -> None:
    from custody.spark.swh.earliest_revision import find_earliest_revisions
    from custody.spark.swh.work import Rounds

    graphs = drawn(40, 120, 9)
    beside, shifts = disjoint(graphs)
    graph = open_graph(PosixFileSystem(), write_graph(beside, tmp_path / "graph"))
    names = {node: f"swh:1:{kind}:{sha1_git(node).hex()}" for node, kind in beside.types.items()}
    asked = [names[node] for node in beside.of("cnt", "dir")] + ["swh:1:cnt:" + "f" * 40]
    rounds = Rounds(started_session=session, attempt=tmp_path)
    found = find_earliest_revisions(rounds, graph, session.createDataFrame([(name,) for name in asked], "swhid string"))
    wanted = set()
    for part, shift in zip(graphs, shifts, strict=True):
        for node, (date, revision, count) in Reference(part, "all").earliest_revision().items():
            wanted.add((names[node + shift], names[revision + shift], date, count))
    assert {tuple(row) for row in found.collect()} == wanted
    assert len(wanted) > 300
    for wrong in ("swh:1:rev:" + "f" * 40, "swh:1:cnt:" + "F" * 40, "x", None):
        with pytest.raises(InvalidInputError, match="identifiers: expected swh:1"):
            find_earliest_revisions(rounds, graph, session.createDataFrame([(wrong,)], "swhid string"))


@pytest.mark.in_parts(2)
def test_directories_that_lie_in_each_other_are_refused(session: SparkSession, tmp_path: Path) -> None:
    from custody.spark.swh.steps import run_step

    types = {0: "rev", 1: "dir", 2: "dir", 3: "dir"}
    graph = SmallGraph(types, [(0, 1, None), (1, 2, b"a"), (2, 3, b"b"), (3, 2, b"c")], {0: 1})
    folder = write_graph(graph, tmp_path / "graph")
    build, opened = begin(tmp_path / "database", folder, "b", "all"), open_graph(PosixFileSystem(), folder)
    with pytest.raises(InvalidInputError, match="expected at most 10000 levels of directories, got more, or a circle"):
        run_step(session, build, opened, STEPS[0])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("custody.swh.walks.graph_arrays.LEVELS_MAX", 3)
        with pytest.raises(InvalidInputError, match="expected at most 3 levels of directories, got more, or a circle"):
            run_step(session, build, opened, STEPS[0], Sizes(arcs_in_arrays=-1))


@pytest.mark.in_parts(2)
def test_a_step_that_died_is_done_again_and_one_that_finished_is_kept(
    session: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from custody.spark.swh.steps import run_step
    from custody.spark.swh.work import Work

    fs = PosixFileSystem()
    graph = write_graph(drawn(1, 60, 3)[0], tmp_path / "graph")
    opened = open_graph(fs, graph)
    build = begin(tmp_path / "database", graph, "b", "all")
    with pytest.raises(NotFoundError, match=f"{STEPS[0]} keeps, found none"):
        run_step(session, build, opened, STEPS[1])
    output, is_new = run_step(session, build, opened, STEPS[0])
    assert is_new
    finished = {path: path.stat().st_ino for path in (build.folder / STEPS[0]).rglob("*")}
    with monkeypatch.context() as patched:
        patched.setattr(Work, "finish", lambda _: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run_step(session, build, opened, STEPS[1])
    again = begin(tmp_path / "database", graph, "b", "all")
    assert again.output(STEPS[1]) is None
    assert run_step(session, again, opened, STEPS[0]) == (output, False)
    assert {path: path.stat().st_ino for path in (build.folder / STEPS[0]).rglob("*")} == finished
    assert run_step(session, again, opened, STEPS[1])[1]
    with pytest.raises(ConfigurationError, match="was started with"):
        begin(tmp_path / "database", graph, "b", "heads")


def test_a_revision_with_two_trees_is_refused_by_name(session: SparkSession, tmp_path: Path) -> None:
    from custody.spark.swh.steps import run_step

    graph = SmallGraph({0: "rev", 1: "dir", 2: "dir"}, [(0, 1, None), (0, 2, None)], {0: 1})
    folder = write_graph(graph, tmp_path / "graph")
    build = begin(tmp_path / "database", folder, "b", "all")
    with pytest.raises(InvalidInputError, match="node 0: expected one root directory of a revision, got 2"):
        run_step(session, build, open_graph(PosixFileSystem(), folder), STEPS[0])
    assert build.output(STEPS[0]) is None
