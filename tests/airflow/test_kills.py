"""Whatever of Airflow or Spark is killed in the middle of a rollover: the next run ends as if nothing had been.

A real Airflow, the real DAG, a real spark-submit for each task. Processes are found by their command lines, below the
local Airflow's first process. What holds afterwards is compared with the same journals rolled over in peace.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.lease import Holder, lease_status
from custody.recovery import peek_leftovers
from custody.repository import Repository
from custody.rollover import pending
from custody.vfs import PosixFileSystem
from custody.workspace import ROLLOVER_LEASE
from custody_local.airflow import LocalAirflow, find_running
from custody_local.airflow_api import AirflowClient
from custody_local.components import STANDS_STILL
from custody_local.workers import workers
from tests.support import run_steps, write_samples

pytestmark = [pytest.mark.airflow, pytest.mark.slow]

PROJECT = Path(__file__).resolve().parents[2]
DAG_ID = "provenance_rollover"
# Enough for a step to be met in the middle of its work.
EVENTS = 60_000
QUERIES = ("", "event_type:SEND", "event_type:DROP AND file_size:[1000 TO]", "filename:orders*")
# A step takes ten seconds, and minutes on a machine that is busy with other things.
WAIT_SECONDS = 1200.0
# What a deployment waits minutes for: a dead supervisor, a dead scheduler's tasks.
QUICK = {
    "CUSTODY_ROLLOVER_SCHEDULE": "",
    # So few events would be done before anything can be killed, and in the driver alone.
    "CUSTODY__SPARK__DRIVER_BYTES_MAX": "0",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "30",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "10",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "20",
}


@dataclass(frozen=True)
class State:
    """What a repository answers, and what its catalog lists."""

    events: pa.Table
    answers: dict[str, tuple[int, list[int]]]
    files: dict[str, tuple[int, bytes]]

    @classmethod
    def of(cls, repository: Repository) -> State:
        events = pa.concat_tables(repository.events(count=10 * EVENTS).tables())
        results = {query: repository.search(query, limit=200) for query in QUERIES}
        answers = {
            query: (one.total, [stored.event.event_id for stored in one.events]) for query, one in results.items()
        }
        live = repository.workspace().catalog.load().files
        return cls(events, answers, {path: (file.rows, file.sha256) for path, file in live.items()})


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """A repository whose events are acknowledged and sealed; it is copied, never rolled over itself."""
    folder = tmp_path_factory.mktemp("journals")
    repository = Repository.create(folder / "repository")
    with repository.ingest() as work:
        for path in write_samples(folder, EVENTS):
            work.file(path)
    return repository


@pytest.fixture(scope="module")
def undisturbed(journals: Repository, tmp_path_factory: pytest.TempPathFactory) -> State:
    """What becomes of these journals when nothing is killed."""
    return _in_peace(journals, tmp_path_factory.mktemp("peace"))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository without events."""
    return Repository.create(tmp_path_factory.mktemp("disturbed") / "repository").settings.root


@pytest.fixture(scope="module")
def airflow(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAirflow]:
    home = tmp_path_factory.mktemp("airflow")
    with LocalAirflow(PROJECT, home=home, repository=root, parallelism=4, settings=QUICK) as running:
        yield running


@pytest.fixture(scope="module")
def client(airflow: LocalAirflow) -> Iterator[AirflowClient]:
    with airflow.client() as client:
        client.wait_for_dag(DAG_ID)
        client.unpause(DAG_ID)
        yield client


def test_a_worker_that_takes_the_lock_of_the_queue_with_it(airflow: LocalAirflow, client: AirflowClient) -> None:
    """An idle worker holds the lock while it waits for a task; the first process of the local Airflow gets it back."""
    log = airflow.home / "logs" / "components" / "start.log"
    found = find_running(airflow.home)
    assert found is not None
    assert STANDS_STILL not in log.read_text()
    for worker in workers(found.process, idle=True):
        os.kill(worker.pid, signal.SIGKILL)
    run_id = client.trigger(DAG_ID, {"wait_seconds": 1})
    assert client.wait_for_run(DAG_ID, run_id, timeout_s=WAIT_SECONDS).state == "success"
    assert STANDS_STILL in log.read_text()


def test_all_that_can_be_killed_is_killed_once_in_one_run(
    airflow: LocalAirflow, client: AirflowClient, journals: Repository, root: Path, undisturbed: State
) -> None:
    repository = Repository.open(root)
    run_id = client.trigger(DAG_ID, {"wait_seconds": 3600})
    wait_for(lambda: "deferred" in [task.state for task in client.task_instances(DAG_ID, run_id)])
    kill_component(airflow, "triggerer")
    arrive(journals, root)

    wait_until_at_work(repository, "rollover").driver.kill()
    wait_until_at_work(repository, "compress").jvm.kill()

    old = wait_until_at_work(repository, "index")
    old.supervisor.kill()
    # First it has to be gone: a process that is stopped when its supervisor ends is sent SIGHUP, a running one is not.
    wait_for(lambda: has_ended(old.supervisor))
    # Stopped for as long as Airflow needs to miss the supervisor; then both attempts work at once.
    with old.stopped():
        wait_for(lambda: (new := holder(repository)) is not None and new.attempt.endswith("/index/2"))
        assert old.driver.is_running(), "it outlived its supervisor"
    assert old.ends_within(WAIT_SECONDS), "it was told that it is superseded"

    wait_until_at_work(repository, "commit").driver.kill()
    wait_until_at_work(repository, "sweep")
    kill_component(airflow, "scheduler")

    assert client.wait_for_run(DAG_ID, run_id, timeout_s=WAIT_SECONDS).state == "success"
    tries = {task.task_id: task.try_number for task in client.task_instances(DAG_ID, run_id)}
    assert {name for name, number in tries.items() if number > 1} >= {"rollover", "compress", "index", "commit"}
    # What the killed ones left, the next run clears away.
    following = client.trigger(DAG_ID)
    assert client.wait_for_run(DAG_ID, following, timeout_s=WAIT_SECONDS).state == "success"
    states = {task.task_id: task.state for task in client.task_instances(DAG_ID, following)}
    assert states["recover"] == "success"
    check_nothing_left(repository)
    state = State.of(repository)
    assert state.events.equals(undisturbed.events)
    assert state.answers == undisturbed.answers
    assert state.files == undisturbed.files


