"""A LocalExecutor's queue that stands still; tests/airflow/test_kills.py lets a real one lose its lock."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from custody_local.airflow_api import AirflowClient
from custody_local.processes import ProcessId, identify
from custody_local.workers import QueueWatch, kill_scheduler, workers

LATER = timedelta(minutes=10)
MINUTE = timedelta(minutes=1)


class Queue(AirflowClient):
    """What Airflow says of its queue; nobody has to be asked."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", "", "")
        self.since: list[datetime] = []

    def queued_since(self) -> list[datetime]:
        return self.since


@pytest.fixture
def worker(request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    title = f"airflow worker -- LocalExecutor: {getattr(request, 'param', '<idle>')}"
    with subprocess.Popen([title, "600"], executable="/bin/sleep", start_new_session=True) as process:
        try:
            # Before it is a program of its own, the child has the title of the tests.
            command_line = Path(f"/proc/{process.pid}/cmdline")
            while not command_line.read_bytes().startswith(title.encode()):
                time.sleep(0.005)
            yield process
        finally:
            process.kill()


def this_process() -> ProcessId:
    """The scheduler: the worker is a child of it."""
    process = identify(os.getpid())
    assert process is not None
    return process


@pytest.mark.parametrize(
    ("waited", "idle", "found"),
    [
        (2 * MINUTE, 2 * MINUTE, True),
        (MINUTE / 2, 2 * MINUTE, False),
        (2 * MINUTE, MINUTE / 2, False),
    ],
    ids=["both for long", "the task has come just now", "the worker was busy just now"],
)
@pytest.mark.usefixtures("worker")
def test_a_task_waits_although_a_worker_is_idle(waited: timedelta, idle: timedelta, found: bool) -> None:
    process = this_process()
    queue = Queue()
    watch, now = QueueWatch(queue), datetime.now(UTC) + LATER
    assert not watch.stands_still(process, now - idle)
    queue.since = [now - waited]
    assert watch.stands_still(process, now) is found


@pytest.mark.usefixtures("worker")
def test_a_new_scheduler_is_given_the_time_to_take_over_what_the_old_one_left_queued() -> None:
    process = this_process()
    queue = Queue()
    begun = datetime.fromtimestamp(process.started, UTC)
    queue.since = [begun - LATER]
    watch = QueueWatch(queue)
    assert not watch.stands_still(process, begun + MINUTE)
    assert not watch.stands_still(process, begun + 2 * MINUTE)
    assert watch.stands_still(process, begun + 4 * MINUTE)


@pytest.mark.parametrize("worker", ["some_dag.some_task"], indirect=True)
@pytest.mark.usefixtures("worker")
def test_tasks_wait_because_all_workers_are_busy() -> None:
    process = this_process()
    queue = Queue()
    watch, now = QueueWatch(queue), datetime.now(UTC) + LATER
    queue.since = [now - LATER]
    assert not watch.stands_still(process, now)
    assert not watch.stands_still(process, now + LATER)


def test_an_airflow_that_does_not_answer_is_left_alone(worker: subprocess.Popen[bytes]) -> None:
    process = this_process()
    watch = QueueWatch(AirflowClient("http://127.0.0.1:1", "", "", start_s=0))
    assert not watch.stands_still(process, datetime.now(UTC) + LATER)
    assert worker.poll() is None


def test_the_scheduler_goes_with_its_idle_workers(worker: subprocess.Popen[bytes]) -> None:
    leader = identify(worker.pid)
    assert leader is not None
    assert workers(leader, idle=True) == [leader]
    assert workers(leader, idle=False) == []
    kill_scheduler(leader, leader)
    assert worker.wait(60) == -9
