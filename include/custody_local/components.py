"""The first process of a local Airflow: sets up the database and supervises the four components.

`airflow standalone` does much of this, but its log servers listen on all interfaces, it goes on when a component has
died, and it does not end its components on a signal. Here a component that was killed is restarted, as systemd would
do; so is a scheduler whose workers take no tasks any more, and a component that ended by itself after it had run well
for a while. One that ends by itself soon after its start ends everything, for it would end again. Each component writes
its own log into the folder that is given as argument.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import NoReturn

from custody_local.airflow_api import AirflowClient
from custody_local.processes import identify
from custody_local.settings import USER, load_secrets
from custody_local.workers import QueueWatch, kill_scheduler

STANDS_STILL = "tasks stay queued while workers are idle: the scheduler is killed"
"""What the log says then."""
# Without their log servers: API server and components share one disk, and the logs are read there.
COMPONENTS = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_STOP_SECONDS = 30
_RESTART_SECONDS = 1.0
_LOOK_SECONDS = 10.0
_SETTLED_SECONDS = 30.0
"""How long a component has to have run, so that its end is an accident and not the fault of how it was started."""


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _start(name: str, logs: Path) -> subprocess.Popen[bytes]:
    with (logs / f"{name}.log").open("ab") as log:
        return subprocess.Popen(_command(*COMPONENTS[name]), stdout=log, stderr=subprocess.STDOUT)


def _stop(running: dict[str, subprocess.Popen[bytes]]) -> None:
    for process in running.values():
        process.terminate()
    for process in running.values():
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def _on_terminate(_number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def main(logs: Path, *, settled_s: float = _SETTLED_SECONDS) -> int:
    """Run all components until one ends soon after its start or a SIGTERM comes; return the exit code."""
    signal.signal(signal.SIGTERM, _on_terminate)
    with (logs / "database.log").open("wb") as log:
        migrate = _command("db", "migrate")
        subprocess.run(migrate, stdout=log, stderr=subprocess.STDOUT, check=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    for name in COMPONENTS:
        (logs / f"{name}.log").unlink(missing_ok=True)
    try:
        started: dict[str, float] = {}
        for name in COMPONENTS:
            running[name], started[name] = _start(name, logs), time.monotonic()
        threading.Thread(target=_watch, args=(running,), name="watch", daemon=True).start()
        while True:
            name, code = _wait(running)
            what = f"was killed by signal {-code}" if code < 0 else f"ended by itself with exit code {code}"
            if code >= 0 and time.monotonic() - started[name] < settled_s:
                _say(f"{name} {what}")
                return 1
            _say(f"{name} {what}, and is started again")
            # Whatever kills it again and again shall not keep this machine busy.
            time.sleep(_RESTART_SECONDS)
            running[name], started[name] = _start(name, logs), time.monotonic()
    finally:
        _stop(running)


def _watch(running: dict[str, subprocess.Popen[bytes]]) -> None:
    """Kill a scheduler whose queue stands still; the main thread starts another one."""
    leader = identify(os.getpid())
    password = load_secrets(Path(os.environ["AIRFLOW_HOME"])).password
    watch = QueueWatch(AirflowClient(os.environ["AIRFLOW__API__BASE_URL"], USER, password, start_s=0))
    while leader is not None:
        time.sleep(_LOOK_SECONDS)
        scheduler = identify(running["scheduler"].pid)
        if scheduler is not None and watch.stands_still(scheduler):
            _say(STANDS_STILL)
            kill_scheduler(scheduler, leader)


def _wait(running: dict[str, subprocess.Popen[bytes]]) -> tuple[str, int]:
    """Wait until a component has ended; return its name and exit code, a signal's number below zero."""
    ended, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    [name] = [name for name, process in running.items() if process.pid == ended]
    # Collected behind its back: it must not wait for that number again.
    running[name].returncode = code
    return name, code


if __name__ == "__main__":
    settled = float(sys.argv[2]) if len(sys.argv) > 2 else _SETTLED_SECONDS
    sys.exit(main(Path(sys.argv[1]), settled_s=settled))
