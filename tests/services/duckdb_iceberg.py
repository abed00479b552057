"""Reads a published table with DuckDB's own extension for Iceberg; run by the Python of an environment of its own.

Prints, as JSON, of each snapshot the ids of its events, and some columns of the newest one.
"""

import json
import sys
from pathlib import Path

import duckdb
import duckdb_extension_avro
import duckdb_extension_iceberg


def main(location: str) -> None:
    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        [extension] = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"load '{extension}'")
    table = f"iceberg_scan('{location.replace(chr(39), chr(39) * 2)}'"
    hint = Path(location, "metadata", "version-hint.text").read_text()
    metadata = json.loads(Path(location, "metadata", f"v{hint}.metadata.json").read_bytes())
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
