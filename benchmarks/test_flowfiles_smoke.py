"""The benchmark of FlowFiles runs, nothing that was acknowledged is lost, and the results are readable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support import INCLUDE

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[1]
COMMITS = {"commits, 1 thread", "commits, 16 threads"}
CONTENTS = {f"contents, {folders}: {way}" for folders in ("1 folder", "3 folders") for way in ("write", "read")}
SWAP = {"swap files: out", "swap files: in"}
QUEUE = {"a long queue: in", "open, log alone", "open, after a snapshot", "a long queue: out"}
FIGURES = {
    "custody": COMMITS | CONTENTS | SWAP | QUEUE,
    "nifi-sync": COMMITS | CONTENTS | SWAP | QUEUE,
    "nifi-nosync": COMMITS | CONTENTS,
    "sqlite": COMMITS | QUEUE,
    "plain": COMMITS | CONTENTS,
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Run the command as a user does; it fails when a side lost a FlowFile or a byte."""
    folder = tmp_path_factory.mktemp("flowfiles")
    command = [sys.executable, "-m", "benchmarks.flowfiles", "--quick", "--scratch", str(folder)]
    done = subprocess.run(
        [*command, "--output", str(folder / "results.json")],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(INCLUDE)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [path.name for path in folder.iterdir()] == ["results.json"], "a run leaves only its results"
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


def measured(results: dict[str, Any], peer: str) -> set[str]:
    figures = [figure for figure in results["figures"] if figure["peer"] == peer]
    assert all(reading > 0 for figure in figures for reading in figure["readings"])
    return {figure["figure"] for figure in figures}


@pytest.mark.parametrize("peer", ["custody", "sqlite", "plain"])
def test_each_side_in_python_has_its_figures(results: dict[str, Any], peer: str) -> None:
    assert measured(results, peer) == FIGURES[peer]


@pytest.mark.parametrize("peer", ["nifi-sync", "nifi-nosync"])
def test_nifi_has_its_figures(results: dict[str, Any], peer: str) -> None:
    if results["skipped"]:
        pytest.skip(f"NiFi cannot run here: {results['skipped'][peer]}")
    assert measured(results, peer) == FIGURES[peer]


def test_the_results_name_machine_sides_and_load(results: dict[str, Any]) -> None:
    assert results["machine"]["disk"]["sync_p50_ms"] > 0
    assert len(results["load_average"]["after"]) == 3
    assert {peer["key"]: peer["durable"] for peer in results["peers"]}["custody"] is True
