"""A driver that outlives its supervisor: the later try takes over; the older one ends and changes nothing.

Real processes. The supervisor starts the driver and is killed with SIGKILL, as by the kernel when memory is short; the
driver lives on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from custody.errors import SupersededError
from custody.lease import Attempt, Holder, lease_status
from custody.recovery import STEPS, find_leftovers, peek_leftovers
from custody.repository import Repository
from custody.spark.environment import submit_environment
from custody.spark.submit import step_command
from custody.vfs import PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, Workspace, read_report, take_rollover
from tests.support import append, event, run_steps, unnumbered

ROOT = Path(__file__).parents[2]
EVENTS = [event(number) for number in range(200)]
SUPERVISOR = "import subprocess, sys; subprocess.run(sys.argv[2:], stdout=open(sys.argv[1], 'w'), stdin=sys.stdin)"
DRIVER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from custody.config import load_settings
from custody.errors import CustodyError
from custody.lease import Attempt
from custody.recovery import STEPS
from custody.workspace import Workspace, take_rollover
settings = load_settings(Path(sys.argv[1]))
lease = take_rollover(settings, "main", Attempt.parse(sys.argv[3]))
units = STEPS["compress"].units(settings)
print("holds", flush=True)
sys.stdin.readline()
try:
    for unit in units:
        STEPS["compress"].run(Workspace(settings, unit.writer, lease=lease), unit)
except CustodyError as error:
    print(type(error).__name__, error.exit_code, flush=True)
"""


@contextmanager
def supervised(command: Sequence[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command below a supervisor, in a group of its own; all of the group is gone in the end."""
    with subprocess.Popen(
        [sys.executable, "-c", SUPERVISOR, str(output), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **submit_environment(), "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    ) as supervisor:
        try:
            yield supervisor
        finally:
            with suppress(ProcessLookupError):
                os.killpg(supervisor.pid, signal.SIGKILL)


def wait_for(what: Callable[[], object], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.02)


def holder(repository: Repository) -> Holder | None:
    """Who holds the lease of the rollover now."""
    lease = lease_status(PosixFileSystem(), repository.workspace().paths.lease(ROLLOVER_LEASE))
    if lease is None or not lease.is_open:
        return None
    return Holder.decode(lease.path.read_bytes(), lease.path)


def check_undisturbed(repository: Repository) -> None:
    assert unnumbered(repository.events(count=1000)) == EVENTS
    assert repository.search("", limit=1).total == len(EVENTS)
    for file in repository.workspace().catalog.load().files.values():
        assert (repository.workspace().paths.home / file.path).stat().st_size == file.size_bytes


def test_an_older_driver_that_goes_on_after_the_younger_one_is_told_and_changes_nothing(
    repository: Repository, tmp_path: Path
) -> None:
    append(repository, EVENTS)
    run_steps(repository.settings, "rollover")
    command = [sys.executable, "-c", DRIVER, str(repository.settings.root), str(ROOT), "dag/run/compress/1"]
    old = tmp_path / "old"
    with supervised(command, old) as supervisor:
        # Its epoch has a name before it has it: overtaken in between, it would end there.
        wait_for(lambda: old.exists() and old.read_text() == "holds\n", 30)
        supervisor.kill()
        driver = holder(repository)
        assert driver is not None
        os.kill(driver.process.pid, 0)  # it lives on
        for name in list(STEPS)[2:]:
            lease = take_rollover(repository.settings, "main", Attempt("dag/run/compress", 2))
            for unit in STEPS[name].units(repository.settings):
                STEPS[name].run(Workspace(repository.settings, unit.writer, lease=lease), unit)
            lease.release()
        assert supervisor.stdin is not None
        supervisor.stdin.write(b"go on\n")
        supervisor.stdin.flush()
        wait_for(lambda: old.read_text() != "holds\n", 30)
    assert old.read_text().split()[1] in ("SupersededError", "NotFoundError")
    check_undisturbed(repository)
    assert find_leftovers(repository.workspace()) == []


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("step", ["rollover", "compress", "commit"])
def test_of_two_spark_drivers_of_one_step_the_later_try_wins(repository: Repository, tmp_path: Path, step: str) -> None:
    append(repository, EVENTS)
    run_steps(repository.settings, *list(STEPS)[: list(STEPS).index(step)])
    root = str(repository.settings.root)

    def command(number: int) -> list[str]:
        arguments = ["--repository", root, "--run-id", "run", "--attempt", f"dag/run/{step}/{number}"]
        return step_command(step, arguments, master="local[1]")

    with supervised(command(1), tmp_path / "old") as supervisor:
        wait_for(lambda: holder(repository), 120)
        driver = holder(repository)
        assert driver is not None
        os.kill(driver.process.pid, signal.SIGSTOP)  # for as long as the retry needs
        supervisor.kill()
        done = subprocess.run(
            command(2), env={**os.environ, **submit_environment()}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        run_steps(repository.settings, *list(STEPS)[list(STEPS).index(step) + 1 :])
        os.kill(driver.process.pid, signal.SIGCONT)
        wait_for(lambda: '{"step"' in (tmp_path / "old").read_text(), 120)
    report = json.loads(next(line for line in (tmp_path / "old").read_text().splitlines() if line.startswith("{")))
    kinds = {unit["error_kind"] for unit in report["details"]}
    assert kinds <= {SupersededError.kind}, "it did not find the work done, and was not told"
    kept = read_report(PosixFileSystem(), repository.settings.runs, "run", step)
    assert kept.failed == 0
    check_undisturbed(repository)
    assert peek_leftovers(repository.settings).is_any, "an attempt was overtaken: the next run looks for what it left"
    repository.recover()
    assert find_leftovers(repository.workspace()) == []
    assert not peek_leftovers(repository.settings).is_any
