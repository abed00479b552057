"""The one place where a session of Spark is built, and the one where it is told a statement.

Spark replaces `${env:…}`, `${system:…}` and names of its settings in the text of a statement, within quotes too, unless
it is told not to. Names of notifications stand in such texts: every session of custody takes a text as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLAIN_SQL: Mapping[str, str] = {"spark.sql.variable.substitute": "false"}
"""Settings of every session: nothing in a statement is replaced."""
# What `custody.ngsi.hive` writes is right where escapes count; Spark warns of who sets this one without need.
_ESCAPES_COUNT = {"spark.sql.parser.escapedStringLiterals": "false"}


def start_session(name: str, options: Mapping[str, str] | None = None) -> SparkSession:
    """Return the Spark session of a job, under a name that Spark's pages show, with more settings of Spark."""
    # Imported here: a job without work, and the tests of the argument parser, need no Spark.
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    # Last, so that neither options nor spark-defaults.conf take it back.
    given = {**(options or {}), **PLAIN_SQL}
    session: SparkSession = builder.appName(f"custody-{name}").config(map=given).getOrCreate()
    return session


def tell(session: SparkSession, statement: str) -> None:
    """Run a statement that has names from outside in it, in quotes of `custody.ngsi.hive`.

    It is told as plain text to whatever session this is, also to one that was not built here.
    """
    for key, value in {**PLAIN_SQL, **_ESCAPES_COUNT}.items():
        if session.conf.get(key, value) != value:
            session.conf.set(key, value)
    session.sql(statement)
