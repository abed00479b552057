"""The benchmark of the FlowFile repository runs and says what it measured."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.flowfiles.__main__ import run_custody, run_sqlite

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("run", [run_custody, run_sqlite])
def test_commits_of_two_threads_are_measured(tmp_path: Path, run: Callable[[Path, int, int], dict[str, float]]) -> None:
    figures = run(tmp_path / "repository", 2, 4)
    assert figures["commits_per_second"] > 0
