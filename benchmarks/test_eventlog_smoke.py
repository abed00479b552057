"""The benchmark of event logs runs, every system reads what it was given, and the results are complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from benchmarks.eventlog import report
from benchmarks.eventlog.peers.custody_peer import slices
from tests.support import INCLUDE

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[1]
EVENTS = 4000
ALWAYS = {"custody", "duckdb", "sqlite", "json"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("eventlog")
    command = [sys.executable, "-m", "benchmarks.eventlog", "--scratch", str(path)]
    few = ["--events", str(EVENTS), "--reads", "20", "--cold-reads", "5", "--output", str(path / "results.json")]
    environment = os.environ | {"PYTHONPATH": str(INCLUDE)}
    done = subprocess.run([*command, *few], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert report.BYTES in done.stdout
    return path


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((folder / "results.json").read_text())
    return document


def test_every_system_that_can_run_here_is_measured(results: dict[str, Any]) -> None:
    assert results["found"].keys() >= ALWAYS
    assert results["found"].keys() | results["skipped"].keys() == ALWAYS | {"delta", "nifi"}
    for figure in results["figures"]:
        assert figure["value"] > 0, figure


def test_custody_wrote_and_read_all_events(results: dict[str, Any]) -> None:
    custody = results["found"]["custody"]
    assert custody["in_order"]["arrow"]["events"] == EVENTS
    assert [custody["write"][name]["events"] for name in ("rollover", "compress", "steps")] == [EVENTS] * 3
    assert custody["points_early"]["events"] == EVENTS // 10


def test_nifi_reads_the_events_of_its_compressed_files(results: dict[str, Any]) -> None:
    if "nifi" in results["skipped"]:
        pytest.skip(f"NiFi cannot run here: {results['skipped']['nifi']}")
    nifi = results["found"]["nifi"]
    assert 0 < nifi["events"] <= nifi["stored"] <= EVENTS
    assert nifi["in_order"]["pages of 1000"]["events"] >= nifi["events"]
    assert min(nifi["bytes"].values()) > 0


def test_every_aim_is_judged_where_its_peer_was_measured(results: dict[str, Any]) -> None:
    without_nifi = "nifi" in results["skipped"]
    for aim in results["aims"]:
        assert (aim["met"] is None) == (without_nifi and aim["measure"] == report.BYTES), aim


def test_a_run_leaves_only_its_results_and_a_bar_for_every_figure(folder: Path, results: dict[str, Any]) -> None:
    assert {path.name for path in folder.iterdir()} == {"results.json", "results.svg"}
    plot = ElementTree.parse(folder / "results.svg")  # noqa: S314 - written by the run above
    assert len(plot.findall(".//{*}title")) == len(results["figures"])


def test_aims_are_met_and_missed_by_the_figures() -> None:
    def found(point: float, size: int) -> dict[str, Any]:
        rate = {"per_core_second": 250_000, "per_second": 1}
        keys = ("cold", "warm", "warm_uncached")
        reads = {key: {"p50_ms": point, "p99_ms": 9.0, "disk_bytes_per_read": 0} for key in keys}
        custody = {
            "events": 100,
            "bytes": {"log": size, "toc": 0},
            "write": dict.fromkeys(("steps", "rollover", "compress"), rate),
            "points": reads,
            "points_early": {"events": 10, "warm": {"p50_ms": 1.0}, "warm_uncached": {"p50_ms": 1.0}},
            "in_order": {"arrow": rate},
        }
        duckdb = {"points": {"warm": {"p50_ms": 11.0, "p99_ms": 12.0}}}
        nifi_write = dict.fromkeys(("compress", "register_and_compress"), rate)
        nifi = {"events": 50, "bytes": {"log": 4000, "toc": 1000, "index": 9}, "write": nifi_write}
        return {"custody": custody, "duckdb": duckdb, "nifi": nifi}

    good = {aim.aim: aim for aim in report.aims(found(point=0.4, size=5000))}
    assert [aim.met for aim in good.values()] == [True, True, True, True, True, False, True]
    assert [aim.value for aim in good.values()] == pytest.approx([0.5, 250_000, 0.4, 0.4, 27.5, 250_000, 0.4])
    middling = [aim.met for aim in report.aims(found(point=1.1, size=5001))]
    assert middling == [False, True, False, True, True, False, True]
    bad = [aim.met for aim in report.aims(found(point=2.1, size=5001))]
    assert bad == [False, True, False, False, False, False, False]


@pytest.mark.parametrize("events", [2_000, 100_000, 999_999, 1_000_000, 10_000_000])
def test_slices_are_a_tenth_first_and_all_in_the_end(events: int) -> None:
    base = min(20_000, events // 10)
    parts = list(slices(events, base))
    assert parts[0] == pytest.approx(events / base / 10, abs=1)
    assert (sum(parts) - 1) * base < events <= sum(parts) * base
    assert max(parts) * base <= 1_000_000
