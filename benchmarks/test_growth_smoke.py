"""The benchmark of growth runs, goes on where it was, and counts the same things at each size."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.growth.__main__ import main
from custody.repository import Repository


@pytest.mark.benchmark
def test_a_repository_grows_and_a_second_run_goes_on(tmp_path: Path) -> None:
    output, folder = tmp_path / "growth.json", tmp_path / "grown"
    options = ["--tries", "2", "--files", "1", "--folder", str(folder), "--output", str(output)]
    for sizes in ((40_000,), (40_000, 60_000)):
        done = CliRunner().invoke(main, [*options, *(part for size in sizes for part in ("--at", str(size)))])
        assert done.exit_code == 0, done.output
        figures = json.loads(output.read_text())["figures"]
        assert [int(size) for size in figures] == list(sizes)
    first, second = figures.values()
    assert set(first) == set(second)
    assert all(value >= 0 for value in first.values())
    # Two ingests of a file each, the rest in bulk; each size lost its oldest log.
    files = Repository.open(folder / "repository").workspace().state().files.values()
    assert 0 < sum(file.rows for file in files) < 61_000
    assert min(file.first_event_id for file in files) > 0
