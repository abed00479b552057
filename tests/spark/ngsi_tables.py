"""A job of a user's own: makes Hive tables with the statements it is given and reads them. Prints one JSON line."""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

folder = Path(sys.argv[1])
session = (
    SparkSession.builder.appName("ngsi-tables")
    .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
    .config("spark.hadoop.javax.jdo.option.ConnectionURL", f"jdbc:derby:;databaseName={folder}/metastore;create=true")
    .enableHiveSupport()
    .getOrCreate()
)
found = {}
for name, asked in json.loads((folder / "asked.json").read_text()).items():
    for statement in asked["statements"]:
        session.sql(statement)
    rows = session.table(asked["table"]).toJSON().collect()
    found[name] = [json.loads(row) for row in rows]
sys.stdout.write(json.dumps(found) + "\n")
session.stop()
