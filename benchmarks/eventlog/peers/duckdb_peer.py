"""DuckDB on custody's own Parquet files: by `event_id = ?`, and all rows to Arrow.

It gets what helps it: metadata of the files kept between queries, its own cache of what it read, all cores for single
reads. Reading in order uses one thread, as custody's does.
"""

from __future__ import annotations

import duckdb
import pyarrow as pa

from benchmarks.eventlog.measuring import Task, forget, pace, points, tell, warm
from benchmarks.eventlog.peers.custody_peer import logs

_ROWS = 10_000


def main(task: Task) -> None:
    """Measure."""
    files = logs(task)
    names = ", ".join(f"'{path}'" for path in files)
    connection = duckdb.connect()

    def connect() -> None:
        nonlocal connection
        connection.close()
        connection = duckdb.connect()
        connection.execute("SET parquet_metadata_cache = true")
        connection.execute(f"CREATE VIEW events AS FROM read_parquet([{names}])")

    def ask(event_id: int) -> object:
        # As Arrow: Python values of times with a zone would need a package more, and take longer.
        rows = connection.execute("SELECT * FROM events WHERE event_id = ?", [event_id]).to_arrow_table()
        assert isinstance(rows, pa.Table)
        return rows if rows.num_rows else None

    def cold() -> None:
        connection.close()
        forget(files, task)

    def anew(event_id: int) -> object:
        connect()
        return ask(event_id)

    def in_order() -> int:
        reader = connection.execute("SELECT * FROM events").to_arrow_reader(_ROWS)
        assert isinstance(reader, pa.RecordBatchReader)
        return sum(batch.num_rows for batch in reader)

    anew(0)
    found = {"cold": points(anew, task.ids(task.cold_reads, 7), cold)}
    connect()
    found["warm"] = warm(ask, task)
    connection.execute("SET threads = 1")
    arrow = pace(in_order)
    assert arrow["events"] == task.events, f"read {arrow['events']} of {task.events} events"
    tell({"version": duckdb.__version__, "points": found, "in_order": {"arrow": arrow}})


if __name__ == "__main__":
    main(Task.given())