def arrive(journals: Repository, root: Path) -> None:
    """Put journals into a repository: all at once, as a writer's seal does."""
    copy = root.with_name("arriving")
    shutil.copytree(journals.settings.root, copy)
    place = Path("containers", "1", "main")
    shutil.copytree(copy, root, dirs_exist_ok=True, ignore=shutil.ignore_patterns("containers"))
    (root / place).parent.mkdir(parents=True, exist_ok=True)
    (copy / place).rename(root / place)


def kill_component(airflow: LocalAirflow, name: str) -> None:
    """Kill a component, and wait until the local Airflow has started another one in its place."""
    former = component(airflow, name)
    former.kill()
    wait_for(lambda: component(airflow, name) not in (None, former))


@dataclass(frozen=True)
class Job:
    """The processes of one attempt of a step, from Airflow's worker down."""

    supervisor: psutil.Process
    jvm: psutil.Process
    driver: psutil.Process

    def stopped(self) -> Stopped:
        return Stopped([self.jvm, *self.jvm.children(recursive=True)])

    def ends_within(self, seconds: float) -> bool:
        _, alive = psutil.wait_procs([self.driver, self.jvm], timeout=seconds)
        return not alive


class Stopped:
    """Processes that do nothing for a while."""

    def __init__(self, processes: list[psutil.Process]) -> None:
        self._processes = processes

    def __enter__(self) -> None:
        for process in self._processes:
            process.suspend()

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            with suppress(psutil.NoSuchProcess):
                process.resume()


def wait_until_at_work(repository: Repository, step: str) -> Job:
    """Wait until a step's driver holds the lease and, if the step makes files, something lies there half made."""
    found: list[Holder] = []

    def at_work() -> bool:
        now = holder(repository)
        if now is None or f"/{step}/" not in now.attempt or not (step in ("commit", "sweep") or half_made(repository)):
            return False
        found.append(now)
        return True

    wait_for(at_work)
    driver = psutil.Process(found[0].process.pid)
    jvm, runner = driver.parents()[:2]
    supervisor = runner.parent()
    assert f"{step}.py" in " ".join(driver.cmdline())
    assert "org.apache.spark.deploy.SparkSubmit" in jvm.cmdline()
    assert "LocalExecutor" in " ".join(supervisor.cmdline())
    return Job(supervisor, jvm, driver)


def has_ended(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return True


def half_made(repository: Repository) -> bool:
    for _, folders, files in os.walk(repository.settings.root):
        if any(name.startswith("building-") for name in (*folders, *files)):
            return True
        if any(name.endswith(".partial") for name in (*folders, *files)):
            return True
    return False


def holder(repository: Repository) -> Holder | None:
    """Who holds the lease of the rollover now."""
    with suppress(FileNotFoundError):
        lease = lease_status(PosixFileSystem(), repository.workspace().paths.lease(ROLLOVER_LEASE))
        if lease is not None and lease.is_open:
            return Holder.decode(lease.path.read_bytes(), lease.path)
    return None


def component(airflow: LocalAirflow, name: str) -> Any:
    """The process that the local Airflow's first one started for a component; None while there is none."""
    running = find_running(airflow.home)
    assert running is not None
    for process in psutil.Process(running.process.pid).children():
        with suppress(psutil.NoSuchProcess):
            if process.status() != psutil.STATUS_ZOMBIE and name in " ".join(process.cmdline()).split():
                return process
    return None


def check_nothing_left(repository: Repository) -> None:
    assert repository.recoverable() == []
    assert not peek_leftovers(repository.settings).is_any
    waiting = pending(repository.settings)
    assert (waiting.sealed_groups, waiting.abandoned_journals, waiting.staged_units) == (0, 0, 0)
    assert not half_made(repository)
    command = ["-r", str(repository.settings.root), "verify", "--deep", "--json"]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    assert [writer["orphans"] for writer in json.loads(done.stdout)] == [[]]


def _in_peace(repository: Repository, folder: Path) -> State:
    """Roll a copy of a repository over in this process."""
    shutil.copytree(repository.settings.root, folder / "peace")
    copy = Repository.open(folder / "peace")
    run_steps(copy.settings)
    return State.of(copy)


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline, "it did not come in time"
        time.sleep(0.005)
