"""Reads a published table with DuckDB's own extension for Iceberg; run by the Python of an environment of its own.

Prints, as JSON, of each snapshot the ids of its events, and some columns of the newest one. A table in a bucket is read
by the extension httpfs, from the server and with the keys that the environment names.
"""

import json
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import duckdb_extension_avro
import duckdb_extension_httpfs
import duckdb_extension_iceberg


def main(location: str) -> None:
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_httpfs, duckdb_extension_iceberg):
        [extension] = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"load '{extension}'")
    if location.startswith("s3://"):
        endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"]).netloc
        connection.execute(
            f"create secret (type s3, key_id '{os.environ['AWS_ACCESS_KEY_ID']}', secret "
            f"'{os.environ['AWS_SECRET_ACCESS_KEY']}', endpoint '{endpoint}', url_style 'path', use_ssl false)"
        )

    def text(name: str) -> str:
        found = connection.execute("select content from read_text(?)", [f"{location}/metadata/{name}"]).fetchone()
        return str(found[0]) if found else ""

    table = f"iceberg_scan('{location.replace(chr(39), chr(39) * 2)}'"
    metadata = json.loads(text(f"v{text('version-hint.text')}.metadata.json"))
    snapshots = {}
    for each in metadata["snapshots"]:
        query = f"select event_id from {table}, snapshot_from_id = {each['snapshot-id']}::ubigint) order by 1"
        rows = connection.execute(query).fetchall()
        snapshots[each["summary"]["custody.revision"]] = [row[0] for row in rows]
    columns = "writer, event_id, event_type, epoch_ms(event_time), flowfile_uuid, file_size, parent_uuids"
    rows = connection.execute(f"select {columns} from {table}) order by event_id").fetchall()
    one = connection.execute(f"select count(*) from {table}) where event_id = 5").fetchall()
    sys.stdout.write(json.dumps({"snapshots": snapshots, "rows": rows, "one": one[0][0]}))


if __name__ == "__main__":
    main(sys.argv[1])
