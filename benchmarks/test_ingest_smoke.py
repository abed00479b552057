"""The ingest benchmark runs and says what each side took."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.ingest.__main__ import PEERS_OF, main

pytestmark = pytest.mark.benchmark


@pytest.mark.parametrize("format", PEERS_OF)
def test_each_side_reads_all_files(tmp_path: Path, format: str) -> None:
    options = ["--format", format, "--files", "2", "--events", "50", "--rounds", "1", "--scratch", str(tmp_path)]
    done = CliRunner().invoke(main, [*options, "--output", str(tmp_path / "results")], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    measured = json.loads((tmp_path / "results").read_text())["peers"]
    assert tuple(measured) == PEERS_OF[format]
    assert all(name in done.output for name in measured)
    assert all(0 < one["cpu"][0] < 60 for one in measured.values())
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_peer_that_does_not_read_the_format_is_named() -> None:
    done = CliRunner().invoke(main, ["--format", "avro", "--peer", "DuckDB"])
    assert done.exit_code == 2
    assert "--peer 'DuckDB': expected one that reads avro, which are 'custody', 'fastavro'" in done.output
