"""The benchmark of the API runs: its answers are those of the library, and it tells what both take."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.api.__main__ import main

pytestmark = pytest.mark.benchmark


def test_what_searches_and_exports_cost_is_told(tmp_path: Path) -> None:
    options = ["--events", "5000", "--rounds", "1", "--seconds", "1", "--scratch", str(tmp_path)]
    result = CliRunner().invoke(main, [*options, "--output", str(tmp_path / "api.json")], catch_exceptions=False)
    assert result.exit_code == 0
    assert "| newest, 100 shown | 5,000 |" in result.output
    assert "| beside two exports, arrow |" in result.output
