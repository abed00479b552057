"""Hive tables of destinations, made with Spark in an embedded metastore or in the one that the settings name.

The embedded metastore is a Derby database, which one JVM at a time can open: that of the job that holds the sink's
lease. To query tables while jobs run, set up a metastore server (`ngsi.hive_metastore_uri`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from custody.config import Settings
from custody.errors import CustodyError
from custody.ngsi.hive import HiveTable, full_name, more_columns
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.tables import (
    PendingTables,
    TablesReport,
    ensure_pending,
    hive_server_problem,
    metastore_problem,
    other_columns,
    spark_table,
)
from custody.ngsi_sink.target import Target
from custody.spark.session import run_statement
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER = "hive"


def session_options(settings: Settings) -> Mapping[str, str]:
    """Return the options of a session that makes tables (`custody.spark.session`)."""
    folder = hive_folder(settings)
    options = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        # A table's size is not worth a listing of HDFS at every change.
        "spark.sql.statistics.size.autoUpdate.enabled": "false",
    }
    if settings.ngsi.hive_metastore_uri is not None:
        return {**options, "spark.hadoop.hive.metastore.uris": settings.ngsi.hive_metastore_uri}
    return {
        **options,
        "spark.hadoop.javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={folder}/metastore;create=true",
        "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
        "spark.hadoop.hive.metastore.schema.verification": "false",
    }


def hive_folder(settings: Settings) -> Path:
    """Return the folder of the embedded metastore."""
    return settings.root / FOLDER


def ensure_tables(
    session: SparkSession,
    settings: Settings,
    fs: FileSystem,
    destinations: Iterable[Destination],
    columns: ColumnsByLocation,
    parameters: Parameters,
    target: Target,
) -> TablesReport:
    """Make the tables of destinations, and of those that were noted before, or bring them to their columns.

    Doing it again changes nothing. Call `PendingTables.note` with the destinations before their batch is written, and
    this after it: then no crash loses a table. What cannot be made is in the report; nothing is raised for it.

    Args:
        session: started with `session_options`.
        settings: of the repository.
        fs: holds the notes, in the folder `hive`.
        destinations: those that got data; the same ones noted again do no harm.
        columns: the sink's, of the column modes.
        parameters: names and columns of tables.
        target: where files are.
    """
    pending = PendingTables(fs, hive_folder(settings))
    pending.note(destinations)
    noted = pending.all()
    if not noted:
        return TablesReport()
    # Asked by a plain connection first: Hive's own client would try for minutes, for each table.
    if reason := metastore_problem(parameters):
        return TablesReport(waiting=len(noted), problems=(reason,))
    if parameters.values.hive_metastore_uri is None:
        _keep_derby_log(session, hive_folder(settings))
    report = ensure_pending(pending, _SparkTables(session, parameters, target), columns)
    if reason := hive_server_problem(parameters):
        return replace(report, problems=(*report.problems, reason))
    return report


class _SparkTables:
    """Makes tables with a session of Spark; a `custody.ngsi_sink.tables.TableMaker`."""

    def __init__(self, session: SparkSession, parameters: Parameters, target: Target) -> None:
        self._session = session
        self._parameters = parameters
        self._target = target

    def definition(self, destination: Destination, columns: ColumnsByLocation) -> HiveTable:
        """Return the table of a destination, as `spark_table`."""
        return spark_table(destination, self._parameters, columns, self._target)

    def ensure(self, table: HiveTable) -> tuple[bool, bool]:
        """Make a table or bring it to its columns, as `ensure_table`."""
        return ensure_table(self._session, table, is_partitioned=self._parameters.format == "parquet")


def ensure_table(session: SparkSession, table: HiveTable, *, is_partitioned: bool) -> tuple[bool, bool]:
    """Make a table, or add the columns that it lacks; return whether it is new and whether it got some.

    Raises:
        CustodyError: a table of this name has other columns.
        Exception: Spark refused.
    """
    name = full_name(table)
    is_new = not session.catalog.tableExists(name)
    if is_new:
        for statement in table.statements:
            run_statement(session, statement)
    had = [column.name for column in session.catalog.listColumns(name) if not column.isPartition]
    if reason := other_columns(table, had):
        raise CustodyError(reason)
    longer = more_columns(table, len(had))
    if longer is not None:
        run_statement(session, longer)
    if is_partitioned:
        # Found by listing, not told by the batch: one call that also finds what a crash left out.
        run_statement(session, f"alter table {name} recover partitions")
    return is_new, longer is not None


def _keep_derby_log(session: SparkSession, folder: Path) -> None:
    """Let Derby write its log beside its database, not into the driver's working folder."""
    context: Any = session.sparkContext
    context._jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
