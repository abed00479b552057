"""The append benchmark runs, every store keeps what it acknowledged, and the results are readable."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.support import INCLUDE

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[1]
CELLS = {(threads, batch) for threads in (1, 16) for batch in (1, 1000)}
PYTHON_PEERS = {"custody", "custody-columns", "raw", "sqlite"}
NIFI_PEERS = {"nifi-sync", "nifi-nosync"}


def run(folder: Path, *arguments: str) -> None:
    """Run the command as a user does; it fails when a store lost an event."""
    command = [sys.executable, "-m", "benchmarks.append", "--scratch", str(folder), "--output", str(folder)]
    environment = os.environ | {"PYTHONPATH": str(INCLUDE)}
    done = subprocess.run([*command, *arguments], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("append")
    run(path, "--quick")
    return path


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


def assert_measured(results: dict[str, Any], peers: set[str]) -> None:
    cells = [cell for cell in results["cells"] if cell["peer"] in peers]
    assert {(cell["peer"], cell["threads"], cell["batch_events"]) for cell in cells} == {
        (peer, *cell) for peer in peers for cell in CELLS
    }
    for cell in cells:
        assert cell["median_events_per_second"] > 0
        for reading in cell["rounds"]:
            assert reading["stored"] == reading["events"] > 0
            assert reading["p50_ms"] <= reading["p99_ms"]


def test_every_python_store_holds_each_event_that_it_acknowledged(results: dict[str, Any]) -> None:
    assert_measured(results, PYTHON_PEERS)


def test_nifi_holds_each_event_that_it_acknowledged(results: dict[str, Any]) -> None:
    if results["skipped"]:
        pytest.skip(f"NiFi cannot run here: {results['skipped']['nifi-sync']}")
    assert_measured(results, NIFI_PEERS)


def test_the_results_name_the_machine_and_custodys_ratios(results: dict[str, Any]) -> None:
    assert results["machine"]["processors"] > 0
    assert results["machine"]["disk"]["sync_p50_ms"] > 0
    for ratios in results["ratios"]:
        assert ratios["raw"] > 0
        assert ratios["sqlite"] > 0


def test_the_plot_has_a_bar_for_every_cell_of_every_peer(folder: Path, results: dict[str, Any]) -> None:
    plot = ElementTree.parse(folder / "append.svg")  # noqa: S314 - written by the run above
    assert len(plot.findall(".//{*}title")) == len(results["cells"])


def test_a_run_leaves_only_its_results(folder: Path, results: dict[str, Any]) -> None:
    assert results["peers"]
    assert {path.name for path in folder.iterdir()} == {"append.svg", "results.json"}


def test_growth_counts_every_event(tmp_path: Path) -> None:
    run(tmp_path, "--growth", "--growth-events", "20000", "--growth-steps", "2")
    steps = json.loads((tmp_path / "growth.json").read_text())["steps"]
    assert [(step["events_before"], step["events"]) for step in steps] == [(0, 10_000), (10_000, 10_000)]
