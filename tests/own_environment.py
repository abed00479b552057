"""Environments of their own, for programs of the tests whose packages contradict the project's.

Each lies under `.local`; the first test that needs it makes it, in some seconds, and again when its requirements
change. The requirements name every package with its hash.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_of(name: str, requirements: Path) -> Path:
    """Return the Python of an environment that has what a file of requirements names."""
    environment = _ROOT / ".local" / name
    environment.parent.mkdir(parents=True, exist_ok=True)
    stamp, interpreter = environment / "made-from", environment / "bin" / "python"
    with (environment.parent / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_bytes() == requirements.read_bytes()):
            uv = [str(_ROOT / ".ci" / "uv")]
            subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, environment], check=True)
            install = ["pip", "install", "--quiet", "--python", str(interpreter), "--require-hashes", "-r"]
            subprocess.run([*uv, *install, requirements], check=True)
            stamp.write_bytes(requirements.read_bytes())
    return interpreter
