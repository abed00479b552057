"""The benchmark of deliveries runs, loses nothing, and notices what is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.delivery.__main__ import _wrong
from benchmarks.delivery.producers import Delivered, uuid_of
from benchmarks.environment import ROOT
from custody.repository import Repository
from tests.support import INCLUDE, append, event

pytestmark = pytest.mark.benchmark


def test_a_quick_run_measures_every_side_and_loses_nothing(tmp_path: Path) -> None:
    assert measured(tmp_path, "events", "site-to-site", "site-to-site raw", "append") == [
        "events",
        "site-to-site",
        "site-to-site raw",
        "append",
    ]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("mvn") is None, reason="Maven, which gets NiFi, is not installed")
def test_nifi_s_receiving_side_takes_the_same_packets(tmp_path: Path) -> None:
    assert measured(tmp_path, "nifi") == ["NiFi, no sync", "NiFi, synced"]


def measured(tmp_path: Path, *only: str) -> list[str]:
    """Run some sides for a second each; return their names."""
    command = [sys.executable, "-m", "benchmarks.delivery", "--quick", "--scratch", str(tmp_path)]
    command += [word for name in only for word in ("--only", name)]
    done = subprocess.run(
        [*command, "--output", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(INCLUDE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    sides = json.loads((tmp_path / "results.json").read_text())["sides"]
    assert all(side["batches"] > 0 < side["p50_ms"] <= side["p99_ms"] for side in sides)
    assert not list(tmp_path.glob("delivery-*"))
    return [side["name"] for side in sides]


def test_what_is_not_there_once_is_counted(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path)
    names = [uuid_of(1, 1, 0), uuid_of(1, 1, 1), uuid_of(1, 1, 1)]
    append(repository, [event(number, flowfile_uuid=name) for number, name in enumerate(names)])
    assert _wrong(tmp_path, [Delivered(1, [1], [0.1])], 1) == 0
    assert _wrong(tmp_path, [Delivered(1, [1, 2], [0.1, 0.1])], 2) == 3
