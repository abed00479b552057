"""How long a Spark job took until it could work: a step of seconds should say which of them are its own.

The environment variables that a submit needs, all derived from the Python that runs this.

Spark takes its programs, its Java and its Python from the environment. When any of them comes from
another installation, a job fails late and with an unclear message, so all are set together and by
full path.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib import metadata, util
from pathlib import Path

from custody.clock import SystemClock
from custody.errors import ConfigurationError
from custody.spark.java import find_java

SUBMITTED_VARIABLE = "CUSTODY_SUBMITTED_MS"
"""When the job was submitted, in ms since the epoch; part of the environment of each submit."""


def submit_moment() -> dict[str, str]:
    """Return the variable that tells a job when it was submitted: now."""
    return {SUBMITTED_VARIABLE: str(SystemClock().now_ms())}


def seconds_since_submit(environ: Mapping[str, str] = os.environ) -> float:
    """Return how long ago this job was submitted, in seconds; 0 when nobody said."""
    submitted = environ.get(SUBMITTED_VARIABLE, "")
    if not submitted.isdigit():
        return 0.0
    return max(SystemClock().now_ms() - int(submitted), 0) / 1000


# A quick start matters most: such a job is over before the optimizing compiler pays for itself.
QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
QUICK_START_FLAGS = (QUICK_COMPILER, "-XX:+UseSerialGC", "-Xshare:auto")
# PySpark says this once a job, at import, where pandas 3 is installed; custody does not use pandas.
_QUIET = "ignore:PySpark does not yet fully support pandas:FutureWarning"


def spark_home() -> Path:
    """The folder of the installed pyspark package, which is a complete Spark.

    Raises:
        ConfigurationError: pyspark is not installed, or only its client is.
    """
    # find_spec does not import: PySpark takes a second to load, and Airflow parses DAGs often.
    spec = util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ConfigurationError("pyspark: not installed. Run: pip install 'custody[spark]'")
    home = Path(spec.origin).parent
    if not (home / "bin" / "spark-submit").is_file():
        raise ConfigurationError(
            f"{home}: expected a complete Spark, found no bin/spark-submit (pyspark-client alone "
            f"has none). Run: pip install 'custody[spark]'"
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
    """
    pyspark_versions_agree()
    java = find_java(environ)
    scripts = Path(sys.prefix) / "bin"
    result = {
        "JAVA_HOME": str(java.home),
        "SPARK_HOME": str(spark_home()),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PATH": _joined(os.pathsep, str(scripts), str(java.home / "bin"), environ.get("PATH")),
        # Without it Spark binds to the address of the host's name, which may not be this machine's.
        "SPARK_LOCAL_IP": environ.get("SPARK_LOCAL_IP") or "127.0.0.1",
        # The small JVM that only puts the command line together.
        "SPARK_LAUNCHER_OPTS": environ.get("SPARK_LAUNCHER_OPTS") or " ".join(QUICK_START_FLAGS),
        "PYTHONWARNINGS": _joined(",", environ.get("PYTHONWARNINGS"), _QUIET),
        # The job reports how long it took to start.
        **submit_moment(),
    }
    if environ.get("PYTHONPATH"):
        result["PYTHONPATH"] = environ["PYTHONPATH"]
    return result


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _joined(separator: str, *parts: str | None) -> str:
    """Join what is there, each part once, so that an environment made from itself does not grow."""
    pieces = [piece for part in parts if part for piece in part.split(separator) if piece]
    return separator.join(dict.fromkeys(pieces))
