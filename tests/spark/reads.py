"""A driver of a user's own: reads a repository by custody's formats on a cluster, and prints what they gave as JSON.

Arguments: the address of the master, the zip of the library, the repository's folder, a folder for the stream's
checkpoint, then the reads as JSON: name to the options of one, `format` among them; `stream` is followed to its end.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from custody.spark.event_source import register_events
from custody.spark.session import executor_variables
from custody.spark.software_source import register_software

COLUMNS = ("event_id", "writer", "event_type", "unix_millis(event_time)", "flowfile_uuid", "updated_attributes")


def main(master: str, library: str, root: str, checkpoint: str, reads: str) -> None:
    """Read."""
    builder: Any = SparkSession.builder
    settings = {"spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.sql.shuffle.partitions": "1"}
    session = builder.master(master).config(map={**settings, **executor_variables(["AWS_*"])}).getOrCreate()
    # Before the formats are registered: what is known of them has the library with it from then on.
    session.sparkContext.addPyFile(library)
    register_events(session)
    register_software(session)
    found = {name: read(session, root, checkpoint, options) for name, options in json.loads(reads).items()}
    sys.stdout.write(json.dumps(found) + "\n")
    session.stop()


def read(session: SparkSession, root: str, checkpoint: str, options: dict[str, str]) -> list[Any]:
    """Rows of a read, sorted."""
    kind = options.pop("format")
    if kind != "stream":
        return rows(session.read.format(kind).option("repository", root).options(**options).load())
    batches: list[list[Any]] = []
    frame = session.readStream.format("custody").option("repository", root).options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append(rows(batch)))
    writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    return batches


def rows(frame: DataFrame) -> list[Any]:
    """What a frame has, as JSON can say it."""
    columns = COLUMNS if "event_id" in frame.columns else ("id", "type", "hex(sha1_git)")
    return sorted((list(row) for row in frame.selectExpr(*columns).collect()), key=lambda row: row[0])


if __name__ == "__main__":
    main(*sys.argv[1:])
