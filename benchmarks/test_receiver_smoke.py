"""The benchmark of the receiver runs, finds what it was told to find, and notices what is not as it was sent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.environment import ROOT
from benchmarks.receiver.__main__ import _wrong
from benchmarks.receiver.load import measure
from custody.repository import Repository
from tests.support import INCLUDE
from tests.unit.serving.receiver_process import receiving

pytestmark = pytest.mark.benchmark


def test_a_quick_run_measures_every_cell_and_loses_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.receiver", "--quick", "--scratch", str(tmp_path)]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(INCLUDE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads((tmp_path / "results.json").read_text())
    assert set(document["rounds"]) == {"custody", "hollow"}
    for peer, rounds in document["rounds"].items():
        assert [(item["clients"], item["entities"]) for item in rounds] == [(1, 1), (2, 1), (2, 3)]
        assert all(item["notifications"] > 0 < item["p50_ms"] <= item["p99_ms"] for item in rounds)
        assert all((item["per_batch"] is None) == (peer == "hollow") for item in rounds)
    assert not list(tmp_path.glob("receiver-*"))


def test_what_is_not_as_it_was_sent_is_counted(tmp_path: Path) -> None:
    Repository.create(tmp_path / "repository")
    with receiving(tmp_path / "repository", "--quiet") as at:
        _, posted = measure(at, 1, 2, 0.05, 0)
    assert _wrong(tmp_path / "repository", posted) == 0
    lost = replace(posted[0], event_id=10_000_000)
    assert _wrong(tmp_path / "repository", [replace(posted[0], body=b"other"), lost, *posted]) == 2
