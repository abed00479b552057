"""The catalog benchmark runs and its results are complete."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import INCLUDE

pytestmark = pytest.mark.benchmark

ROOT = Path(__file__).resolve().parents[1]


def test_every_catalog_is_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.catalog", "--quick", "--scratch", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(INCLUDE)}
    output = tmp_path / "results.json"
    done = subprocess.run(
        [*command, "--output", str(output)], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    results = json.loads(output.read_text())
    for name in ("custody", "delta", "iceberg"):
        assert all(found["per_second"] > 0 for found in results[name]["commits"].values())
        assert results[name]["opening"]
        assert f"{name} | 0 |" in done.stdout
