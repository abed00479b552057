"""The processes of one local Airflow: finds and ends them, and no others.

They share a session: the first process opens it, and everything that it starts belongs to it, also tasks and Spark's
JVMs, which Airflow puts into process groups of their own. A process is remembered with its start time, so that a
process number that the system uses again is never mistaken for it.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable
from dataclasses import dataclass

import psutil  # type: ignore[import-untyped]

_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process as it can be found again: by number and start time."""

    pid: int
    started: float

    def is_alive(self) -> bool:
        """Whether it still runs; one that ended and only waits to be collected does not."""
        try:
            process = psutil.Process(self.pid)
            return bool(process.create_time() == self.started and process.status() != psutil.STATUS_ZOMBIE)
        except psutil.Error:
            return False


def identify(pid: int) -> ProcessId | None:
    """Describe a running process; None when there is none of that number."""
    try:
        return ProcessId(pid, float(psutil.Process(pid).create_time()))
    except psutil.Error:
        return None


def session_members(leader: ProcessId) -> set[ProcessId]:
    """All living processes of the session that `leader` opened, and what they started elsewhere."""
    members = {process for pid in psutil.pids() if (process := _member(pid, leader.pid)) is not None}
    # A BashOperator opens a session of its own: it is found only while its parent lives.
    if leader.is_alive():
        members |= _descendants(leader.pid)
    return {process for process in members if process.is_alive()}


def end_session(leader: ProcessId, *, timeout_s: float) -> None:
    """End a session: ask it to end, wait at most `timeout_s`, then kill what remains."""
    # The first process tells the others. Asking all at once would make it slower: a worker that ends
    # while it holds the lock of Airflow's queue leaves the others waiting for it.
    seen = session_members(leader)
    _signal({leader} if leader.is_alive() else seen, signal.SIGTERM)
    deadline = time.monotonic() + timeout_s
    while any(process.is_alive() for process in seen) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
        seen |= session_members(leader)
    # Twice at least: a process may start another one between being listed and being killed.
    while remaining := {process for process in seen if process.is_alive()}:
        _signal(remaining, signal.SIGKILL)
        time.sleep(_POLL_SECONDS)
        seen |= session_members(leader)


def _member(pid: int, session: int) -> ProcessId | None:
    try:
        return identify(pid) if os.getsid(pid) == session else None
    except (ProcessLookupError, PermissionError):
        return None


def _descendants(pid: int) -> set[ProcessId]:
    try:
        children = psutil.Process(pid).children(recursive=True)
        return {ProcessId(child.pid, float(child.create_time())) for child in children}
    except psutil.Error:
        return set()


def _signal(processes: Iterable[ProcessId], number: signal.Signals) -> None:
    for process in processes:
        if process.is_alive():
            try:
                os.kill(process.pid, number)
            except ProcessLookupError:
                continue
