"""Hive tables of destinations, made with Spark in an embedded metastore or in the one that the settings name.

The embedded metastore is a Derby database, which one JVM at a time can open: that of the job that holds the sink's
lease. To query tables while jobs run, set up a metastore server (`ngsi.hive_metastore_uri`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from custody.config import Settings
from custody.errors import CustodyError
from custody.ngsi.hive import HiveTable, full_name, more_columns, not_a_place
from custody.ngsi.naming import Destination
from custody.ngsi.parameters import Parameters
from custody.ngsi.rendering import ColumnsByLocation
from custody.ngsi_sink.tables import PendingTables, TablesReport, hive_server_problem, metastore_problem, spark_table
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
    created = extended = 0
    problems = []
    for destination in noted:
        table = spark_table(destination, parameters, columns, target)
        if reason := not_a_place(table.location):
            # No retry can help: it is reported again each time that its destination gets data.
            problems.append(f"{table.database}.{table.name}: no table at {reason}")
            pending.done(destination)
            continue
        try:
            is_new, is_longer = ensure_table(session, table, is_partitioned=parameters.format == "parquet")
        except Exception as error:  # noqa: BLE001 - Spark raises errors of many kinds; this table waits, the others are made
            problems.append(f"{table.database}.{table.name}: {_first_line(error)}")
            continue
        # After the table exists: a crash in between costs one more look at it.
        pending.done(destination)
        created, extended = created + is_new, extended + is_longer
    if reason := hive_server_problem(parameters):
        problems.append(reason)
    return TablesReport(created, extended, len(pending.all()), tuple(problems))


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
    had = [column.name.lower() for column in session.catalog.listColumns(name) if not column.isPartition]
    names = [column.lower() for column, _ in table.columns]
    # Columns are only ever added at the end: those of a table of ours are the first ones of the destination's.
    if had != names[: len(had)]:
        raise CustodyError(
            f"expected a table with the columns {', '.join(names[: len(had)])}, got {', '.join(had)}. "
            "See who else made a table of this name; drop or rename it."
        )
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


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0][:300]}"
