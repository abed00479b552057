"""The measurements of Airflow run and say what they measured; those that need minutes are left out."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchmarks.airflow.cost import percentile, table
from benchmarks.airflow.live import _lags
from benchmarks.environment import ROOT

pytestmark = pytest.mark.benchmark


def test_parsing_and_waiting_are_measured_and_printed_as_tables() -> None:
    command = [sys.executable, "-m", "benchmarks.airflow", "parse", "sensors"]
    done = subprocess.run(
        [*command, "--triggers", "5", "--seconds", "1", "--logs", "1"],
        cwd=ROOT,
        env={"PYTHONPATH": "include", "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "provenance_rollover.py" in done.stdout
    assert "file-system calls a look" in done.stdout


def test_the_lag_of_a_batch_ends_when_its_last_event_is_live() -> None:
    acknowledged = [(9, 100.0), (19, 101.0), (29, 102.0)]
    live = [(12, 110.0), (29, 120.0)]
    assert _lags(acknowledged, live) == [10.0, 19.0, 18.0]


def test_percentiles_are_values_that_were_measured() -> None:
    values = [float(number) for number in range(100)]
    assert (percentile(values, 0.5), percentile(values, 0.95), percentile([3.0], 0.99)) == (50.0, 95.0, 3.0)
    assert table(["a", "b"], [["x", 1.0]]) == "| a | b |\n| --- | --- |\n| x | 1.00 |"
