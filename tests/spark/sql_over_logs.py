"""A job of a user's own: SQL over the event logs of a repository, with nothing of custody. Prints one JSON line."""

import json
import sys

from pyspark.sql import SparkSession

session = SparkSession.builder.appName("sql-over-logs").getOrCreate()
session.read.parquet(sys.argv[1]).createOrReplaceTempView("events")
uuid = session.sql("SELECT flowfile_uuid FROM events ORDER BY event_id DESC LIMIT 1").first()[0]
# Every column is looked at, so that every encoding is decoded. Maps have no hash: they are texts first.
events = session.table("events")
texts = [f"to_json({name})" if kind.startswith("map") else name for name, kind in events.dtypes]
rows, ids, ordinals, distinct = events.selectExpr(
    "count(*)", "sum(event_id)", "sum(source_ordinal)", f"count(DISTINCT hash({', '.join(texts)}))"
).first()
of_one = session.sql(
    "SELECT event_id FROM events WHERE flowfile_uuid = :uuid ORDER BY 1", args={"uuid": uuid}
).collect()
found = {"rows": rows, "ids": ids, "ordinals": ordinals, "distinct": distinct, "uuid": uuid}
sys.stdout.write(json.dumps({**found, "of_one": [row[0] for row in of_one]}) + "\n")
session.stop()
