"""The measuring of questions to a provenance table runs."""

from __future__ import annotations

import re

import pytest

from tests.benchmarks.swh.__main__ import main

pytestmark = pytest.mark.benchmark


def test_every_case_is_measured_for_every_size_of_row_groups(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--rows", "20000", "--questions", "40", "--groups", "1000", "4000"]) == 0
    shown = capsys.readouterr().out
    assert len(re.findall(r"p50 \d+\.\d\d ms, p99 \d+\.\d\d ms, CPU \d+\.\d\d ms", shown)) == 8
