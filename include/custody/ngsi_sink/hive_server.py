"""Hive tables of destinations, made at a HiveServer2 over Thrift, in the form of the settings' dialect.

Every statement may be run again, and is: a connection that broke says nothing of what the server did. So a table is
always looked at first, and only what it lacks is asked for.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal, Protocol

from custody.errors import ConfigurationError, CustodyError
from custody.ngsi.hive import PARTITION, HiveTable, full_name, hive_table, literal, new_columns, word
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.tables import (
    PendingTables,
    TablesReport,
    TablesUnavailableError,
    ensure_pending,
    location,
    other_columns,
    silence,
)
from custody.ngsi_sink.target import Target

_ANSWER_SECONDS_MAX = 120.0
_STATEMENT_SHOWN = 300
# Hive has the one, Spark's Thrift server the other.
_PLAIN_SQL = ("set hive.variable.substitute=false", "set spark.sql.variable.substitute=false")
_VARIABLE = "${system:java.version}"
_OWN_JSON_SERDE_SINCE = 3
"""The version of Hive from which on its own SerDe of JSON needs no other jar."""
_FILE_SYSTEM = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:(?://[^/]*)?(?=/)")
_EXTERNAL = "EXTERNAL"


def ensure_server_tables(
    pending: PendingTables, columns: ColumnsByLocation, parameters: Parameters, target: Target
) -> TablesReport:
    """Make the tables of all notes at the HiveServer2 of the settings, or bring them to their columns.

    Doing it again changes nothing. What cannot be made is in the report.

    Raises:
        ConfigurationError: the client of HiveServer2 is not installed.
    """
    noted = pending.all()
    if not noted:
        return TablesReport()
    try:
        with hive_server_tables(parameters, target) as maker:
            return ensure_pending(pending, maker, columns)
    except ConfigurationError:
        raise
    except CustodyError as error:
        return TablesReport(waiting=len(noted), problems=(str(error),))


@contextmanager
def hive_server_tables(parameters: Parameters, target: Target) -> Iterator[HiveServerTables]:
    """Connect to the HiveServer2 of the settings.

    Raises:
        TablesUnavailableError: it does not answer, or lets nobody in.
        ConfigurationError: its client is not installed.
    """
    values = parameters.values
    server = f"HiveServer2 {values.hive_host}:{values.hive_port}"
    if reason := silence(values.hive_host, values.hive_port):
        raise TablesUnavailableError(
            f"{server}: expected an answer, got none: {reason}. Start it, or correct ngsi.hive_host and "
            "ngsi.hive_port; the next run makes the tables."
        )
    # Imported here: who makes no tables at a HiveServer2 needs no client of it.
    try:
        from impala.dbapi import connect
        from impala.error import Error
        from thrift.Thrift import TException
    except ImportError as error:
        raise ConfigurationError(
            f"ngsi.hive_host: expected impyla, the client of HiveServer2, got {error}. Install custody[spark]."
        ) from error
    # What they log with a traceback is raised as well, and is told in one sentence.
    for name in ("impala", "thrift"):
        logging.getLogger(name).setLevel(logging.CRITICAL)
    failures = (Error, TException, OSError, EOFError)
    connection: Any = None
    try:
        connection = connect(
            host=values.hive_host,
            port=values.hive_port,
            auth_mechanism=values.hive_auth.upper(),
            user=parameters.username,
            password=values.hdfs_password,
            timeout=_ANSWER_SECONDS_MAX,
            retries=1,
        )
        # Closing a query at once would ask for its log, which a server without logs of operations refuses.
        cursor = connection.cursor(user=parameters.username, close_finished_queries=False)
    except failures as error:
        if connection is not None:
            _close(connection, failures)
        raise TablesUnavailableError(
            f"{server}: expected a session for {parameters.username} with ngsi.hive_auth {values.hive_auth}, got "
            f"{_first_line(error)}. Check ngsi.hdfs_username, ngsi.hdfs_password and ngsi.hive_auth; the next run "
            "makes the tables."
        ) from error
    try:
        yield HiveServerTables(server, cursor, failures, parameters, target)
    finally:
        _close(cursor, failures)
        # A cursor that could not be closed would connect again when it is collected.
        cursor._closed = True
        _close(connection, failures)


class HiveServerTables:
    """Makes tables over one session of a HiveServer2; a `custody.ngsi_sink.tables.TableMaker`."""

    def __init__(
        self,
        server: str,
        cursor: Any,  # noqa: ANN401 - its client has no types
        failures: tuple[type[Exception], ...],
        parameters: Parameters,
        target: Target,
    ) -> None:
        self._server = server
        self._cursor = cursor
        self._failures = failures
        self._target = target
        dialect = parameters.values.hive_dialect_used
        self._substitutes = False
        self._substitutes = self._replaces_variables()
        serde = parameters.values.hive_json_serde
        if serde == "auto" and dialect == "hive" and parameters.format.startswith("json"):
            serde = self._json_serde()
        values = parameters.values.model_copy(update={"hive_dialect": dialect, "hive_json_serde": serde})
        self._parameters = replace(parameters, values=values)

    def definition(self, destination: Destination, columns: ColumnsByLocation) -> HiveTable:
        """Return the table of a destination, at the place of its files."""
        return hive_table(
            destination,
            self._parameters,
            attributes=columns.get(destination.location, ()),
            location=location(destination, self._parameters, self._target),
        )

    def ensure(self, table: HiveTable) -> tuple[bool, bool]:
        """Make a table, or add the columns that it lacks; return whether it is new and whether it got some.

        Raises:
            CustodyError: the server refused a statement, or a table of this name is another one.
            TablesUnavailableError: the connection broke.
        """
        had = self._columns(table)
        is_new = had is None
        if is_new:
            for statement in table.statements:
                self._run(statement)
        elif reason := other_columns(table, had or ()):
            raise CustodyError(f"{self._server}: {reason}")
        added = () if is_new else new_columns(table, len(had or ()))
        if len(added) > 1:
            self._check_is_ours(table)
        for statement in added:
            self._run(statement)
        if self._parameters.format == "parquet":
            # Found by listing, not told by the batch: one call that also finds what a crash left out.
            self._run(f"msck repair table {full_name(table)}")
        return is_new, bool(added)

    def _json_serde(self) -> Literal["openx", "hive"]:
        [[version]] = self._query("select version()")
        major = re.match(r"[0-9]+", str(version))
        return "hive" if major is not None and int(major[0]) >= _OWN_JSON_SERDE_SINCE else "openx"

    def _replaces_variables(self) -> bool:
        """Ask for statements as they are; return whether the server replaces variables in them all the same."""
        for statement in _PLAIN_SQL:
            try:
                self._run(statement)
            except TablesUnavailableError:
                raise
            except CustodyError:
                # Servers may forbid settings, and need only one of these. What counts is what comes of it.
                continue
        [[text]] = self._query(f"select {literal(_VARIABLE)}")
        return bool(text != _VARIABLE)

    def _columns(self, table: HiveTable) -> tuple[str, ...] | None:
        """Return the columns that a table has, None where there is none."""
        if table.create_database is not None:
            self._run(table.create_database)
        names = self._query(f"show tables in {word(table.database)} like {literal(table.name)}")
        if not any(table.name in row for row in names):
            return None
        # Not `describe`, which escapes names, nor the metadata, which pass over one with a line end.
        self._query(f"select * from {full_name(table)} limit 0")  # noqa: S608 - quoted
        columns = [str(column[0]).removeprefix(f"{table.name}.") for column in self._cursor.description]
        is_partitioned = self._parameters.format == "parquet"
        return tuple(name for name in columns if not (is_partitioned and name == PARTITION))

    def _check_is_ours(self, table: HiveTable) -> None:
        """Raise CustodyError where a table that is to be made anew is not external, or lies elsewhere."""
        described = {
            str(row[0]).strip(): str(row[1] or "").strip()
            for row in self._query(f"describe formatted {full_name(table)}")
            if row[0]
        }
        kind, place = described.get("Table Type:", ""), described.get("Location:", "")
        if not kind.startswith(_EXTERNAL) or _path(place) != _path(table.location):
            raise CustodyError(
                f"{self._server}: expected an external table at {table.location}, got {kind or 'one of another kind'} "
                f"at {place}. See who else made a table of this name; drop or rename it."
            )

    def _query(self, statement: str) -> Sequence[Sequence[Any]]:
        """Run a query and return its rows."""
        self._run(statement)
        with self._explained(statement):
            rows: Sequence[Sequence[Any]] = self._cursor.fetchall()
        return rows

    def _run(self, statement: str) -> None:
        """Run a statement with names from outside in it, quoted by `custody.ngsi.hive`."""
        if "${" in statement and self._substitutes:
            raise CustodyError(
                f"{self._server}: {_shown(statement)}: expected a server that keeps names as they are, got one that "
                "replaces variables in statements and does not let a session turn it off. Add "
                "hive.variable.substitute to hive.security.authorization.sqlstd.confwhitelist.append."
            )
        with self._explained(statement):
            self._cursor.execute(statement)

    @contextmanager
    def _explained(self, statement: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            answer = _first_line(error)
            if isinstance(error, OSError | EOFError) or type(error).__name__ == "TTransportException":
                raise TablesUnavailableError(
                    f"{self._server}: {_shown(statement)}: expected an answer, got {answer}. "
                    "The next run makes the tables."
                ) from error
            raise CustodyError(
                f"{self._server}: {_shown(statement)}: expected it to be done, got {answer}. {_next_step(answer)}"
            ) from error


def _first_line(error: Exception) -> str:
    """Return the kind of an error and the beginning of what it says."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:_STATEMENT_SHOWN]}"


