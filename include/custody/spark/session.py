"""Spark sessions: the only place that builds one, and the only one that runs a statement with names from outside.

By default Spark replaces `${env:…}`, `${system:…}` and names of its settings in the text of a statement, within quotes
too. Names that came in notifications are part of such texts, so every session of custody takes a text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN_SQL: Mapping[str, str] = {"spark.sql.variable.substitute": "false"}
"""Settings of every session: nothing in a statement is replaced."""
# The literals of `custody.ngsi.hive` rely on escapes; set only where it differs, for Spark warns of this setting.
_ESCAPES_COUNT = {"spark.sql.parser.escapedStringLiterals": "false"}


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
