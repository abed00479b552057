"""Reads a table in a bucket with Apache Iceberg's own reader in Spark; run by the Python of an environment of its own.

Arguments: the jars with commas between them, where the table's newest metadata lies, and a copy of it. The environment
names server and keys. Spark finds the table by a catalog of Iceberg's REST kind, which this process answers for: as any
catalog in which a table is registered by its metadata, it says where that lies and what is in it. Prints JSON.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

TABLE = "store.custody.events"
COLUMNS = ["writer", "event_id", "event_type", "unix_millis(event_time)", "flowfile_uuid", "file_size", "parent_uuids"]


def catalog_of(metadata: str, document: Any) -> str:
    """Answer for a catalog with one table, on a port of this machine; return its URL."""
    answers = {
        "/v1/config": {"defaults": {}, "overrides": {}},
        "/v1/namespaces/custody": {"namespace": ["custody"], "properties": {}},
        "/v1/namespaces/custody/tables/events": {
            "metadata-location": metadata,
            "metadata": document,
            "config": {},
        },
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found: Any = answers.get(self.path.partition("?")[0])
            missing = {"error": {"message": self.path, "type": "NoSuchTableException", "code": 404}}
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_POST = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_address[1]}"


def main(jars: str, metadata: str, copy: str) -> None:
    document = json.loads(Path(copy).read_bytes())
    builder: Any = SparkSession.builder
    catalog = "spark.sql.catalog.store"
    settings = {
        "spark.master": "local[2]",
        "spark.jars": jars,
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "1",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        f"{catalog}.uri": catalog_of(metadata, document),
        f"{catalog}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{catalog}.s3.endpoint": os.environ["AWS_ENDPOINT_URL"],
        f"{catalog}.s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        f"{catalog}.s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        f"{catalog}.s3.path-style-access": "true",
        f"{catalog}.client.region": os.environ["AWS_REGION"],
        "spark.sql.session.timeZone": "UTC",
    }
    session = builder.config(map=settings).getOrCreate()

    def ids(snapshot: int) -> list[int]:
        frame = session.read.option("versionAsOf", str(snapshot)).table(TABLE)
        return sorted(row.event_id for row in frame.select("event_id").collect())

    rows = session.table(TABLE).selectExpr(*COLUMNS).orderBy("event_id").collect()
    answer = {
        "snapshots": {each["summary"]["custody.revision"]: ids(each["snapshot-id"]) for each in document["snapshots"]},
        "rows": [list(row) for row in rows],
    }
    sys.stdout.write(json.dumps(answer))
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
