"""The index benchmark runs, its peers agree, and the results are readable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.support import INCLUDE

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[1]
PEERS = ("custody", "sqlite", "fts5", "duckdb", "values", "whoosh")


def test_all_peers_that_need_no_package_answer_alike(tmp_path: Path) -> None:
    (tmp_path / "packages").mkdir()  # nothing is installed
    command = [sys.executable, "-m", "benchmarks.index", "--output", str(tmp_path), "--events", "4000"]
    command += ["--shard", "2000", "--questions", "3", *(word for name in PEERS for word in ("--peer", name))]
    environment = os.environ | {"PYTHONPATH": str(INCLUDE)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "results-4000.json").read_text())
    assert set(document["peers"]) == set(PEERS)
    for name, peer in document["peers"].items():
        assert peer["events"] == 4000
        shapes = 9 if name == "fts5" else 10  # FTS5 does not find the end of a word
        assert len(peer["times"]) == shapes
        assert all(len(times) == 9 for times in peer["times"].values())
    assert list(document["peers"]["custody"]["visits"]) == ["1", "2"]
    assert len(document["peers"]["custody"]["pieces"]) == 2
    for name in ("index-4000.svg", "growth.svg"):
        ElementTree.parse(tmp_path / name)  # noqa: S314 - made by the run


def test_both_layouts_are_built_and_answer_alike(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.index.layouts", "--output", str(tmp_path / "out.json")]
    command += ["--scratch", str(tmp_path), "--events", "4000", "--shard", "2000", "--questions", "3", "--rounds", "2"]
    environment = os.environ | {"PYTHONPATH": str(INCLUDE)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    packed, whoosh = (sum(document["bytes"][layout].values()) for layout in ("packed", "whoosh"))
    assert 0 < 2 * packed < whoosh
    for kind in ("warm", "cold"):
        assert len(document["cpu_milliseconds"][kind]) == 10
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
