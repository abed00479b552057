"""The benchmark of the NGSI sink runs and writes its results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.ngsi.__main__ import main


@pytest.mark.benchmark
def test_the_benchmark_of_the_sink_counts_every_value(tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["--quick", "--scratch", str(tmp_path), "--output", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    cells = json.loads((tmp_path / "out/results.json").read_text())["cells"]
    assert [(cell["batch_size"], cell["files"]) for cell in cells] == [(1, 1), (1, 5), (10, 1), (10, 5)]
    assert all(cell["batches"] == 50 // cell["batch_size"] for cell in cells)
