"""The measuring of questions to a provenance table runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.benchmarks.swh.__main__ import main

pytestmark = pytest.mark.benchmark


def test_every_case_is_measured_for_every_size_of_row_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "20000", "--questions", "40", "--groups", "1000", "4000"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms", shown)) == 8


def test_systems_on_the_same_files_give_the_same_answers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    systems = ["custody", "custody, nothing cached", "DuckDB"]
    arguments = ["query", "--rows", "20000", "--questions", "10", "--cold", "2", "--folder", str(tmp_path)]
    assert main([*arguments, "--systems", *systems]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms, read \d+ KiB", shown)) == 9
    cold = re.findall(r"whereis, cold, (.+): .* read (\d+) KiB", shown)
    assert [name for name, read in cold if int(read) > 0] == systems
