"""A job that writes batches of notifications to a target and makes their Hive tables; prints what Spark reads, as JSON.

Usage: spark-submit ngsi_hive.py REPOSITORY SETTINGS, with the settings of the section ngsi as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from custody.config import Settings
from custody.ngsi import rendering
from custody.ngsi.hive import full_name
from custody.ngsi.rendering import file_additions
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.opening import open_target
from custody.ngsi_sink.tables import PendingTables, spark_table
from custody.spark.hdfs import rpc_files
from custody.spark.hive import ensure_tables, hive_folder, session_options
from custody.spark.session import start_session
from custody.vfs import PosixFileSystem
from tests.spark.test_ngsi_tables import MODES, PLACES, batches
from tests.unit.ngsi.notification_records import attribute, body, parameters, recorded

FS = PosixFileSystem()
ROOT, SECTION = Path(sys.argv[1]), json.loads(sys.argv[2])


def main() -> None:
    plain = Settings(root=ROOT, ngsi=SECTION)
    session = start_session("ngsi-hive", session_options(plain))
    found: dict[str, Any] = {mode: of_mode(session, mode) for mode in MODES}
    for mode in ("json-row", "csv-row"):
        found[f"places {mode}"] = [at_place(session, mode, name) for name in PLACES]
    sys.stdout.write(json.dumps(found) + "\n")
    session.stop()


def at_place(session: SparkSession, mode: str, name: str) -> dict[str, Any]:
    """Write one notification of an entity with this name, and make its table; say what is in it and where it lies."""
    section = {**SECTION, "file_format": mode, "enable_encoding": True}
    settings, used = Settings(root=ROOT, ngsi=section), parameters(**section)
    target = open_target(used, FS, ROOT, rpc=rpc_files(session))
    records = recorded(body({"wood": attribute("oak")}, id=name, type=mode), used)
    destination = records[0].placed.destination
    PendingTables(FS, hive_folder(settings)).note([destination])
    for path, data in file_additions(records, used, {}, part="0").files.items():
        target.apply(FileAppend.of(path, target.length(path), data), memoryview(data))
    report = ensure_tables(session, settings, FS, [], {}, used, target)
    made = spark_table(destination, used, {}, target)
    target.close()
    said = [report.made, report.extended, report.waiting, *report.problems]
    if not session.catalog.tableExists(full_name(made)):
        return {"said": said, "ids": None}
    described = session.sql(f"describe table extended {full_name(made)}").collect()
    place = next(row[1] for row in described if row[0] == "Location")
    ids = [rendering.value(row["entityId"]) for row in session.table(full_name(made)).collect()]
    return {"said": said, "ids": ids, "location": place, "folder": destination.folder}


def of_mode(session: SparkSession, mode: str) -> dict[str, Any]:
    section = {**SECTION, "file_format": mode}
    settings, used = Settings(root=ROOT, ngsi=section), parameters(**section)
    target = open_target(used, FS, ROOT, rpc=rpc_files(session))
    known: dict[str, tuple[str, ...]] = {}
    said = []
    for number, sent in enumerate(batches(mode)):
        records = recorded(sent, used)
        destination = records[0].placed.destination
        PendingTables(FS, hive_folder(settings)).note([destination])
        made = file_additions(records, used, known, part=f"{number:020d}")
        known |= made.columns
        for path, data in made.files.items():
            target.apply(FileAppend.of(path, target.length(path), data), memoryview(data))
        for destinations in ([], [destination]):
            report = ensure_tables(session, settings, FS, destinations, known, used, target)
            said.append([report.made, report.extended, report.waiting, *report.problems])
    table = full_name(spark_table(destination, used, known, target))
    session.catalog.refreshTable(table)
    rows = [json.loads(row) for row in session.table(table).toJSON().collect()]
    target.close()
    return {"table": table, "said": said, "rows": rows}


main()
