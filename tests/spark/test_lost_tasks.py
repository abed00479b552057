"""Units that take an executor down cost themselves alone; large ones have it to themselves."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from custody.spark.environment import submit_environment
from custody.spark.submit import submit_command
from tests.spark.cluster import standalone_cluster
from tests.support import INCLUDE

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture(params=["local[2]", "standalone"])
def master(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param != "standalone":
        yield request.param
        return
    with standalone_cluster(tmp_path / "cluster", [], workers=1, cores=2) as cluster:
        yield cluster.master


def test_a_unit_that_ends_its_worker_costs_no_other_and_a_large_one_has_no_neighbour(
    master: str, tmp_path: Path
) -> None:
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE)}
    environ |= submit_environment(environ)
    (tmp_path / "tries").mkdir()
    job = Path(__file__).with_name("lost_tasks.py")
    command = submit_command(job, [str(tmp_path / "tries")], master=master, environ=environ)
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stderr
    result = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert result["cores"] == [2, 2]
    assert result["tasks"] == [[[3], 2], [[4], 2], [[0], 1], [[1], 1], [[2], 1], [[5], 1]]
    reports = result["done"]
    assert reports[2].startswith("lost 2: ")
    assert "Python worker exited unexpectedly" in reports[2]
    assert [report.partition(" done")[0] for report in reports[3:5]] == ["large 3", "large 4"]
    assert [report.rpartition(" ")[2] for report in (reports[1], *reports[3:5])] == ["0", "0", "0"]
    assert [report.partition(" done")[0] for report in (reports[0], reports[5])] == ["plain 0", "plain 5"]
    # What was not lost was done once, or once more beside what was.
    assert result["tries"]["large-3"] == result["tries"]["large-4"] == 1
    assert result["tries"]["poison-2"] >= 1
