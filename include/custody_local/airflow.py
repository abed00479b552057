"""A local Airflow for one project folder: started, waited for, and ended without a trace.

All its state is in one folder, by default `<project>/.local/airflow`; all ports are on the loopback address; there is
one user with a random password. It is for development: a real deployment runs the same project in the Astro image.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from custody.errors import LockedError
from custody_local.airflow_api import AirflowClient, ignore
from custody_local.errors import LocalAirflowError
from custody_local.processes import ProcessId, end_session, identify, session_members
from custody_local.settings import (
    LOOPBACK,
    USER,
    airflow_environment,
    choose_port,
    load_secrets,
    read_pools,
    write_private,
)

COMPONENTS = frozenset({"metadatabase", "scheduler", "triggerer", "dag_processor"})
# An idle Airflow ends in a few seconds; more is needed only to wait for running tasks, which are killed.
STOP_SECONDS = 10.0
_STATE = "running.json"
_POLL_SECONDS = 0.3
_TAIL_LINES = 40


@dataclass(frozen=True, slots=True)
class Running:
    """A local Airflow that runs: its first process, and where it answers."""

    process: ProcessId
    url: str


def find_running(home: Path) -> Running | None:
    """Return the Airflow that runs on this folder, or None."""
    try:
        state = json.loads((home / _STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    running = Running(ProcessId(**state["process"]), state["url"])
    # The first process may be gone while others of its session still hold the database and the port.
    return running if session_members(running.process) else None


def stop_running(home: Path, *, timeout_s: float = STOP_SECONDS) -> bool:
    """End the Airflow that runs on this folder; return whether there was one."""
    running = find_running(home)
    if running is not None:
        end_session(running.process, timeout_s=timeout_s)
    (home / _STATE).unlink(missing_ok=True)
    return running is not None


class LocalAirflow:
    """One local Airflow; as a context manager it is started on entry and stopped on exit."""

    def __init__(
        self,
        project: Path,
        *,
        home: Path | None = None,
        port: int | None = None,
        repository: Path | None = None,
        master: str = "local[*]",
        parallelism: int = 2,
        database: str | None = None,
        settings: Mapping[str, str] | None = None,
        environ: Mapping[str, str] = os.environ,
        progress: Callable[[str], None] = ignore,
    ) -> None:
        self._project = project.resolve()
        self._home = (home or project / ".local" / "airflow").resolve()
        self._port = port
        self._repository = repository
        self._master = master
        self._parallelism = parallelism
        self._database = database
        self._settings = dict(settings or {})
        self._environ = environ
        self._progress = progress
        self._url: str | None = None
        self._leader: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it answers.

        Raises:
            LocalAirflowError: it is not running.
        """
        if self._url is None:
            raise LocalAirflowError("the local Airflow is not running. Call start first.")
        return self._url

    @property
    def user(self) -> str:
        """The name of its one user, who may do everything."""
        return USER

    @property
    def password(self) -> str:
        """The user's password; the same for each start on the same folder."""
        self._make_home()
        return load_secrets(self._home).password

    @property
    def home(self) -> Path:
        """Its AIRFLOW_HOME: database, secrets, logs."""
        return self._home

    def client(self) -> AirflowClient:
        """Return a new REST client that is logged in as the one user."""
        return AirflowClient(self.url, self.user, self.password)

    def start(self, *, timeout_s: float = 240) -> None:
        """Start it, wait until all components are well, and make the project's pools.

        Raises:
            LockedError: one is running on the same folder.
            LocalAirflowError: it ended, or was not well in time; its logs' last lines are in the message.
        """
        if running := find_running(self._home):
            raise LockedError(
                f"{self._home}: a local Airflow runs on this folder already, at {running.url} "
                f"(process {running.process.pid}). Use it, or stop it first."
            )
        self._make_home()
        port = choose_port(self._port)
        self._url = f"http://{LOOPBACK}:{port}"
        self._launch(port)
        try:
            self._wait_until_well(timeout_s)
            self._make_pools()
        except BaseException:
            self.stop()
            raise

    def stop(self, *, timeout_s: float = STOP_SECONDS) -> None:
        """End all its processes, also the tasks that run; does nothing when it is not running."""
        self._progress("stopping Airflow")
        stop_running(self._home, timeout_s=timeout_s)
        if self._leader is not None:
            self._leader.wait()
        self._leader = None
        self._url = None

    def _make_home(self) -> None:
        self._home.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._logs.mkdir(parents=True, exist_ok=True)

    @property
    def _logs(self) -> Path:
        return self._home / "logs" / "components"

    def command(self, *arguments: str, timeout_s: float = 120) -> str:
        """Run Airflow's own command line against it, such as `backfill create`; return what it printed.

        Raises:
            LocalAirflowError: it is not running, or the command failed; the end of what it said is in the message.
        """
        port = int(self.url.rpartition(":")[2])
        done = subprocess.run(
            [sys.executable, "-m", "airflow", *arguments],
            env=self._environment(port),
            cwd=self._project,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if done.returncode:
            tail = "\n".join((done.stdout + done.stderr).splitlines()[-_TAIL_LINES:])
            raise LocalAirflowError(f"airflow {' '.join(arguments)}: exit code {done.returncode}.\n{tail}")
        return done.stdout

    def _environment(self, port: int) -> dict[str, str]:
        environ = airflow_environment(
            self._project,
            self._home,
            port=port,
            master=self._master,
            parallelism=self._parallelism,
            environ=self._environ,
            database=self._database,
        )
        if self._repository is not None:
            environ["CUSTODY_REPOSITORY"] = str(self._repository.resolve())
        return environ | self._settings

    def _launch(self, port: int) -> None:
        environ = self._environment(port)
        with (self._logs / "start.log").open("wb") as log:
            self._leader = subprocess.Popen(
                [sys.executable, "-m", "custody_local.components", str(self._logs)],
                env=environ,
                cwd=self._project,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # A session of its own: it survives the terminal's Ctrl-C, and all of it can be found.
                start_new_session=True,
            )
        process = identify(self._leader.pid)
        if process is not None:
            state = asdict(Running(process, self.url))
            write_private(self._home / _STATE, json.dumps(state))

    def _wait_until_well(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        shown = ""
        while missing := self._missing():
            text = f"starting Airflow: waiting for {', '.join(sorted(missing))}"
            if text != shown:
                self._progress(text)
                shown = text
            if self._leader is not None and self._leader.poll() is not None:
                raise LocalAirflowError(f"Airflow ended while it started.\n{self._tails()}")
            if time.monotonic() > deadline:
                raise LocalAirflowError(
                    f"Airflow: expected all components well within {timeout_s:.0f} s, missing: "
                    f"{', '.join(sorted(missing))}.\n{self._tails()}"
                )
            time.sleep(_POLL_SECONDS)
        self._progress(f"Airflow is ready: {self.url}")

    def _missing(self) -> set[str]:
        with self.client() as client:
            try:
                health = client.health()
            except (httpx.HTTPError, ValueError):
                return {"api_server"}
        return {name for name in COMPONENTS if health.get(name) != "healthy"}

    def _make_pools(self) -> None:
        with self.client() as client:
            for pool in read_pools(self._project):
                client.set_pool(pool.name, pool.slots, pool.description)

    def _tails(self) -> str:
        """The last lines of each log that has any."""
        parts: list[str] = []
        for log in sorted(self._logs.glob("*.log")):
            lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
            if lines:
                parts += [f"--- {log} ---", *lines[-_TAIL_LINES:]]
        return "\n".join(parts)
