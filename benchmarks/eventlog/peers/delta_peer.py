"""Delta Lake through deltalake: writes the events of each of custody's logs as one append, zstd of custody's level.

Runs in the environment of the peers. The events are read and cast before the clock starts; Delta knows no times in
milliseconds. What it writes is not synced, and nothing is merged from journals or checked by ids.
"""

from __future__ import annotations

import shutil
import time
from importlib.metadata import version

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import WriterProperties, write_deltalake

from benchmarks.eventlog.measuring import Task, bytes_of, rates, tell

_MICROSECONDS = pa.timestamp("us", tz="UTC")


def _cast(table: pa.Table) -> pa.Table:
    fields = [field.with_type(_MICROSECONDS) if pa.types.is_timestamp(field.type) else field for field in table.schema]
    return table.cast(pa.schema(fields)).combine_chunks()


def main(task: Task) -> None:
    """Write, count bytes, remove."""
    folder = task.folder("delta")
    properties = WriterProperties(compression="ZSTD", compression_level=1)
    events, seconds, cpu = 0, 0.0, 0.0
    for path in task.extra["logs"]:
        table = _cast(pq.ParquetFile(path).read())
        start, start_cpu = time.perf_counter(), time.process_time()
        write_deltalake(str(folder), table, mode="append", writer_properties=properties)
        seconds, cpu = seconds + time.perf_counter() - start, cpu + time.process_time() - start_cpu
        events += table.num_rows
    sizes = {
        "data": bytes_of(folder.rglob("*.parquet")),
        "log": bytes_of((folder / "_delta_log").glob("*.json")),
    }
    shutil.rmtree(folder)
    tell({"version": version("deltalake"), "events": events, "bytes": sizes, "write": rates(events, seconds, cpu)})


if __name__ == "__main__":
    main(Task.given())
