"""The workers of a LocalExecutor, and a watch that notices when they take no tasks any more.

They share one queue with one lock, which the idle worker that reads from it holds. A worker that is killed at that
moment takes the lock with it: no other worker takes a task from then on, tasks stay queued, and the scheduler looks
healthy. A new scheduler has a new queue.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from datetime import UTC, datetime, timedelta

import httpx
import psutil  # type: ignore[import-untyped]

from custody_local.airflow_api import AirflowClient
from custody_local.errors import LocalAirflowError
from custody_local.processes import ProcessId, session_members
from custody_local.settings import ADOPT_SECONDS

_TITLE = "airflow worker -- LocalExecutor"
_IDLE = "<idle>"
_PATIENCE = timedelta(seconds=60)
# A dead scheduler's tasks stay queued until it has missed its heartbeats for 30 s and is looked for.
_ADOPTED = timedelta(seconds=ADOPT_SECONDS + 60)


def workers(leader: ProcessId, *, idle: bool) -> list[ProcessId]:
    """Return the workers of a local Airflow that supervise a task, or those that do not."""
    return [
        process
        for process in sorted(session_members(leader), key=lambda member: member.pid)
        if (title := _title(process.pid)).startswith(_TITLE) and (_IDLE in title) == idle
    ]


class QueueWatch:
    """Tells whether the executor's queue stands still: a task waits in it for a minute although a worker is idle."""

    def __init__(self, client: AirflowClient, patience: timedelta = _PATIENCE) -> None:
        self._client = client
        self._patience = patience
        self._idle_since: datetime | None = None

    def stands_still(self, scheduler: ProcessId, now: datetime | None = None) -> bool:
        """Look once; to be called every few seconds. False where Airflow does not answer."""
        now = now or datetime.now(UTC)
        if not any(_is_idle_worker(child) for child in _children(scheduler)):
            self._idle_since = None
            return False
        self._idle_since = self._idle_since or now
        try:
            queued = self._client.queued_since()
        except (httpx.HTTPError, LocalAirflowError):
            return False
        began = datetime.fromtimestamp(scheduler.started, UTC)
        waited = [max(since, self._idle_since, began + _ADOPTED) for since in queued]
        return bool(waited) and now - min(waited) > self._patience


def kill_scheduler(scheduler: ProcessId, leader: ProcessId) -> None:
    """Kill a scheduler and all idle workers; those that supervise a task finish it and report to the API server."""
    for process in [scheduler, *workers(leader, idle=True)]:
        if process.is_alive():
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)


def _children(process: ProcessId) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(process.pid).children()] if process.is_alive() else []
    except psutil.Error:
        return []


def _is_idle_worker(pid: int) -> bool:
    title = _title(pid)
    return title.startswith(_TITLE) and _IDLE in title


def _title(pid: int) -> str:
    """Return the command line of a process, one text: setproctitle writes it as one word."""
    try:
        return " ".join(psutil.Process(pid).cmdline()).strip()
    except psutil.Error:
        return ""
