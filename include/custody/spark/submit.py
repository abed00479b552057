"""Puts together what `spark-submit` is given: its settings and its command line.

The settings suit many small jobs on one machine: a quick start, few partitions, short logs, nothing
that listens beyond this host. On a cluster only those are set that hold anywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from custody.spark.archive import archive_flags, option_string
from custody.spark.environment import QUICK_COMPILER, pyspark_versions_agree, spark_home, submit_environment
from custody.spark.session import PLAIN_SQL

__all__ = [
    "pyspark_versions_agree",
    "spark_conf",
    "spark_home",
    "submit_command",
    "submit_environment",
]

_LOOPBACK = "127.0.0.1"
_LONG = "swh_"


def spark_conf(
    master: str = "local[*]", environ: Mapping[str, str] = os.environ, *, job: str | None = None
) -> dict[str, str]:
    """Return the Spark settings of a job on `master`; Airflow's operator takes them as `conf`.

    A `job` that goes over a whole graph gets Java's optimizing compiler: it runs long enough to be worth it.
    """
    flags = archive_flags(environ)
    if job is not None and job.startswith(_LONG):
        flags.remove(QUICK_COMPILER)
    if kerberos := _kerberos(environ):
        # Spark logs in with a keytab before anything of a job runs, and Java does not know MIT's variable.
        flags.append(f"-Djava.security.krb5.conf={kerberos}")
    conf = {
        "spark.driver.extraJavaOptions": option_string(flags),
        "spark.log.level": "WARN",
        # A page for a job of seconds that nobody opens; it takes time to start, and a port.
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        **PLAIN_SQL,
    }
    if master.startswith("local"):
        conf |= {"spark.driver.host": _LOOPBACK, "spark.driver.bindAddress": _LOOPBACK}
    return conf


def submit_command(
    job: Path,
    arguments: Sequence[str],
    *,
    master: str = "local[*]",
    environ: Mapping[str, str] = os.environ,
) -> list[str]:
    """Return the command line that runs `job` with its `arguments`, in `submit_environment`."""
    conf = spark_conf(master, environ, job=job.stem)
    settings = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    submit = str(spark_home() / "bin" / "spark-submit")
    return [submit, "--master", master, *settings, str(job), *arguments]


def _kerberos(environ: Mapping[str, str]) -> str | None:
    named = environ.get("KRB5_CONFIG")
    return str(Path(named).absolute()) if named and Path(named).is_file() else None
