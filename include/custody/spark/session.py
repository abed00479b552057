"""Spark sessions: the only place that builds one, and the only one that runs a statement with names from outside.

By default Spark replaces `${env:…}`, `${system:…}` and names of its settings in the text of a statement, within quotes
too. Names that came in notifications are part of such texts, so every session of custody takes a text as it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN_SQL: Mapping[str, str] = {"spark.sql.variable.substitute": "false"}
"""Settings of every session: nothing in a statement is replaced."""
# The literals of `custody.ngsi.hive` rely on escapes; set only where it differs, for Spark warns of this setting.
_ESCAPES_COUNT = {"spark.sql.parser.escapedStringLiterals": "false"}


# What Spark hides in its pages and logs: its own words, and those of the object stores.
_HIDDEN = {
    "spark.redaction.regex": "(?i)secret|password|token|access[._]?key|account[._]?key|credential|sas[._]|connection"
}


def executor_variables(patterns: Iterable[str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the settings of a session that give executors some variables of this environment.

    They are set on the session, in memory: an option of `spark-submit` could be read in the list of processes.
    """
    names = [name for name in environ if any(fnmatchcase(name, pattern) for pattern in patterns)]
    return {**{f"spark.executorEnv.{name}": environ[name] for name in sorted(names)}, **_HIDDEN}


def start_session(name: str, options: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session of a job, under a name that Spark's pages show, with more settings of Spark."""
    # Imported here: a job without work, and the tests of the argument parser, need no Spark.
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    # Last, so that neither options nor spark-defaults.conf take it back.
    merged = {**(options or {}), **PLAIN_SQL}
    session: SparkSession = builder.appName(f"custody-{name}").config(map=merged).getOrCreate()
    return session


def run_statement(session: SparkSession, statement: str) -> None:
    """Run a statement with names from outside in it, quoted by `custody.ngsi.hive`.

    The session may have been built elsewhere: the settings that keep a text as it is are set on it first.
    """
    for key, value in {**PLAIN_SQL, **_ESCAPES_COUNT}.items():
        if session.conf.get(key, value) != value:
            session.conf.set(key, value)
    session.sql(statement)
