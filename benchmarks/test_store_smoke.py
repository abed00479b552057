"""The benchmark of a repository in a bucket runs, and its answers are those of a folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.store.__main__ import main

pytestmark = pytest.mark.benchmark


def test_what_answers_cost_is_told(tmp_path: Path) -> None:
    options = ["--events", "2000", "--latency-ms", "1", "--rounds", "1", "--scratch", str(tmp_path)]
    result = CliRunner().invoke(main, [*options, "--output", str(tmp_path / "store.json")], catch_exceptions=False)
    assert result.exit_code == 0
    assert "| one event | cold |" in result.output
    assert "| events of one FlowFile | warm |" in result.output
