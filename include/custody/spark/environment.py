"""Places of Spark, its Java, its Python and custody's jobs, and the environment variables that a submit needs.

Spark takes its programs, its Java and its Python from the environment. When any of them comes from another
installation, a job fails late and with an unclear message, so all are set together and by full path, from the Python
that runs this.

A job is a file in `spark_jobs`. Each step of the pipeline has one of its own; maintenance, retention and the build of
provenance tables have one file each, which takes its step as first argument (`job_of`, `step_of`).
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from importlib import metadata, util
from pathlib import Path

import custody
from custody.clock import SystemClock
from custody.errors import ConfigurationError, StorageError
from custody.extras import install_command
from custody.spark.java import find_java

JOBS_VARIABLE = "CUSTODY_SPARK_JOBS"
SUBMITTED_VARIABLE = "CUSTODY_SUBMITTED_MS"
"""When the job was submitted, in ms since the epoch; part of the environment of each submit."""
# A quick start matters most: such a job is over before the optimizing compiler pays for itself.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
QUICK_START_FLAGS = (QUICK_COMPILER, "-XX:+UseSerialGC", "-Xshare:auto")
# PySpark says this once a job, at import, where pandas 3 is installed; custody does not use pandas.
_QUIET = "ignore:PySpark does not yet fully support pandas:FutureWarning"
_TEMPORARY_FOLDER = "/tmp"  # noqa: S108 - Java's own default
_TEMPORARY_BYTES = 1 << 16
# By name, for Airflow parses DAGs often and must not load the library to know a file's name.
_MAINTENANCE = ("absorb", "compact", "rebuild", "scrub")
_PREFIXES = ("retention", "swh", "export")


def job_of(step: str) -> tuple[str, list[str]]:
    """Return the file in `spark_jobs` that does a step, and the arguments that come first."""
    if step in _MAINTENANCE:
        return "maintenance.py", [step]
    family = step.partition("_")[0]
    return (f"{family}.py", [step]) if family in _PREFIXES and step != family else (f"{step}.py", [])


def job_program(step: str) -> str:
    """Return the name that the job of a step has in its own help."""
    file, first = job_of(step)
    return " ".join(["spark-submit", file, *first])


def step_of(steps: Collection[str], arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the step that a job's first argument names, and the other arguments; an unknown step ends the process."""
    parser = argparse.ArgumentParser(
        prog=f"spark-submit {Path(sys.argv[0]).name}", epilog="STEP --help lists the options of a step."
    )
    parser.add_argument("step", choices=tuple(steps), metavar="STEP", help=f"one of {', '.join(steps)}")
    return parser.parse_args(arguments[:1]).step, list(arguments[1:])


def jobs_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of the job files: CUSTODY_SPARK_JOBS, the checkout's `spark_jobs`, or the wheel's `jobs`.

    Raises:
        ConfigurationError: there is none.
    """
    named = environ.get(JOBS_VARIABLE)
    package = Path(custody.__file__).resolve().parent
    folders = [Path(named)] if named else [package.parents[1] / "spark_jobs", package / "spark" / "jobs"]
    for folder in folders:
        if (folder / "all.py").is_file():
            return folder
    raise ConfigurationError(
        f"{folders[-1]}: expected custody's Spark jobs, found none. "
        f"Set {JOBS_VARIABLE} to the folder spark_jobs of a checkout."
    )


def spark_home() -> Path:
    """Return the folder of the installed pyspark package, which is a complete Spark.

    Raises:
        ConfigurationError: pyspark is not installed, or only its client is.
    """
    # find_spec does not import: PySpark takes a second to load, and Airflow parses DAGs often.
    spec = util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError(f"pyspark: not installed. Run: {install_command('spark')}")
    home = Path(spec.origin).parent
    if not (home / "bin" / "spark-submit").is_file():
        raise ConfigurationError(
            f"{home}: expected a complete Spark, found no bin/spark-submit (pyspark-client alone "
            f"has none). Run: {install_command('spark')}"
        )
    return home


def pyspark_versions_agree() -> None:
    """Check that pyspark and pyspark-client, where both are installed, are of one version.

    They write the same folder; of two versions, the driver and its workers get a mixture.

    Raises:
        ConfigurationError: the versions differ.
    """
    full, client = _version("pyspark"), _version("pyspark-client")
    if full is not None and client is not None and full != client:
        raise ConfigurationError(
            f"pyspark {full} and pyspark-client {client}: expected equal versions, as they share "
            f"one folder. Run: pip install --force-reinstall pyspark=={full} pyspark-client=={full}"
        )


def submit_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables to set for `spark-submit`; the rest of the environment stays as it is.

    Raises:
        ConfigurationError: no Java, no Spark, or two versions of Spark.
        StorageError: nothing can be written to the folder for temporary files.
    """
    pyspark_versions_agree()
    java = find_java(environ)
    _require_temporary_folder(Path(environ.get("TMPDIR") or _TEMPORARY_FOLDER))
    scripts = Path(sys.prefix) / "bin"
    result = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": _joined(os.pathsep, str(scripts), str(java.home / "bin"), environ.get("PATH")),
        # Without it Spark binds to the address of the host's name, which may not be this machine's.
        "SPARK_LOCAL_IP": environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
        # For the small JVM that only puts the command line together.
        "SPARK_LAUNCHER_OPTS": environ.get("SPARK_LAUNCHER_OPTS") or " ".join(QUICK_START_FLAGS),
        "PYTHONWARNINGS": _joined(",", environ.get("PYTHONWARNINGS"), _QUIET),
        # The job reports how long it took to start.
        **submit_moment(),
    }
    if sys.platform == "linux":
        # In any other locale, or one that the system lacks, Java makes question marks of letters beyond ASCII in paths.
        result["LC_ALL"] = "C.UTF-8"
    if environ.get("PYTHONPATH"):
        result["PYTHONPATH"] = environ["PYTHONPATH"]
    return result


def submit_moment() -> dict[str, str]:
    """Return the variable that tells a job when it was submitted: now."""
    return {SUBMITTED_VARIABLE: str(SystemClock().now_ms())}


def seconds_since_submit(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long ago this job was submitted, in seconds; 0 where its environment does not say.

    A report names the start separately: of a step of seconds it should be clear which of them are its own.
    """
    submitted = environ.get(SUBMITTED_VARIABLE, "")
    if not submitted.isdigit():
        return 0.0
    # Two looks at the wall clock, which may have been set back in between.
    return max(SystemClock().now_ms() - int(submitted), 0) / 1000


def _require_temporary_folder(folder: Path) -> None:
    """Write a temporary file: the JVM's own error about a full or read-only disk names no folder."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * _TEMPORARY_BYTES)
            file.flush()
    except OSError as error:
        raise StorageError(
            f"{folder}: expected a folder for temporary files of Spark, got: {error.strerror or error}. "
            "Free space there, or set TMPDIR to another folder."
        ) from error


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _joined(separator: str, *parts: str | None) -> str:
    """Join parts that are not empty, each piece once, so that an environment made from itself does not grow."""
    pieces = [piece for part in parts if part for piece in part.split(separator) if piece]
    return separator.join(dict.fromkeys(pieces))
