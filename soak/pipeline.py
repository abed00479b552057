"""The pipeline that drives the steps: `custody run all` and `custody retention apply` in a loop; airflow.py has the
other one.

Either pipeline says which of its processes may be killed, comes to rest when asked to, and tells how its runs ended.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from custody.errors import CustodyError
from custody.recovery import peek_leftovers
from custody.repository import Repository
from custody_local.processes import ProcessId, end_session, identify, session_members
from soak.processes import DRIVER, WORKER, Target, spark_drivers

ROLLOVER, RETENTION = "rollover", "retention"
_COMMANDS = {ROLLOVER: ("run", "all"), RETENTION: ("retention", "apply", "--yes")}
_TRIES = 6
_REST_SECONDS = 180.0


class PipelineError(Exception):
    """The pipeline did not come to rest."""


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The end of a run: when, in seconds on the monotonic clock, `success`, `failed` or `skipped`, and how."""

    kind: str
    at: float
    state: str
    retried: int = 0
    """Tasks that needed more than one try."""
    recovered: bool = False
    """Whether its step `recover` had something to do."""
    seconds: float = 0.0


class Pipeline(ABC):
    """Rollover and retention, again and again."""

    name: str

    @abstractmethod
    def start(self) -> None:
        """Begin."""

    @abstractmethod
    def targets(self, kind: str) -> list[Target]:
        """Return the processes of a kind that may be killed now."""

    @abstractmethod
    def rest(self, grace_seconds: float) -> None:
        """Come to rest: what is acknowledged becomes live, what is to expire expires. Nobody kills any more.

        Raises:
            PipelineError: it did not.
        """

    def restarts(self) -> int:
        """Return how often what drives the steps stood still and was started again."""
        return 0

    @abstractmethod
    def stop(self) -> None:
        """End all processes."""

    @abstractmethod
    def runs(self) -> list[RunEnd]:
        """Return all runs that ended, oldest first."""


@dataclass
class LoopPipeline(Pipeline):
    """The commands that a user types, one after the other, each in a session of its own."""

    repository: Path
    folder: Path
    """For the log."""
    name: str = "custody run all, custody retention apply, in a loop"
    ended: list[RunEnd] = field(default_factory=list)
    sessions: list[ProcessId] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._loop, name="pipeline")

    def start(self) -> None:
        """Begin the loop."""
        self._thread.start()

    def targets(self, kind: str) -> list[Target]:
        """Return the drivers of all sessions, also of those whose first process is gone; or that first process."""
        sessions = list(self.sessions)
        if kind == DRIVER:
            return [target for session in sessions for target in spark_drivers(session)]
        if kind == WORKER and sessions and sessions[-1].is_alive():
            return [Target(sessions[-1], WORKER, " ".join(psutil.Process(sessions[-1].pid).cmdline()[-2:]))]
        return []

    def rest(self, grace_seconds: float) -> None:
        """End the loop, then run each command until it ends well."""
        self._ended.set()
        self._thread.join()
        deadline = time.monotonic() + _REST_SECONDS
        while any(spark_drivers(session) for session in self.sessions):  # those that outlived their supervisors
            if time.monotonic() > deadline:
                raise PipelineError(f"a Spark driver did not end within {_REST_SECONDS:.0f} s")
            time.sleep(0.5)
        self._until_well(ROLLOVER)
        for _ in range(2):  # marked in the first pass, deleted in the second
            self._until_well(RETENTION)
            time.sleep(grace_seconds + 1)
        self._until_well(RETENTION)

    def stop(self) -> None:
        """End what is left."""
        self._ended.set()
        for session in self.sessions:
            end_session(session, timeout_s=2)
        if self._thread.is_alive():
            self._thread.join()

    def runs(self) -> list[RunEnd]:
        """Return all runs."""
        return list(self.ended)

    def _until_well(self, kind: str) -> None:
        for _ in range(_TRIES):
            if self._run(kind) == "success":
                return
        raise PipelineError(f"{kind}: {_TRIES} tries failed; see {self.folder / 'pipeline.log'}")

    def _loop(self) -> None:
        while not self._ended.is_set():
            for kind in (ROLLOVER, RETENTION):
                if not self._ended.is_set():
                    self._run(kind)

    def _run(self, kind: str) -> str:
        started = time.monotonic()
        with self._session(kind) as process:
            code = process.wait()
        now = time.monotonic()
        state = "success" if code == 0 else "killed" if code < 0 else "failed"
        self.ended.append(RunEnd(kind, now, state, seconds=now - started))
        return state

    @contextmanager
    def _session(self, kind: str) -> Iterator[subprocess.Popen[bytes]]:
        command = [str(Path(sys.prefix) / "bin" / "custody"), "-r", str(self.repository), *_COMMANDS[kind]]
        with (
            (self.folder / "pipeline.log").open("ab") as log,
            subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
            ) as process,
        ):
            leader = identify(process.pid)
            if leader is not None:
                self.sessions.append(leader)
            yield process
            self.sessions = [session for session in self.sessions if session_members(session)]


def unrest(root: Path) -> list[str]:
    """Return what is left to do in a repository of which nobody writes any more, nothing when it is at rest."""
    repository = Repository.open(root)
    leftovers = [f"left over: {path}" for path in peek_leftovers(repository.settings).paths]
    leftovers += [f"{item.writer}: journals" for item in repository.workspaces() if item.groups() or item.staged()]
    try:
        plan = repository.plan_retention()
    except CustodyError as error:  # a step changes things in this moment
        return [*leftovers, str(error)]
    leftovers += [f"expires: {log.path}" for log in plan.expiring]
    return leftovers + ([f"{plan.waiting_bytes} bytes to be deleted"] if plan.waiting_bytes else [])
