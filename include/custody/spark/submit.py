"""Submits of Spark jobs: the settings and the command line of `spark-submit`, and its run as a child process.

The settings suit many small jobs on one machine: a quick start, few partitions, short logs, nothing that listens beyond
this host. On a cluster only settings are given that hold anywhere.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from custody.config import Settings
from custody.spark.archive import archive_flags, option_string
from custody.spark.environment import QUICK_COMPILER, job_of, jobs_folder, spark_home, submit_environment
from custody.spark.packaging import submit_options
from custody.spark.session import PLAIN_SQL

_LOOPBACK = "127.0.0.1"
_LONG = "swh"
"""How names of jobs begin that go over a whole graph."""
_TAIL_LINES = 30


def spark_conf(
    master: str = "local[*]", environ: Mapping[str, str] = os.environ, *, job: str | None = None
) -> dict[str, str]:
    """Return the Spark settings of a job on `master`; Airflow's operator takes them as `conf`.

    A `job` that goes over a whole graph gets Java's optimizing compiler: it runs long enough to be worth it.
    """
    flags = archive_flags(environ)
    if job is not None and job.startswith(_LONG):
        flags.remove(QUICK_COMPILER)
    if environ.get("TMPDIR"):
        # Java does not know the variable, and Spark puts its own files where Java puts them.
        flags.append(f"-Djava.io.tmpdir={environ['TMPDIR']}")
    if kerberos := _kerberos(environ):
        # Spark logs in with a keytab before anything of a job runs, and Java does not know MIT's variable.
        flags.append(f"-Djava.security.krb5.conf={kerberos}")
    conf = {
        "spark.driver.extraJavaOptions": option_string(flags),
        "spark.log.level": "WARN",
        # Nobody opens the page of a job of seconds; it takes time to start, and a port.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        **PLAIN_SQL,
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
        # A Spark configuration of the host, in SPARK_CONF_DIR, may name another Python for its own jobs.
        conf |= {"spark.pyspark.python": sys.executable, "spark.pyspark.driver.python": sys.executable}
    return conf


def step_command(
    step: str,
    arguments: Sequence[str],
    *,
    master: str = "local[*]",
    environ: Mapping[str, str] = os.environ,
    library: Path | None = None,
) -> list[str]:
    """Return the command line that runs the job of a step (or `all`) with more arguments, in `submit_environment`."""
    file, first = job_of(step)
    job = jobs_folder(environ) / file
    return submit_command(job, [*first, *arguments], master=master, environ=environ, library=library)


def submit_command(
    job: Path,
    arguments: Sequence[str],
    *,
    master: str = "local[*]",
    environ: Mapping[str, str] = os.environ,
    library: Path | None = None,
) -> list[str]:
    """Return the command line that runs the file `job` with its `arguments`, in `submit_environment`.

    `library` is the file with the library for executors; see `custody.spark.packaging`.
    """
    conf = {**spark_conf(master, environ, job=job.stem), **submit_options(library)}
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    submit = str(spark_home() / "bin" / "spark-submit")
    return [submit, "--master", master, *settings, str(job), *arguments]


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
    more = ["--repository", str(settings.root), *arguments]
    command = step_command(step, more, master=settings.spark.master, environ=environ, library=settings.spark_library)
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


def _kerberos(environ: Mapping[str, str]) -> str | None:
    named = environ.get("KRB5_CONFIG")
    return str(Path(named).absolute()) if named and Path(named).is_file() else None
