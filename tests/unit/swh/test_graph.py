"""Graphs as they come in: Parquet and ORC, files and folders; what does not fit is named with its file and column."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from custody.errors import InvalidInputError, NotFoundError
from custody.swh import open_graph
from custody.vfs import PosixFileSystem

GRAPH = {
    "nodes": pa.table(
        {
            "id": pa.array([0], pa.uint64()),
            "type": ["ori"],
            "sha1_git": pa.array([b"1" * 20], pa.binary(20)),
            "extra": [1],
        }
    ),
    "edges": pa.table(
        {
            "src": pa.array([], pa.uint64()),
            "dst": pa.array([], pa.uint64()),
            "src_type": pa.array([], pa.string()),
            "dst_type": pa.array([], pa.string()),
            "name": pa.array([], pa.binary()),
        }
    ),
    "timestamps": pa.table({"id": pa.array([], pa.uint64()), "author_ts": pa.array([], pa.int64())}),
    "origins": pa.table({"id": pa.array([0], pa.uint64()), "url": ["https://example.org"]}),
}


def orc_ready(table: pa.Table) -> pa.Table:
    """ORC has neither unsigned integers nor binaries of a fixed size."""
    kinds = {pa.uint64(): pa.int64(), pa.binary(20): pa.binary()}
    return table.cast(pa.schema([(field.name, kinds.get(field.type, field.type)) for field in table.schema]))


def write(folder: Path, *, kind: str = "parquet", split: bool = False, **changed: pa.Table) -> Path:
    folder.mkdir()
    for name, table in (GRAPH | changed).items():
        if split:
            (folder / name).mkdir()
        path = folder / name / f"part-0.{kind}" if split else folder / f"{name}.{kind}"
        if kind == "parquet":
            pq.write_table(table, path)
        else:
            orc.write_table(orc_ready(table), path)
    return folder


@pytest.mark.parametrize("kind", ["parquet", "orc"])
@pytest.mark.parametrize("split", [False, True])
def test_tables_are_found_as_files_or_folders_of_either_format(
    fs: PosixFileSystem, tmp_path: Path, kind: str, split: bool
) -> None:
    graph = open_graph(fs, write(tmp_path / "graph", kind=kind, split=split))
    assert {name: table.format for name, table in graph.tables.items()} == dict.fromkeys(GRAPH, kind)
    assert graph.tables["origins"].dataset().to_table(columns=["url"]).to_pylist() == [{"url": "https://example.org"}]


def test_the_fingerprint_tells_one_graph_from_another(fs: PosixFileSystem, tmp_path: Path) -> None:
    folder = write(tmp_path / "graph")
    before = open_graph(fs, folder).fingerprint(fs)
    assert open_graph(fs, folder).fingerprint(fs) == before
    pq.write_table(pa.concat_tables([GRAPH["origins"]] * 2), folder / "origins.parquet")
    assert open_graph(fs, folder).fingerprint(fs) != before


def test_the_fingerprint_tells_files_of_one_size_and_time_apart(fs: PosixFileSystem, tmp_path: Path) -> None:
    folder = write(tmp_path / "graph")
    path = folder / "origins.parquet"
    seen = set()
    for last in "gh":
        pq.write_table(pa.table({"id": pa.array([0], pa.uint64()), "url": [f"https://example.or{last}"]}), path)
        os.utime(path, ns=(0, 0))
        seen.add((path.stat().st_size, open_graph(fs, folder).fingerprint(fs)))
    assert len({size for size, _ in seen}) == 1
    assert len(seen) == 2


def test_a_table_that_is_missing_is_named(fs: PosixFileSystem, tmp_path: Path) -> None:
    folder = write(tmp_path / "graph")
    (folder / "edges.parquet").unlink()
    with pytest.raises(NotFoundError, match="expected the table edges"):
        open_graph(fs, folder)


def changed_type(table: pa.Table, column: str, kind: pa.DataType) -> pa.Table:
    place = table.schema.get_field_index(column)
    return table.set_column(place, column, pa.nulls(table.num_rows, kind))


@pytest.mark.parametrize(
    ("name", "spoil", "message"),
    [
        (
            "edges",
            lambda table: table.drop_columns(["dst"]),
            r"edges\.parquet: expected a column 'dst' \(int64 or uint64",
        ),
        (
            "edges",
            lambda table: changed_type(table, "src", pa.int32()),
            "column 'src': expected int64 or uint64, got int32",
        ),
        (
            "nodes",
            lambda table: changed_type(table, "sha1_git", pa.string()),
            "column 'sha1_git': expected binary of 20",
        ),
        (
            "nodes",
            lambda table: changed_type(table, "sha1_git", pa.binary(32)),
            "column 'sha1_git': expected binary of 20",
        ),
        (
            "timestamps",
            lambda table: changed_type(table, "author_ts", pa.timestamp("us")),
            "column 'author_ts': expected int64",
        ),
    ],
)
def test_a_column_that_is_missing_or_of_another_type_is_named_with_its_file(
    fs: PosixFileSystem, tmp_path: Path, name: str, spoil: Callable[[pa.Table], pa.Table], message: str
) -> None:
    folder = write(tmp_path / "graph", **{name: spoil(GRAPH[name])})
    with pytest.raises(InvalidInputError, match=message):
        open_graph(fs, folder)


def test_a_file_of_another_kind_is_refused(fs: PosixFileSystem, tmp_path: Path) -> None:
    folder = write(tmp_path / "graph")
    (folder / "nodes.parquet").write_bytes(b"id,type\n")
    with pytest.raises(InvalidInputError, match=r"nodes\.parquet: expected a parquet file"):
        open_graph(fs, folder)


def test_files_of_one_table_have_the_same_types(fs: PosixFileSystem, tmp_path: Path) -> None:
    folder = write(tmp_path / "graph", split=True)
    pq.write_table(changed_type(GRAPH["origins"], "id", pa.int64()), folder / "origins" / "part-1.parquet")
    with pytest.raises(
        InvalidInputError, match=r"part-1\.parquet: column 'id': expected uint64 as in the files before"
    ):
        open_graph(fs, folder)
