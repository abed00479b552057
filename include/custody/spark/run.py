"""Runs a Spark job as a child process, line by line: what `custody run` does, and what tests use."""

from __future__ import annotations

import os
import subprocess
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import custody
from custody.config import Settings
from custody.errors import ConfigurationError
from custody.spark.submit import submit_command, submit_environment

JOBS_VARIABLE = "CUSTODY_SPARK_JOBS"
_TAIL_LINES = 30


def jobs_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the job files: the project's `spark_jobs`, or CUSTODY_SPARK_JOBS.

    Raises:
        ConfigurationError: there is none beside this installation.
    """
    named = environ.get(JOBS_VARIABLE)
    folder = Path(named) if named else Path(custody.__file__).resolve().parents[2] / "spark_jobs"
    if not (folder / "all.py").is_file():
        raise ConfigurationError(
            f"{folder}: expected the project's Spark jobs, found none. "
            f"Set {JOBS_VARIABLE} to the folder spark_jobs of the project."
        )
    return folder


def run_job(
    step: str,
    settings: Settings,
    on_line: Callable[[str], None],
    environ: Mapping[str, str] = os.environ,
    *,
    arguments: Sequence[str] = (),
) -> tuple[int, list[str]]:
    """Submit the job of a step (or `all`) with more arguments; return its exit code and its last lines.

    `on_line` gets every line of the job's output and log as it comes.
    """
    command = submit_command(
        jobs_folder(environ) / f"{step}.py",
        ["--repository", str(settings.root), *arguments],
        master=settings.spark.master,
        environ=environ,
    )
    return run_submitted(command, on_line, environ)


def run_submitted(
    command: Sequence[str], on_line: Callable[[str], None], environ: Mapping[str, str] = os.environ
) -> tuple[int, list[str]]:
    """Run the command line of a submit; arguments and result as of `run_job`."""
    tail: deque[str] = deque(maxlen=_TAIL_LINES)
    with subprocess.Popen(  # noqa: S603 - spark-submit of this environment, by full path, without a shell
        command,
        env={**environ, **submit_environment(environ)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None  # noqa: S101 - Popen with PIPE
        for line in process.stdout:
            tail.append(line.rstrip("\n"))
            on_line(tail[-1])
    return process.returncode, list(tail)
