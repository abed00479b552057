"""Every step of a build is killed in the middle, as a program, and done again: the tables are by the definitions."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from custody.repository import Repository
from custody.spark.run import jobs_folder
from custody.spark.submit import submit_command, submit_environment
from custody.swh.build import PUBLISH, STEPS, Build
from custody.swh.publishing import database_folder
from custody.vfs import PosixFileSystem
from tests.swh.graphs import Shape, random_graph, write_graph
from tests.swh.on_spark import expected, tables
from tests.swh.reference import Reference

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    # PySpark's own warnings are not this project's errors.
    pytest.mark.filterwarnings("default"),
]
GRAPH = random_graph(Shape(11, 60, 50, 30, 6, 3, 4, 50, 0.1))
SECONDS_MAX = 1200


def start(root: Path, graph: Path, step: str) -> subprocess.Popen[bytes]:
    """Submit the job of a step, in a session of its own so that all of it can be killed."""
    arguments = ["--repository", str(root), "--graph", str(graph), "--build", "b", "--node-filter", "heads"]
    return subprocess.Popen(
        submit_command(jobs_folder() / f"{step}.py", arguments, master="local[2]"),
        env={**os.environ, **submit_environment()},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_in_the_middle(process: subprocess.Popen[bytes], build: Path, step: str, rounds: int) -> None:
    """Kill a step when its attempt has done so many rounds, and wait until nothing of it is left."""
    ends = time.monotonic() + SECONDS_MAX
    while len(list(build.glob(f"attempt.{step}.*/rounds/*"))) < rounds:
        assert process.poll() is None, f"{step} ended before it was killed"
        assert time.monotonic() < ends
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_whatever_step_is_killed_the_build_goes_on_and_gives_the_same_tables(tmp_path: Path) -> None:
    settings = Repository.create(tmp_path / "repository").settings
    graph = write_graph(GRAPH, tmp_path / "graph")
    folder = database_folder(settings) / "builds" / "b"
    for number, step in enumerate(STEPS):
        kill_in_the_middle(start(settings.root, graph, step), folder, step, 1 + number % 3)
        assert not (folder / step).exists()
        assert start(settings.root, graph, step).wait(SECONDS_MAX) == 0
        assert (folder / step / "output.json").exists()
    build = Build.open(PosixFileSystem(), database_folder(settings), "b")
    found, wanted = tables(build), expected(Reference(GRAPH, "heads"))
    for name, rows in wanted.items():
        assert found[name] == rows, name
    assert len(list(folder.glob("attempt.*"))) == len(STEPS), "what was killed lies there still"
    assert start(settings.root, graph, PUBLISH).wait(SECONDS_MAX) == 0
    assert list(folder.glob("attempt.*")) == []
