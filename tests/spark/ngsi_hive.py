"""A job that writes batches of notifications to a target and makes their Hive tables; prints what Spark reads, as JSON.

Usage: spark-submit ngsi_hive.py REPOSITORY SETTINGS, with the settings of the section ngsi as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from custody.config import Settings
from custody.ngsi.backends import open_target
from custody.ngsi.contents import contents
from custody.ngsi.hive import full_name
from custody.ngsi.staged import part
from custody.ngsi.tables import Wanted, spark_table
from custody.spark.hdfs import rpc_files
from custody.spark.hive import ensure_tables, hive_folder, session_options
from custody.vfs import PosixFileSystem
from tests.spark.test_ngsi_tables import MODES, batches
from tests.unit.ngsi.notified import parameters, recorded

FS = PosixFileSystem()
ROOT, SECTION = Path(sys.argv[1]), json.loads(sys.argv[2])


def main() -> None:
    plain = Settings(root=ROOT, ngsi=SECTION)
    session = SparkSession.builder.appName("ngsi-hive").config(map=dict(session_options(plain))).getOrCreate()
    found = {mode: of_mode(session, mode) for mode in MODES}
    sys.stdout.write(json.dumps(found) + "\n")
    session.stop()


def of_mode(session: SparkSession, mode: str) -> dict[str, Any]:
    section = {**SECTION, "file_format": mode}
    settings, used = Settings(root=ROOT, ngsi=section), parameters(**section)
    target = open_target(used, FS, ROOT, rpc=rpc_files(session))
    known: dict[str, tuple[str, ...]] = {}
    said = []
    for number, body in enumerate(batches(mode)):
        records = recorded(body, used)
        destination = records[0].placed.destination
        Wanted(FS, hive_folder(settings)).note([destination])
        made = contents(records, used, known, part=f"{number:020d}")
        known |= made.columns
        for path, data in made.files.items():
            target.apply(part(path, target.length(path), data), memoryview(data))
        for destinations in ([], [destination]):
            report = ensure_tables(session, settings, FS, destinations, known, used, target)
            said.append([report.made, report.extended, report.waiting, *report.problems])
    table = full_name(spark_table(destination, used, known, target))
    session.catalog.refreshTable(table)
    rows = [json.loads(row) for row in session.table(table).toJSON().collect()]
    target.close()
    return {"table": table, "said": said, "rows": rows}


main()
