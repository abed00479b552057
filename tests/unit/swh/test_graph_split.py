"""The build of a small graph in one process, without Spark, makes the tables of the definitions."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from custody.errors import InvalidInputError
from custody.repository import Repository
from custody.spark.swh import steps
from custody.spark.swh.work import Sizes
from custody.swh import open_graph
from custody.swh.build import STEPS
from custody.vfs import PosixFileSystem
from tests.swh.graphs import drawn, write_graph
from tests.swh.on_spark import begin, build_all, compare, tables
from tests.swh.reference import SmallGraph


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("node_filter", ["heads", "all"])
def test_a_hundred_small_random_graphs(tmp_path: Path, node_filter: str) -> None:
    build = compare(None, tmp_path, drawn(100, 120, 11), node_filter)
    output = build.output(STEPS[0])
    assert output is not None
    assert output.walks == "in arrays"


def test_a_graph_without_an_edge_is_built(tmp_path: Path) -> None:
    folder = write_graph(SmallGraph({0: "ori", 1: "rev", 2: "cnt"}, [], {1: 7}), tmp_path / "graph")
    built = tables(build_all(None, tmp_path / "database", folder, "b", "all"))
    assert all(not rows for name, rows in built.items() if "_in_" in name)


def test_a_revision_with_two_trees_is_refused_by_name(tmp_path: Path) -> None:
    graph = SmallGraph({0: "rev", 1: "dir", 2: "dir"}, [(0, 1, None), (0, 2, None)], {0: 1})
    folder = write_graph(graph, tmp_path / "graph")
    build = begin(tmp_path / "database", folder, "b", "all")
    with pytest.raises(InvalidInputError, match="node 0: expected one root directory of a revision, got 2"):
        steps.run_step(None, build, open_graph(PosixFileSystem(), folder), STEPS[0])
    assert build.output(STEPS[0]) is None


def test_any_allowed_types_of_columns_make_the_same_tables(tmp_path: Path) -> None:
    folder = write_graph(drawn(1, 80, 5)[0], tmp_path / "graph")
    former = tables(build_all(None, tmp_path / "database", folder, "b", "all"))
    other = tmp_path / "other"
    other.mkdir()
    wider = {pa.int64(): pa.uint64(), pa.string(): pa.large_string(), pa.binary(): pa.large_binary()}
    for path in folder.glob("*.parquet"):
        rows = pq.read_table(path)
        if path.stem == "timestamps":
            signed = pa.schema([field.with_type(pa.int64()) for field in rows.schema])
            orc.write_table(rows.cast(signed), other / "timestamps.orc")
            continue
        schema = pa.schema([field.with_type(wider.get(field.type, field.type)) for field in rows.schema])
        pq.write_table(rows.cast(schema), other / path.name)
    assert tables(build_all(None, tmp_path / "again", other, "b", "all")) == former
    nodes = pq.read_table(other / "nodes.parquet").to_pydict()
    nodes["id"][0] = 1 << 63
    pq.write_table(pa.table(nodes, pq.read_schema(other / "nodes.parquet")), other / "nodes.parquet")
    with pytest.raises(InvalidInputError, match="table nodes, column id"):
        build_all(None, tmp_path / "third", other, "b", "all")


def test_where_a_step_is_done_follows_from_its_size_and_its_report_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_graph(drawn(1, 60, 3)[0], tmp_path / "graph")
    settings = Repository.create(tmp_path / "repository").settings
    arguments = ["--repository", str(settings.root), "--graph", str(folder), "--build", "b", "--node-filter", "all"]

    class SessionAskedError(Exception):
        """What is done in the driver starts no session."""

    def start(_: str) -> None:
        raise SessionAskedError

    monkeypatch.setattr(steps, "start_session", start)
    # This process is no driver of spark-submit's, which ends with its parent.
    monkeypatch.setattr(steps, "end_with_spark_submit", lambda: None)
    assert steps.main(STEPS, arguments) == 0
    reports = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [report["place"].partition(":")[0] for report in reports] == ["driver"] * 8
    with monkeypatch.context() as patched:
        patched.setenv("CUSTODY__SPARK__DRIVER_BYTES_MAX", "0")
        for step in STEPS:
            with pytest.raises(SessionAskedError):
                steps.main([step], [*arguments[:-3], "other", *arguments[-2:]])
    opened = open_graph(PosixFileSystem(), folder)
    build = begin(tmp_path / "database", folder, "b", "all")
    edges = opened.tables["edges"].rows()
    for arcs, in_driver in ((edges, True), (edges - 1, False)):
        place = steps.place_step(build, opened, STEPS[0], settings, Sizes(arcs_in_arrays=arcs))
        assert place.in_driver is in_driver
    for most, in_driver in ((edges, True), (edges - 1, False)):
        limited = settings.model_copy(update={"swh": settings.swh.model_copy(update={"driver_edges_max": most})})
        place = steps.place_step(build, opened, STEPS[0], limited, Sizes())
        assert (place.in_driver, f"driver_edges_max is {most}" in place.reason) == (in_driver, not in_driver)
