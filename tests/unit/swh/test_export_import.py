"""The import of a graph export: the published tables, several files each, with and without the compressed graph."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from custody.errors import ConflictError, InvalidInputError, NotFoundError
from custody.swh import import_export, open_graph
from custody.vfs import PosixFileSystem
from tests.swh.graphs import Shape, random_graph
from tests.swh.reference import SmallGraph

FS = PosixFileSystem()
CODES = ("cnt", "dir", "ori", "rel", "rev", "snp")
WORDS = {"cnt": "content", "dir": "directory", "rev": "revision", "rel": "release", "snp": "snapshot"}
ENTRIES = {"cnt": "file", "dir": "dir", "rev": "rev"}
SHAPE = Shape(seed=5, contents=30, directories=30, revisions=15, releases=5, origins=3, depth=4, dates=50, undated=0.2)


def url(node: int) -> str:
    return f"https://example.org/{node}"


def sha1_git(graph: SmallGraph, node: int) -> str:
    text = url(node) if graph.types[node] == "ori" else f"{graph.types[node]} {node}"
    return hashlib.sha1(text.encode()).hexdigest()  # noqa: S324 - git's hash


def time(seconds: int | None) -> datetime | None:
    return None if seconds is None else datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds, milliseconds=7)


def write_export(folder: Path, graph: SmallGraph, form: str = "orc") -> None:
    """The tables of an export as they are published, every table in two files."""
    hashes = {node: sha1_git(graph, node) for node in graph.types}
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in TABLES}
    for node, kind in graph.types.items():
        own = hashes[node]
        if kind == "cnt":
            rows["content"].append({"sha1_git": own, "sha1": "0" * 40, "length": 5})
        elif kind == "ori":
            rows["origin"].append({"id": own, "url": url(node)})
        elif kind in ("dir", "snp"):
            rows[WORDS[kind]].append({"id": own})
        else:
            dates = {"date": time(graph.author.get(node))}
            more = {"committer_date": time(graph.committer.get(node)), "directory": None} if kind == "rev" else {}
            rows[WORDS[kind]].append({"id": own, **dates, **more, "target": None, "target_type": None})
    for source, target, name in graph.edges:
        add_edge(rows, graph.types[source], hashes[source], graph.types[target], hashes[target], name, url(source))
    for table, schema in TABLES.items():
        (folder / table).mkdir(parents=True)
        whole = pa.Table.from_pylist(rows[table], schema=schema)
        middle = whole.num_rows // 2
        for number, part in enumerate((whole.slice(0, middle), whole.slice(middle))):
            path = folder / table / f"graph-{number}.{form}"
            orc.write_table(part, path) if form == "orc" else pq.write_table(part, path)


def add_edge(
    rows: dict[str, list[dict[str, Any]]], kind: str, own: str, below: str, target: str, name: bytes | None, place: str
) -> None:
    if kind == "dir":
        rows["directory_entry"].append({"directory_id": own, "name": name, "type": ENTRIES[below], "target": target})
    elif kind == "rev" and below == "dir":
        next(row for row in rows["revision"] if row["id"] == own)["directory"] = target
    elif kind == "rev":
        rows["revision_history"].append({"id": own, "parent_id": target, "parent_rank": 0})
    elif kind == "rel":
        row = next(row for row in rows["release"] if row["id"] == own)
        row["target"], row["target_type"] = target, WORDS[below]
    elif kind == "snp":
        branch = {"snapshot_id": own, "name": name, "target": target, "target_type": WORDS[below]}
        rows["snapshot_branch"].append(branch)
    else:
        rows["origin_visit_status"] += [{"origin": place, "visit": visit, "snapshot": target} for visit in (1, 2)]


def write_compressed(prefix: Path, graph: SmallGraph) -> None:
    """The files of a compressed graph that are read: identifiers and dates by id."""
    nodes = [graph.types[node] for node in range(len(graph.types))]
    data = b"".join(
        bytes([1, CODES.index(kind)]) + bytes.fromhex(sha1_git(graph, node)) for node, kind in enumerate(nodes)
    )
    prefix.with_name(f"{prefix.name}.node2swhid.bin").write_bytes(data)
    for name, dates in (("author", graph.author), ("committer", graph.committer)):
        values = np.array([dates.get(node, np.iinfo(np.int64).min) for node in range(len(nodes))], ">i8")
        prefix.with_name(f"{prefix.name}.property.{name}_timestamp.bin").write_bytes(values.tobytes())


TEXT, BYTES, WHEN = pa.string(), pa.binary(), pa.timestamp("ns")
TABLES = {
    "content": pa.schema([("sha1", TEXT), ("sha1_git", TEXT), ("length", pa.int64())]),
    "skipped_content": pa.schema([("sha1", TEXT), ("sha1_git", TEXT)]),
    "directory": pa.schema([("id", TEXT), ("raw_manifest", BYTES)]),
    "directory_entry": pa.schema([("directory_id", TEXT), ("name", BYTES), ("type", TEXT), ("target", TEXT)]),
    "revision": pa.schema([("id", TEXT), ("date", WHEN), ("committer_date", WHEN), ("directory", TEXT)]),
    "revision_history": pa.schema([("id", TEXT), ("parent_id", TEXT), ("parent_rank", pa.int32())]),
    "release": pa.schema([("id", TEXT), ("date", WHEN), ("target", TEXT), ("target_type", TEXT)]),
    "snapshot": pa.schema([("id", TEXT)]),
    "snapshot_branch": pa.schema([("snapshot_id", TEXT), ("name", BYTES), ("target", TEXT), ("target_type", TEXT)]),
    "origin": pa.schema([("id", TEXT), ("url", TEXT)]),
    "origin_visit_status": pa.schema([("origin", TEXT), ("visit", pa.int64()), ("snapshot", TEXT)]),
}


def dense(graph: SmallGraph) -> SmallGraph:
    """A graph as a release can be published: ids from 0 on, one target a release, one directory a revision."""
    places = {node: place for place, node in enumerate(sorted(graph.types))}
    edges, seen = [], set[tuple[int, str]]()
    for source, target, name in graph.edges:
        key = source, graph.types[target] if graph.types[source] == "rev" else ""
        is_single = graph.types[source] == "rel" or (graph.types[source] == "rev" and graph.types[target] == "dir")
        if not (is_single and key in seen):
            edges.append((places[source], places[target], name))
        seen.add(key)
    return SmallGraph(
        {places[node]: kind for node, kind in graph.types.items()},
        edges,
        {places[node]: date for node, date in graph.author.items()},
        {places[node]: date for node, date in graph.committer.items()},
    )


@pytest.fixture(scope="module")
def graph() -> SmallGraph:
    return dense(random_graph(SHAPE))


def read(folder: Path, name: str) -> list[tuple[Any, ...]]:
    return [tuple(row.values()) for row in pq.read_table(folder / f"{name}.parquet").to_pylist()]


def arcs(graph: SmallGraph) -> set[tuple[str, str, bytes]]:
    return {
        (
            sha1_git(graph, source),
            sha1_git(graph, target),
            name or b"" if graph.types[source] in ("dir", "snp") else b"",
        )
        for source, target, name in graph.edges
    }


@pytest.mark.parametrize("form", ["orc", "parquet"])
def test_the_published_tables_become_a_graph(tmp_path: Path, graph: SmallGraph, form: str) -> None:
    write_export(tmp_path / "export", graph, form)
    done = import_export(FS, tmp_path / "export", tmp_path / "out", version="2026-03-01")
    nodes = {row[0]: (row[1], row[2].hex()) for row in read(tmp_path / "out", "nodes")}
    assert done.nodes == len(nodes) == len(graph.types)
    assert set(nodes.values()) == {(kind, sha1_git(graph, node)) for node, kind in graph.types.items()}
    edges = {(nodes[row[0]][1], nodes[row[1]][1], row[4]) for row in read(tmp_path / "out", "edges")}
    assert edges == arcs(graph)
    dates = {nodes[row[0]][1]: row[1:] for row in read(tmp_path / "out", "timestamps")}
    for node in graph.of("rev", "rel"):
        author, committer = graph.author.get(node), graph.committer.get(node)
        assert dates[sha1_git(graph, node)] == (author, committer if graph.types[node] == "rev" else None)
    assert {row[1] for row in read(tmp_path / "out", "origins")} == {url(node) for node in graph.of("ori")}
    assert open_graph(FS, tmp_path / "out").version == "2026-03-01"
    assert pq.read_schema(tmp_path / "out" / "edges.parquet").metadata[b"graph_version"] == b"2026-03-01"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["export", "out"]


def test_ids_and_dates_are_those_of_the_compressed_graph(tmp_path: Path, graph: SmallGraph) -> None:
    write_export(tmp_path / "export", graph)
    write_compressed(tmp_path / "graph", graph)
    done = import_export(FS, tmp_path / "export", tmp_path / "out", version="v", compressed=tmp_path / "graph")
    assert (done.absent, done.version) == (0, "v")
    assert {row[0]: row[1] for row in read(tmp_path / "out", "nodes")} == graph.types
    assert {row[:2] for row in read(tmp_path / "out", "edges")} == {edge[:2] for edge in graph.edges}
    for node, author, committer in read(tmp_path / "out", "timestamps"):
        assert (author, committer) == (graph.author.get(node), graph.committer.get(node))


def test_what_the_compressed_graph_does_not_have_is_counted(tmp_path: Path, graph: SmallGraph) -> None:
    write_export(tmp_path / "export", graph)
    write_compressed(tmp_path / "graph", graph)
    path = tmp_path / "graph.node2swhid.bin"
    path.write_bytes(path.read_bytes()[: -22 * 10])
    done = import_export(FS, tmp_path / "export", tmp_path / "out", version="v", compressed=tmp_path / "graph")
    known = {edge for edge in graph.edges if max(edge[:2]) < len(graph.types) - 10}
    assert done.edges >= len(known)
    assert done.absent > 0


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def no_orc(path: Path) -> None:
    path.write_bytes(b"no ORC")


def replace(schema: pa.Schema, row: dict[str, Any]) -> Callable[[Path], None]:
    return lambda path: orc.write_table(pa.Table.from_pylist([row], schema=schema), path)


SNAPSHOT = {"id": "0" * 40}
MISTAKES: Sequence[tuple[str, Callable[[Path], None], str]] = [
    ("revision/graph-0.orc", cut, "expected a whole orc file"),
    ("revision/graph-0.orc", no_orc, "expected a whole orc file"),
    (
        "snapshot/graph-0.orc",
        replace(pa.schema([("swhid", TEXT)]), {"swhid": "x"}),
        "expected a column 'id', found swhid",
    ),
    ("snapshot/graph-0.orc", replace(TABLES["snapshot"], {"id": "abc"}), "a hash of 3 characters"),
    ("snapshot/graph-0.orc", replace(TABLES["snapshot"], {"id": "z" * 40}), "hexadecimal"),
    ("snapshot/graph-0.orc", replace(pa.schema([("id", pa.int64())]), {"id": 1}), "expected text, got int64"),
]


@pytest.mark.parametrize(("name", "harm", "message"), MISTAKES)
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_left(
    tmp_path: Path, graph: SmallGraph, name: str, harm: Callable[[Path], None], message: str
) -> None:
    write_export(tmp_path / "export", graph)
    harm(tmp_path / "export" / name)
    with pytest.raises(InvalidInputError, match=message) as caught:
        import_export(FS, tmp_path / "export", tmp_path / "out", version="v")
    assert name in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["export"]


def test_a_table_or_a_file_of_the_graph_that_is_missing_is_named(tmp_path: Path, graph: SmallGraph) -> None:
    write_export(tmp_path / "export", graph)
    with pytest.raises(NotFoundError, match=r"nothing\.node2swhid\.bin"):
        import_export(FS, tmp_path / "export", tmp_path / "out", version="v", compressed=tmp_path / "nothing")
    for path in (tmp_path / "export" / "revision_history").iterdir():
        path.unlink()
    with pytest.raises(NotFoundError, match="expected a folder revision_history"):
        import_export(FS, tmp_path / "export", tmp_path / "out", version="v")
    (tmp_path / "out").mkdir()
    with pytest.raises(ConflictError, match="does not exist yet"):
        import_export(FS, tmp_path / "export", tmp_path / "out", version="v")


@pytest.mark.parametrize("data", [b"\1" * 23, b"\2\0" + bytes(20), b"\1\6" + bytes(20)])
def test_identifiers_that_are_none_are_refused(tmp_path: Path, graph: SmallGraph, data: bytes) -> None:
    write_export(tmp_path / "export", graph)
    write_compressed(tmp_path / "graph", graph)
    (tmp_path / "graph.node2swhid.bin").write_bytes(data)
    with pytest.raises(InvalidInputError, match="node2swhid"):
        import_export(FS, tmp_path / "export", tmp_path / "out", version="v", compressed=tmp_path / "graph")