def _next_step(answer: str) -> str:
    if re.search(r"serde|jsonserde|ClassNotFound|NoClassDefFound|getCategory", answer, re.IGNORECASE):
        return (
            "Choose a SerDe that the server has by ngsi.hive_json_serde (openx, hcatalog or hive), or put its jar on "
            "the server's class path."
        )
    if "ParseException" in answer or "PARSE_SYNTAX_ERROR" in answer:
        return "Check ngsi.hive_dialect: hive is for Hive, spark for Spark's Thrift server."
    if re.search(r"permission|access|denied|not allowed|privilege", answer, re.IGNORECASE):
        return "Give ngsi.hdfs_username the right to do it; the next run makes the table."
    return "Look into the log of the server; the next run makes the table."


def _path(place: str) -> str:
    return _FILE_SYSTEM.sub("", place, count=1).rstrip("/")


def _shown(statement: str) -> str:
    return f"`{statement[:_STATEMENT_SHOWN]}{'…' if len(statement) > _STATEMENT_SHOWN else ''}`"


class _Closable(Protocol):
    def close(self) -> None: ...


def _close(closes: _Closable, failures: tuple[type[Exception], ...]) -> None:
    try:
        closes.close()
    except failures:
        # It was lost before; the server ends the session by itself.
        return
