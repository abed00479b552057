"""The benchmark of the NGSI sink runs and writes its results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.ngsi import latency
from benchmarks.ngsi.__main__ import main


@pytest.mark.benchmark
def test_the_benchmark_of_the_sink_counts_every_value(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--quick", "--scratch", str(tmp_path), "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    cells = json.loads((tmp_path / "out/results.json").read_text())["cells"]
    assert [(cell["batch_size"], cell["files"]) for cell in cells] == [(1, 1), (1, 5), (10, 1), (10, 5)]
    assert all(cell["batches"] == 50 // cell["batch_size"] for cell in cells)


@pytest.mark.benchmark
def test_a_small_run_measures_the_latency_of_each_notification(tmp_path: Path) -> None:
    measured = latency.measure(tmp_path, rate=20.0, seconds=1.0, destinations=3, size=1, timeout=30)
    assert measured.notifications == 20
    assert 0 < measured.p50 <= measured.p99 <= measured.longest
