"""Reads a table in a bucket with Apache Iceberg's own reader in Spark; run by the Python of an environment of its own.

Arguments: the jars with commas between them, the table's newest metadata. The environment names server and keys. The
table is registered by its metadata in a catalog of this session, as one registers it in Trino. Prints JSON.
"""

import json
import os
import sys
from typing import Any

from pyspark.sql import SparkSession

TABLE = "store.custody.events"
COLUMNS = ["writer", "event_id", "event_type", "unix_millis(event_time)", "flowfile_uuid", "file_size", "parent_uuids"]


def main(jars: str, metadata: str) -> None:
    builder: Any = SparkSession.builder
    catalog = "spark.sql.catalog.store"
    settings = {
        "spark.master": "local[2]",
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.catalog-impl": "org.apache.iceberg.inmemory.InMemoryCatalog",
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        f"{catalog}.s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        f"{catalog}.s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        f"{catalog}.s3.path-style-access": "true",
        f"{catalog}.client.region": os.environ["AWS_REGION"],
        "spark.sql.session.timeZone": "UTC",
    }
    session = builder.config(map=settings).getOrCreate()
    session.sql("create namespace store.custody")
    session.sql(f"call store.system.register_table('custody.events', '{metadata}')")
    listed = session.sql(f"select snapshot_id, summary from {TABLE}.snapshots").collect()

    def ids(snapshot: int) -> list[int]:
        frame = session.read.option("snapshot-id", str(snapshot)).table(TABLE)
        return sorted(row.event_id for row in frame.select("event_id").collect())

    rows = session.table(TABLE).selectExpr(*COLUMNS).orderBy("event_id").collect()
    answer = {
        "snapshots": {each.summary["custody.revision"]: ids(each.snapshot_id) for each in listed},
        "rows": [list(row) for row in rows],
    }
    sys.stdout.write(json.dumps(answer))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
