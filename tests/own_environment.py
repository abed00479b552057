"""Environments of their own, for programs of the tests whose packages contradict the project's.

Each lies under `.local`; the first test that needs it makes it, in some seconds, and again when its requirements
change. The requirements name every package with its hash.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]


def python_of(name: str, requirements: Path) -> Path:
    """Return the Python of an environment that has what a file of requirements names."""
    environment = _ROOT / ".local" / name
    interpreter = environment / "bin" / "python"

    def make() -> None:
        _uv("venv", "--quiet", "--clear", "--python", sys.executable, str(environment))
        _uv("pip", "install", "--quiet", "--python", str(interpreter), "--require-hashes", "-r", str(requirements))

    _made(environment, requirements, make)
    return interpreter


def folder_of(name: str, requirements: Path) -> Path:
    """Return a folder with the packages of a file of requirements alone, for PYTHONPATH beside the project's own."""
    folder = _ROOT / ".local" / name

    def make() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _uv(
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--require-hashes",
            "--target",
            str(folder),
            "-r",
            str(requirements),
        )

    _made(folder, requirements, make)
    return folder


def _made(folder: Path, requirements: Path, make: Callable[[], None]) -> None:
    """Make a folder, unless it was made from the same requirements."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    stamp = folder / "made-from"
    with (folder.parent / f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (stamp.exists() and stamp.read_bytes() == requirements.read_bytes()):
            make()
            stamp.write_bytes(requirements.read_bytes())


def _uv(*arguments: str) -> None:
    subprocess.run([str(_ROOT / ".ci" / "uv"), *arguments], check=True)
