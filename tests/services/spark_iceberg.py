"""Reads a published table with Apache Iceberg's own reader in Spark; run by the Python of an environment of its own.

Arguments: the jar, the folder of the store, the table's folder, its newest metadata. Prints what it read as JSON.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

NAME = "main.provenance.iceberg.events"
COLUMNS = ["writer", "event_id", "event_type", "unix_millis(event_time)", "flowfile_uuid", "file_size", "parent_uuids"]


def main(jar: str, store: str, location: str, metadata: str) -> None:
    builder: Any = SparkSession.builder
    settings = {
        "spark.master": "local[2]",
        "spark.jars": jar,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.store": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.store.type": "hadoop",
        "spark.sql.catalog.store.warehouse": store,
        "spark.sql.session.timeZone": "UTC",
    }
    session = builder.config(map=settings).getOrCreate()
    snapshots = json.loads(Path(metadata).read_bytes())["snapshots"]

    def ids(**options: object) -> list[int]:
        reader = session.read.format("iceberg")
        for name, value in options.items():
            reader = reader.option(name.replace("_", "-"), str(value))
        return sorted(row.event_id for row in reader.load(location).select("event_id").collect())

    def count(sql: str) -> int:
        return int(session.sql(f"select count(*) from store.{NAME} {sql}").first()[0])

    frame = session.read.format("iceberg").load(location)
    answer: dict[str, Any] = {
        "snapshots": {each["summary"]["custody.revision"]: ids(versionAsOf=each["snapshot-id"]) for each in snapshots},
        "rows": [list(row) for row in frame.selectExpr(*COLUMNS).orderBy("event_id").collect()],
        "at the third": count(f"timestamp as of timestamp_millis({snapshots[2]['timestamp-ms']})"),
        "some": count("where event_id between 40 and 60"),
        "added by the second": ids(
            start_snapshot_id=snapshots[0]["snapshot-id"], end_snapshot_id=snapshots[1]["snapshot-id"]
        ),
    }
    try:
        session.sql(f"call store.system.expire_snapshots(table => '{NAME}', older_than => timestamp '2099-01-01')")
        answer["expired"] = "yes"
    except Exception as error:  # noqa: BLE001 - whatever Java says is compared
        answer["expired"] = str(error)
    sys.stdout.write(json.dumps(answer))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
