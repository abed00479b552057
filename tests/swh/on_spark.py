"""A build of a graph on Spark in this process, and its tables as rows that the reference's are compared with."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from custody.spark.archive import archive_flags, option_string
from custody.spark.environment import submit_environment
from custody.swh import open_graph
from custody.swh.build import STEPS, Build, BuildDescription
from custody.vfs import PosixFileSystem
from tests.support import INCLUDE
from tests.swh.graphs import disjoint, write_graph
from tests.swh.reference import Reference, Row, SmallGraph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    # Graphs of tests are small: what counts is how little a job does besides.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}


@contextmanager
def spark_session() -> Iterator[SparkSession]:
    """A session in this process.

    The environment is changed only while it starts: Spark keeps what it needs of it, and its workers inherit it.
    """
    from pyspark.sql import SparkSession

    before = dict(os.environ)
    os.environ.update(submit_environment())
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(INCLUDE), os.environ.get("PYTHONPATH")]))
    builder = SparkSession.builder.master("local[2]").appName("custody-tests")
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    try:
        session = builder.config("spark.driver.extraJavaOptions", option_string(archive_flags())).getOrCreate()
    finally:
        os.environ.clear()
        os.environ.update(before)
    try:
        yield session
    finally:
        session.stop()


def begin(database: Path, graph: Path, name: str, node_filter: str) -> Build:
    fs = PosixFileSystem()
    opened = open_graph(fs, graph)
    description = BuildDescription(graph=str(graph), fingerprint=opened.fingerprint(fs), node_filter=node_filter)
    return Build.begin(fs, database, name, description)


def build_all(
    session: SparkSession | None,
    database: Path,
    graph: Path,
    name: str,
    node_filter: str,
    *,
    by_joins: bool = False,
    memory_bytes: int | None = None,
) -> Build:
    """Do all steps; a small graph is walked in arrays unless it is to be `by_joins`, or there is little memory.

    Without a session all of it is done in this process.
    """
    from custody.spark.swh.steps import run_step
    from custody.spark.swh.work import Sizes

    sizes = Sizes(arcs_in_arrays=-1) if by_joins else Sizes()
    if memory_bytes is not None:
        sizes = Sizes.of_memory(memory_bytes)
    build = begin(database, graph, name, node_filter)
    opened = open_graph(PosixFileSystem(), graph)
    for step in STEPS:
        run_step(session, build, opened, step, sizes)
    return build


def rows(folder: Path, *columns: str) -> set[Row]:
    """The rows of a table or of what a step kept, numbers as numbers; each row once in the files."""
    files = sorted(folder.glob("*.parquet"))
    if not files:
        return set()
    table = pa.concat_tables([pq.read_table(file, columns=list(columns)) for file in files])
    for place, name in enumerate(columns):
        if pa.types.is_timestamp(table.schema.field(name).type):
            table = table.set_column(place, name, table.column(name).cast(pa.timestamp("s", "UTC")).cast(pa.int64()))
    tuples = list(zip(*(table.column(name).to_pylist() for name in columns), strict=True))
    assert len(tuples) == len(set(tuples)), f"{folder}: a row is there twice"
    return set(tuples)


def tables(build: Build) -> dict[str, set[Row]]:
    """What a build made of each of the reference's tables."""

    def kept(step: int, name: str, *columns: str) -> set[Row]:
        return rows(build.intermediate(STEPS[step], name), *columns)

    def table(step: int, name: str, *columns: str) -> set[Row]:
        return rows(build.folder / STEPS[step] / "tables" / name, *columns)

    return {
        "nodes": table(0, "nodes", "id"),
        "earliest": kept(1, "earliest_timestamps", "node", "author_date"),
        "earliest_revisions": table(1, "earliest_revisions", "node", "author_date", "revrel"),
        "max_leaf": kept(2, "max_leaf_timestamps", "dir", "max_leaf"),
        "frontier": kept(3, "directory_frontier", "dir"),
        "d_in_r": table(
            *(4, "frontier_directories_in_revisions"),
            *("dir", "dir_max_author_date", "revrel", "revrel_author_date", "path"),
        ),
        "c_in_r": table(5, "contents_in_revisions_without_frontiers", "cnt", "revrel", "revrel_author_date", "path"),
        "c_in_d": table(6, "contents_in_frontier_directories", "cnt", "dir", "path"),
        "r_in_o": table(7, "revisions_in_origins", "revrel", "ori"),
    }


def expected(reference: Reference, shift: int = 0) -> dict[str, set[Row]]:
    """The same of the reference, with ids that are greater by `shift`."""

    def up(rows_expected: set[Row], *places: int) -> set[Row]:
        return {tuple(v + shift if n in places else v for n, v in enumerate(row)) for row in rows_expected}  # type: ignore[operator]

    return {
        "nodes": up({(node,) for node in reference.nodes()}, 0),
        "earliest": up(set(reference.earliest.items()), 0),
        "earliest_revisions": up({(node, *held[0]) for node, held in reference.holding().items()}, 0, 2),
        "max_leaf": up(set(reference.max_leaf.items()), 0),
        "frontier": up({(node,) for node in reference.frontier}, 0),
        "d_in_r": up(reference.frontier_directories_in_revisions(), 0, 2),
        "c_in_r": up(reference.contents_in_revisions_without_frontiers(), 0, 1),
        "c_in_d": up(reference.contents_in_frontier_directories(), 0, 1),
        "r_in_o": up(reference.revisions_in_origins(), 0, 1),
    }


def compare(
    session: SparkSession | None,
    folder: Path,
    graphs: list[SmallGraph],
    node_filter: str,
    *,
    by_joins: bool = False,
    memory_bytes: int | None = None,
) -> Build:
    """Build graphs that lie beside each other as one, and compare each with its own reference.

    What one graph holds never depends on another, and a round of Spark costs as much for one as for many.
    """
    beside, shifts = disjoint(graphs)
    graph_folder = write_graph(beside, folder / "graph")
    database = folder / "database"
    build = build_all(session, database, graph_folder, "b", node_filter, by_joins=by_joins, memory_bytes=memory_bytes)
    assert build.has_intermediate(STEPS[0], "arrays") is not by_joins
    found = tables(build)
    wanted: dict[str, set[tuple[object, ...]]] = {name: set() for name in found}
    for graph, shift in zip(graphs, shifts, strict=True):
        for name, part in expected(Reference(graph, node_filter), shift).items():
            wanted[name] |= part
    assert sum(map(len, wanted.values())) > len(graphs)
    for name, whole in wanted.items():
        assert found[name] == whole, f"{name}: too many {found[name] - whole}, missing {whole - found[name]}"
    return build
