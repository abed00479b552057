"""The benchmark of the pages runs in a browser, and tells what a reader waits for."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.pages.__main__ import main
from tests.airflow import browser

pytestmark = [pytest.mark.benchmark, pytest.mark.slow]


def test_what_a_reader_waits_for_is_told(tmp_path: Path) -> None:
    browser.need_pages()
    options = ["--events", "5000", "--rounds", "1", "--scratch", str(tmp_path), "--output", str(tmp_path / "o.json")]
    result = CliRunner().invoke(main, options, catch_exceptions=False)
    assert result.exit_code == 0
    assert "| newest | 10,001 | " in result.output
    assert "| an event | " in result.output
    assert "| a lineage of 5,000 FlowFiles | 5,001 | " in result.output
