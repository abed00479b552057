"""The measuring of questions to a provenance table runs."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from benchmarks.swh.__main__ import main
from benchmarks.swh.export import hashes_by_id, write_export
from benchmarks.swh.graph import write_graph
from benchmarks.swh.heritage import swhid_lines
from benchmarks.swh.heritage_build import STEPS, table
from benchmarks.swh.heritage_build import main as heritage
from benchmarks.swh.heritage_rows import compare_table, ids_here
from benchmarks.swh.service import main as service
from custody.swh.tables import CONTENTS_IN_REVISIONS, TABLES

pytestmark = pytest.mark.benchmark


def test_every_case_is_measured_for_every_size_of_row_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "20000", "--questions", "40", "--pages", "1000", "4000"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms", shown)) == 8


def test_systems_on_the_same_files_give_the_same_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = ["custody", "custody, nothing cached", "DuckDB"]
    arguments = ["query", "--rows", "20000", "--questions", "10", "--cold", "2", "--folder", str(tmp_path)]
    assert main([*arguments, "--systems", *systems]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms, read \d+ KiB", shown)) == 9
    cold = re.findall(r"whereis, cold, (.+): .* read (\d+) KiB", shown)
    assert [name for name, read in cold if int(read) > 0] == systems


def test_custody_is_asked_over_grpc_and_the_peer_is_skipped_where_it_is_not(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    systems = ["custody", "custody over gRPC", "DuckDB", "Software Heritage over gRPC"]
    arguments = ["--rows", "20000", "--questions", "10", "--cold", "2", "--folder", str(tmp_path)]
    assert service([*arguments, "--programs", str(tmp_path), "--systems", *systems]) == 0
    shown = capsys.readouterr().out
    assert "skipped: the service of Software Heritage, for want of swh-provenance-grpc-serve" in shown
    lines = re.findall(r"  (.+), (warm|cold), (.+): p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms", shown)
    kinds = [("whereis", "warm"), ("whereis_many 100", "warm"), ("whereis", "cold")]
    assert lines == [(*kind, system) for kind in kinds for system in systems[:3]]
    assert len(re.findall(r"contents asked: 0 have no revision", shown)) == 3


def test_identifiers_are_written_as_lines() -> None:
    hashes = np.arange(40, dtype=np.uint8).reshape(2, 20) + 200
    lines = swhid_lines(pa.array(["rev", "cnt"]), hashes).tobytes().decode()
    assert lines == "".join(
        f"swh:1:{kind}:{row.tobytes().hex()}\n" for kind, row in zip(["rev", "cnt"], hashes, strict=True)
    )


def test_a_graph_is_exported_as_software_heritage_does(tmp_path: Path) -> None:
    counts = write_graph(tmp_path / "graph", 5000)
    write_export(tmp_path / "graph", tmp_path / "export")
    tables = {path.parent.name: orc.read_table(path) for path in (tmp_path / "export").glob("*/0000.orc")}
    ends = ("directory_entry", "revision", "revision_history", "release", "snapshot_branch", "origin_visit_status")
    assert sum(len(tables[name]) for name in ends) == counts["edges"]
    kinds = {"content": "cnt", "directory": "dir", "origin": "ori", "release": "rel", "revision": "rev"}
    assert {kind: len(tables[name]) for name, kind in kinds.items()} == {kind: counts[kind] for kind in kinds.values()}
    dated = sum(len(tables[name]) - tables[name]["date"].null_count for name in ("revision", "release"))
    assert dated == counts["dated"]
    origin = tables["origin"].slice(0, 1).to_pylist()[0]
    assert origin["id"] == hashlib.sha1(origin["url"].encode(), usedforsecurity=False).hexdigest()
    held = set(tables["content"]["sha1_git"].to_pylist()) | set(tables["directory"]["id"].to_pylist())
    assert set(tables["directory_entry"]["target"].to_pylist()) <= held
    branches = set(zip(*(tables["snapshot_branch"][name].to_pylist() for name in ("snapshot_id", "name")), strict=True))
    assert len(branches) == len(tables["snapshot_branch"])


def test_rows_of_both_builders_are_compared_by_what_they_are_about(tmp_path: Path) -> None:
    write_graph(tmp_path / "graph", 2000)
    hashes, kinds = hashes_by_id(tmp_path / "graph")
    shuffled = np.random.default_rng(3).permutation(len(hashes))
    numbers = np.array([["cnt", "dir", "ori", "rel", "rev", "snp"].index(kind) for kind in kinds], np.uint8)
    parts = [np.ones_like(numbers)[:, None], numbers[:, None], hashes]
    np.concatenate(parts, axis=1)[shuffled].tofile(tmp_path / "c.node2swhid.bin")
    id_of = ids_here(tmp_path / "graph", tmp_path / "c")
    assert np.array_equal(id_of, shuffled)
    there = np.argsort(shuffled).astype(np.uint64)
    rows = {
        "theirs": (there[[1, 2, 3, 5]], there[[7, 8, 9, 9]], [0, -1, 5, 6], [b"a", b"b/c", b"x/a", b"d"]),
        "ours": ([2, 1, 3, 6], [8, 7, 9, 9], [-1, 0, 4, 6], [b"c", b"a", b"x/b", b"d"]),
    }
    for who, columns in rows.items():
        (tmp_path / who / CONTENTS_IN_REVISIONS).mkdir(parents=True)
        schema = TABLES[CONTENTS_IN_REVISIONS].schema
        table = pa.table([pa.array(one, field.type) for one, field in zip(columns, schema, strict=True)], schema=schema)
        pq.write_table(table, tmp_path / who / CONTENTS_IN_REVISIONS / "0.parquet")
    said = compare_table(CONTENTS_IN_REVISIONS, tmp_path / "theirs", tmp_path / "ours", id_of)
    assert said.startswith(
        "4 rows there, 4 here, 1 only there, 1 only here, 1 with another revrel_author_date, "
        "2 with another path, of which 1 are not the better one here"
    )


def test_what_builders_take_stands_side_by_side() -> None:
    ours = {name: {"seconds": 2.0, "cpu": 4.0, "rss": 5 << 20} for name in STEPS}
    theirs = {name: {"seconds": 0.5, "cpu": 1.0, "rss": 3 << 20} for name in STEPS.values()}
    compressing = {"bv": {"seconds": 1.5, "cpu": 2.0, "rss": 9 << 20}, "maps": {"seconds": 4.0, "cpu": 1.0, "rss": 0}}
    made = {"compressing": compressing, "building": theirs}
    lines = table({"counts": {"edges": 9_000_000}, "custody": ours, "heritage": made}).splitlines()
    assert len(lines) == 2 + 1 + len(STEPS) + 2
    assert lines[2].endswith("| – | – | – | – | – | 5.50 | 3.00 | 1636 | 3000 | 9 |")
    assert lines[-2] == "| the tables | 18.00 | 36.00 | 500 | 250 | 5 | 4.50 | 9.00 | 2000 | 1000 | 3 |"
    assert lines[-1].endswith("| 18.00 | 36.00 | 500 | 250 | 5 | 10.00 | 12.00 | 900 | 750 | 9 |")


def test_builders_that_are_not_there_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        heritage([str(tmp_path), str(tmp_path / "out"), "--programs", str(tmp_path)])
    assert "lacks swh-graph-extract, swh-graph-compress" in capsys.readouterr().err
