"""Made-up graphs of software are valid, of the asked size, the same again, and have what makes real ones hard."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.swh.build import table
from benchmarks.swh.graph import main, write_graph
from benchmarks.swh.watch import Tasks, log_of, read_tasks
from custody.swh import open_graph
from custody.vfs import PosixFileSystem

pytestmark = pytest.mark.benchmark
EDGES = 60_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "graph"
    assert main([str(folder), "--edges", str(EDGES)]) == 0
    return folder


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, pa.Table]:
    opened = open_graph(PosixFileSystem(), folder)
    return {name: found.dataset().to_table() for name, found in opened.tables.items()}


def arcs(tables: dict[str, pa.Table], source: str, target: str) -> tuple[np.ndarray, np.ndarray]:
    edges = tables["edges"]
    found = edges.filter(pc.and_(pc.equal(edges["src_type"], source), pc.equal(edges["dst_type"], target)))
    return found["src"].to_numpy().astype(np.int64), found["dst"].to_numpy().astype(np.int64)


def test_it_is_as_large_as_asked_and_says_so(folder: Path, tables: dict[str, pa.Table]) -> None:
    counts = json.loads((folder / "counts.json").read_text())
    assert EDGES <= counts["edges"] == len(tables["edges"]) < 1.5 * EDGES
    kinds = {entry["values"]: entry["counts"] for entry in pc.value_counts(tables["nodes"]["type"]).to_pylist()}
    assert kinds == {kind: counts[kind] for kind in kinds}
    assert counts["dated"] == pc.count(tables["timestamps"]["author_ts"]).as_py()
    ids = np.sort(tables["nodes"]["id"].to_numpy())
    assert (ids == np.arange(len(ids))).all()
    assert len(pc.unique(tables["nodes"]["sha1_git"])) == len(ids)
    assert set(tables["origins"]["id"].to_pylist()) == set(
        tables["nodes"].filter(pc.equal(tables["nodes"]["type"], "ori"))["id"].to_pylist()
    )


def test_edges_lead_between_nodes_of_their_types_and_never_round(tables: dict[str, pa.Table]) -> None:
    nodes, edges = tables["nodes"].sort_by("id"), tables["edges"]
    for end in ("src", "dst"):
        assert nodes["type"].take(edges[end].cast(pa.int64())).equals(edges[f"{end}_type"])
    for source, target in (arcs(tables, kind, kind) for kind in ("dir", "rev")):
        depth = np.zeros(len(nodes), np.int64)
        for _ in range(len(nodes)):
            deeper = depth.copy()
            np.maximum.at(deeper, target, depth[source] + 1)
            if (deeper == depth).all():
                break
            depth = deeper
        else:
            raise AssertionError("a circle")
        assert depth.max() > 8


def test_a_revision_has_one_root_and_names_in_a_directory_differ(tables: dict[str, pa.Table]) -> None:
    revisions, _ = arcs(tables, "rev", "dir")
    assert len(set(revisions.tolist())) == len(revisions)
    edges = tables["edges"]
    inside = edges.filter(pc.equal(edges["src_type"], "dir")).select(["src", "name"])
    assert len(inside.group_by(["src", "name"]).aggregate([])) == len(inside)


def test_it_has_what_makes_real_ones_hard(tables: dict[str, pa.Table]) -> None:
    _, contents = arcs(tables, "dir", "cnt")
    uses = np.bincount(contents)
    assert uses.max() > 50 * np.median(uses[uses > 0])
    children, _ = arcs(tables, "rev", "rev")
    assert (np.bincount(children) == 2).any()
    _, snapshots = arcs(tables, "snp", "rev")
    assert np.bincount(snapshots).max() > 1
    assert tables["timestamps"]["author_ts"].null_count > 0
    assert len(arcs(tables, "rel", "rev")[0]) > len(arcs(tables, "rel", "dir")[0]) > 0


def test_the_same_seed_gives_the_same_graph(folder: Path, tables: dict[str, pa.Table], tmp_path: Path) -> None:
    write_graph(tmp_path / "again", EDGES)
    again = open_graph(PosixFileSystem(), tmp_path / "again")
    assert all(again.tables[name].dataset().to_table().equals(found) for name, found in tables.items())


def test_spark_s_log_is_added_up(tmp_path: Path) -> None:
    metrics = {
        "Executor Run Time": 1500,
        "Executor CPU Time": 1_000_000_000,
        "JVM GC Time": 250,
        "Memory Bytes Spilled": 10,
        "Disk Bytes Spilled": 7,
        "Peak Execution Memory": 90,
        "Shuffle Write Metrics": {"Shuffle Bytes Written": 5},
    }
    events = [
        {"Event": "SparkListenerApplicationStart", "App Name": "custody-swh_nodes"},
        {"Event": "SparkListenerJobStart", "Job ID": 0},
        {"Event": "SparkListenerTaskEnd", "Task Metrics": metrics},
        {"Event": "SparkListenerTaskEnd", "Task Metrics": metrics | {"Peak Execution Memory": 40}},
        {"Event": "SparkListenerTaskEnd"},
    ]
    path = tmp_path / "local-1"
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events))
    assert log_of(tmp_path, "custody-swh_nodes") == path
    assert log_of(tmp_path, "custody-swh_publish") is None
    assert read_tasks(path) == Tasks(1, 2, 3.0, 2.0, 0.5, 20, 14, 10, 90)


def test_results_are_a_table_with_the_cost_of_an_edge() -> None:
    spark = {"shuffled_bytes": 2 << 20, "spilled_disk_bytes": 3 << 20, "jobs": 4}
    step = {"seconds": 10.0, "processes_cpu_seconds": 2.0, "rss_bytes_max": 5 << 20, "spark": spark}
    held = {"files": 1, "rows": 5, "bytes": 900, "index_bytes": 100}
    shown = table({"counts": {"edges": 1000}, "steps": {"a": step, "b": step}, "tables": {"t": held}})
    assert "| a | 10.0 | 2.0 | 2000.0 | 5 | 2 | 3 | 0 | 4 |" in shown
    assert "| all | 20.0 | 4.0 | 4000.0 | 5 | 4 | 6 | 0 | 8 |" in shown
    assert "| t | 5 | 1000 | 1.0 |" in shown
