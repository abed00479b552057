"""The first process of a local Airflow: a killed component comes back, one that ends soon after its start ends all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from custody_local.components import COMPONENTS
from tests.support import INCLUDE

# Each part writes its number down, sleeps, and ends by itself when a file says so.
PROGRAM = """
import os, sys, time
from pathlib import Path
if sys.argv[1] == "db":
    sys.exit()
place = Path(__file__).parents[1] / sys.argv[1]
place.with_suffix(".new").write_text(str(os.getpid()))
place.with_suffix(".new").rename(place.with_suffix(".pid"))
print("started", flush=True)
while not place.with_suffix(".end").exists():
    time.sleep(0.02)
sys.exit(7)
"""


@contextmanager
def components(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "airflow").mkdir()
    (folder / "airflow" / "__main__.py").write_text(PROGRAM)
    (folder / "airflow" / "__init__.py").touch()
    (folder / "logs").mkdir()
    with subprocess.Popen(
        [sys.executable, "-m", "custody_local.components", str(folder / "logs"), *options],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(INCLUDE)]),
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__API__BASE_URL": "http://127.0.0.1:1",
        },
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def pid(folder: Path, name: str) -> int:
    path = folder / f"{name}.pid"
    return int(path.read_text()) if path.exists() else 0


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not what():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)


def alive(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_killed_component_is_started_again_and_one_that_ends_by_itself_ends_all(tmp_path: Path) -> None:
    with components(tmp_path) as first:
        wait_for(lambda: all(pid(tmp_path, name) for name in COMPONENTS))
        others = {name: pid(tmp_path, name) for name in COMPONENTS if name != "scheduler"}
        killed = pid(tmp_path, "scheduler")
        os.kill(killed, signal.SIGKILL)
        wait_for(lambda: pid(tmp_path, "scheduler") != killed)
        assert {name: pid(tmp_path, name) for name in others} == others
        assert first.poll() is None
        assert (tmp_path / "logs" / "scheduler.log").read_text() == "started\n" * 2
        (tmp_path / "triggerer.end").touch()
        assert first.wait(60) == 1
        assert not any(alive(pid(tmp_path, name)) for name in COMPONENTS)
        assert first.stderr is not None
        said = first.stderr.read().splitlines()
    assert said == [
        "scheduler was killed by signal 9, and is started again",
        "triggerer ended by itself with exit code 7",
    ]


def test_a_component_that_ends_by_itself_after_it_ran_for_a_while_is_started_again(tmp_path: Path) -> None:
    with components(tmp_path, "0.1") as first:
        wait_for(lambda: all(pid(tmp_path, name) for name in COMPONENTS))
        ended = pid(tmp_path, "scheduler")
        time.sleep(0.1)
        (tmp_path / "scheduler.end").touch()
        wait_for(lambda: not alive(ended))
        (tmp_path / "scheduler.end").unlink()
        wait_for(lambda: pid(tmp_path, "scheduler") != ended)
        assert first.poll() is None
        first.terminate()
        assert first.wait(60) == 0
        assert first.stderr is not None
        said = first.stderr.read().splitlines()
    assert said == ["scheduler ended by itself with exit code 7, and is started again"]


def test_being_told_to_end_ends_all(tmp_path: Path) -> None:
    with components(tmp_path) as first:
        wait_for(lambda: all(pid(tmp_path, name) for name in COMPONENTS))
        first.terminate()
        assert first.wait(60) == 0
        assert not any(alive(pid(tmp_path, name)) for name in COMPONENTS)
