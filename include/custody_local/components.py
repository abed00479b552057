"""The first process of a local Airflow: sets the database up and runs the four components.

`airflow standalone` would do about the same, but its log servers listen on all interfaces, it goes on
when a component has died, and it does not end its components when it is told to end. Here the first
component that ends, ends all. Each writes its own log into the folder given as argument.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

# Without their log servers: API server and components share one disk, and the logs are read there.
COMPONENTS = {
    "api-server": ("api-server",),
    "scheduler": ("scheduler", "--skip-serve-logs"),
    "dag-processor": ("dag-processor",),
    "triggerer": ("triggerer", "--skip-serve-logs"),
}
_STOP_SECONDS = 30


def _command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "airflow", *arguments]


def _start(name: str, logs: Path) -> subprocess.Popen[bytes]:
    with (logs / f"{name}.log").open("wb") as log:
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


def main(logs: Path) -> int:
    """Run all components until one ends or a SIGTERM comes; return the exit code."""
    signal.signal(signal.SIGTERM, _on_terminate)
    with (logs / "database.log").open("wb") as log:
        migrate = _command("db", "migrate")
        subprocess.run(migrate, stdout=log, stderr=subprocess.STDOUT, check=True)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        for name in COMPONENTS:
            running[name] = _start(name, logs)
        ended, status = os.wait()
        names = [name for name, process in running.items() if process.pid == ended]
        code = os.waitstatus_to_exitcode(status)
        sys.stderr.write(f"{', '.join(names)} ended by itself with exit code {code}\n")
        return 1
    finally:
        _stop(running)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
