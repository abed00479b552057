"""Readers of a bucket share one work folder, with copies and pieces, and are killed while they fetch.

Whatever a kill leaves, every question is answered then as on a machine with an empty folder, nothing stays locked, the
processes that readers started end, and what was left of fetches goes.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from uuid import uuid4

import psutil  # type: ignore[import-untyped]
import pytest

from custody.format.names import FETCHING_SUFFIX, RANGES
from custody.store.local_copies import LocalCopies
from custody.store.remote import open_remote
from custody.vfs import PosixFileSystem
from tests.behaviour.answers import EVENTS, MAIN, build, opened
from tests.behaviour.places import s3_url
from tests.behaviour.reader_process import BEGUN, QUICK, digests
from tests.behaviour.s3 import BUCKET, s3_environment
from tests.behaviour.store_proxy import StoreProxy, store_proxy
from tests.support import INCLUDE, append, run_steps

__all__ = ["s3_url"]

LATENCY_SECONDS = 0.02
_TESTS = Path(__file__).parents[2]


def environment(url: str, location: str) -> dict[str, str]:
    """Return the variables by which a process finds the store."""
    return s3_environment(url) | {"CUSTODY__REPOSITORY__STORE": location}


@contextmanager
def at(url: str, location: str) -> Iterator[None]:
    """Let this process find the store."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(url, location).items():
            patch.setenv(name, value)
        yield


@pytest.fixture
def proxy(s3_url: str) -> Iterator[StoreProxy]:
    with store_proxy(s3_url, LATENCY_SECONDS) as proxy:
        yield proxy


class Machine:
    """A folder on which readers of a store work together, by a slow way or straight."""

    def __init__(self, root: Path, location: str, url: str, slow_url: str = "") -> None:
        root.mkdir()
        self.root = root
        shared = {**os.environ, "PYTHONPATH": f"{INCLUDE}{os.pathsep}{_TESTS}"}
        self._straight = shared | environment(url, location)
        self._slow = shared | environment(slow_url, location)

    @property
    def work(self) -> Path:
        """The folder of copies and pieces."""
        return self.root / "work"

    def reader(self, seed: int, *names: str) -> subprocess.Popen[str]:
        """Start a process that asks, by the slow way."""
        return self._started(self._slow, str(seed), *names)

    def _started(self, environ: dict[str, str], *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.behaviour.reader_process", str(self.root), *arguments]
        return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)

    def answers(self) -> dict[str, str]:
        """What a process that was just started is told, by question."""
        with self._started(self._straight) as process:
            said, _ = process.communicate(timeout=300)
        assert process.returncode == 0
        told: dict[str, str] = json.loads(said)
        return told

    def fetching(self) -> list[Path]:
        """Fetches that are under way, or were when their process ended."""
        return sorted(self.work.rglob(f"*{FETCHING_SUFFIX}"))

    def pieces(self) -> list[Path]:
        """The files with holes of what was read by ranges."""
        return [path for path in self.work.glob(f"*/*/{RANGES}/**/*") if path.is_file()]


def kill_some(
    machine: Machine, random: Random, readers: int, names: Sequence[str] = ()
) -> tuple[list[psutil.Process], list[str]]:
    """Start readers, kill each at a moment of its own; return the processes that they had, and errors that they met."""
    started = [machine.reader(random.randrange(1 << 30), *names) for _ in range(readers)]
    children: list[psutil.Process] = []
    told: list[str] = []
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{BEGUN}\n"
    for process in random.sample(started, len(started)):
        time.sleep(random.uniform(0.05, 1.0))
        children += psutil.Process(process.pid).children(recursive=True)
        process.kill()
    for process in started:
        said, _ = process.communicate(timeout=60)
        told += said.splitlines()
    return children, told


def require_unlocked(folder: Path) -> None:
    """Raise if a file is locked."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def require_leftovers_go(machine: Machine, location: str) -> None:
    """What killed readers left of fetches goes with the next fetch once it is old."""
    folder = machine.work / "main/provenance/data"
    (folder / f"of-a-killed-one{FETCHING_SUFFIX}").write_bytes(b"half")
    for path in machine.fetching():
        os.utime(path, (time.time() - 7200,) * 2)
    store = open_remote(location)
    key = next(key for key in store.keys("main/provenance/data/") if key.endswith(".toc"))
    copies = LocalCopies(PosixFileSystem(), store, machine.work, 1 << 30)
    copies.forget(key)
    copies.fetch(key, None)
    assert not machine.fetching()


@pytest.mark.in_parts(2)
def test_a_reader_that_is_killed_leaves_a_folder_that_answers_as_an_empty_one(
    tmp_path: Path, proxy: StoreProxy, s3_url: str
) -> None:
    location = f"s3://{BUCKET}/{uuid4().hex}"
    with at(s3_url, location):
        append(opened(tmp_path / "writer"), EVENTS[MAIN])
        run_steps(opened(tmp_path / "writer").settings)
        expected = digests(tmp_path / "fresh", QUICK)
        machine = Machine(tmp_path / "killed", location, s3_url, proxy.url)
        random = Random(7)  # noqa: S311 - moments that can be repeated, no secret
        # On a busy machine a reader may be killed before it has fetched anything.
        for _ in range(10):
            _, told = kill_some(machine, random, 1, QUICK)
            assert not told
            if machine.pieces():
                break
        assert machine.pieces()
        assert digests(machine.root, QUICK) == expected
        require_unlocked(machine.root)
        require_leftovers_go(machine, location)


@pytest.mark.slow
def test_forty_killed_readers_lose_no_answer_and_leave_nothing_locked(
    tmp_path: Path, proxy: StoreProxy, s3_url: str
) -> None:
    location = f"s3://{BUCKET}/{uuid4().hex}"
    with at(s3_url, location):
        build(tmp_path / "writer")
    expected = Machine(tmp_path / "fresh", location, s3_url).answers()
    machine = Machine(tmp_path / "killed", location, s3_url, proxy.url)
    children: list[psutil.Process] = []
    cut, random = 0, Random(7)  # noqa: S311 - moments that can be repeated, no secret
    for number in range(14):
        # An empty folder now and then: what is there is fetched no more.
        if number % 3 == 0:
            shutil.rmtree(machine.work, ignore_errors=True)
        more, told = kill_some(machine, random, 3)
        assert not told, told
        children += more
        cut += len(machine.fetching())
        assert machine.answers() == expected
        assert machine.pieces()
        require_unlocked(machine.root)
    assert cut, "no fetch was cut"
    assert children, "no reader was killed that had asked in SQL"
    _, alive = psutil.wait_procs(children, timeout=60)
    assert not alive, "a process of a killed reader goes on"
    with at(s3_url, location):
        require_leftovers_go(machine, location)
    assert machine.answers() == expected
