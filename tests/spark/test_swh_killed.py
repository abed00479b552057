"""Every step of a build is killed in the middle, as a program, and done again: the tables are by the definitions."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from custody.clock import SystemClock
from custody.repository import Repository
from custody.spark.environment import submit_environment
from custody.spark.submit import step_command
from custody.swh.build import STEPS, Build
from custody.swh.publishing import database_catalog, database_folder, published_state
from custody.vfs import PosixFileSystem
from tests.swh.graphs import Shape, random_graph, write_graph
from tests.swh.on_spark import expected, rows
from tests.swh.reference import Reference

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    # PySpark's own warnings are not this project's errors.
    pytest.mark.filterwarnings("default"),
]
TABLES_OF_STEPS = {
    "nodes": (STEPS[0], "nodes", "id"),
    "earliest_revisions": (STEPS[1], "earliest_revisions", "node", "author_date", "revrel"),
    "d_in_r": (
        *(STEPS[4], "frontier_directories_in_revisions"),
        *("dir", "dir_max_author_date", "revrel", "revrel_author_date", "path"),
    ),
    "c_in_r": (
        *(STEPS[5], "contents_in_revisions_without_frontiers"),
        *("cnt", "revrel", "revrel_author_date", "path"),
    ),
    "c_in_d": (STEPS[6], "contents_in_frontier_directories", "cnt", "dir", "path"),
    "r_in_o": (STEPS[7], "revisions_in_origins", "revrel", "ori"),
}
"""What a published build has of the reference's tables: step, table, columns."""
GRAPH = random_graph(Shape(11, 60, 50, 30, 6, 3, 4, 50, 0.1))
SECONDS_MAX = 1200
ROUNDS = (2, 1, 0, 1, 1, 1, 1, 2)
"""How many rounds a step has done when it is killed; the third one is a single task."""


def start(root: Path, graph: Path) -> subprocess.Popen[bytes]:
    """Submit the job that goes on with a build, in a session of its own so that all of it can be killed."""
    arguments = ["--repository", str(root), "--graph", str(graph), "--build", "b", "--node-filter", "heads"]
    return subprocess.Popen(
        step_command("swh_all", arguments, master="local[2]"),
        # So small a graph would be done in the driver, in less time than it takes to look.
        env={**os.environ, **submit_environment(), "CUSTODY__SPARK__DRIVER_BYTES_MAX": "0"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def kill_in_the_middle(process: subprocess.Popen[bytes], build: Path, step: str, rounds: int) -> None:
    """Kill a step when its attempt has done so many rounds, and wait until nothing of it is left."""
    ends = time.monotonic() + SECONDS_MAX
    while (
        not list(build.glob(f"attempt.{step}.*/tables")) or len(list(build.glob(f"attempt.{step}.*/rounds/*"))) < rounds
    ):
        assert process.poll() is None, f"{step} ended before it was killed"
        assert time.monotonic() < ends
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def test_whatever_step_is_killed_the_build_goes_on_and_gives_the_same_tables(tmp_path: Path) -> None:
    fs, settings = PosixFileSystem(), Repository.create(tmp_path / "repository").settings
    graph = write_graph(GRAPH, tmp_path / "graph")
    folder = database_folder(settings) / "builds" / "b"
    done: dict[Path, int] = {}
    for number, step in enumerate(STEPS):
        kill_in_the_middle(start(settings.root, graph), folder, step, ROUNDS[number])
        assert not (folder / step).exists()
        assert all(path.stat().st_ino == inode for path, inode in done.items()), "a step that is done was done again"
        done |= {path: path.stat().st_ino for name in STEPS[:number] for path in (folder / name).rglob("*")}
    assert start(settings.root, graph).wait(SECONDS_MAX) == 0
    state = published_state(database_catalog(settings, fs, SystemClock()))
    assert set(state.files) == set(Build.open(fs, database_folder(settings), "b").files())
    assert list(folder.glob("attempt.*")) == []
    reference = Reference(GRAPH, "heads")
    wanted = expected(reference)
    for name, table in TABLES_OF_STEPS.items():
        assert rows(folder / table[0] / "tables" / table[1], *table[2:]) == wanted[name], name
