"""The recovery benchmark runs and says what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.environment import ROOT

pytestmark = pytest.mark.benchmark


def test_a_killed_writer_s_journals_are_sealed_and_the_time_is_told(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.recovery", "--gigabytes", "0.05", "--open-megabytes", "5"]
    done = subprocess.run(
        [*command, "--folder", str(tmp_path / "made")],
        cwd=ROOT,
        env={"PYTHONPATH": "include", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["open_journals"] >= 1
    assert document["journal_bytes"] > 40 << 20
    assert 0 < document["seconds_to_open"] <= document["seconds_to_acknowledge"] <= document["seconds_of_the_process"]
    assert not (tmp_path / "made").exists()
