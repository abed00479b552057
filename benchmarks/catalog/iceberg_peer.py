"""Apache Iceberg through pyiceberg, catalog in SQLite: one existing file added a commit."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.catalog.peer import answer, best_ms, bytes_below, peak_rss_mib, timed


def main(root: Path, lengths: list[int], times: int) -> None:
    """Measure commits at log lengths, opening, bytes."""
    folder = root / "iceberg"
    folder.mkdir(parents=True)
    data = pa.table({"event_id": pa.array([1], pa.int64()), "type": ["SEND"], "time": pa.array([1], pa.int64())})
    pq.write_table(data, folder / "one.parquet")
    catalog = SqlCatalog("bench", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/warehouse")
    catalog.create_namespace("bench")
    table = catalog.create_table("bench.events", schema=data.schema)
    number = 0
    commits, opens = {}, {}

    def work() -> None:
        nonlocal number
        number += 1
        path = folder / f"file-{number}.parquet"
        shutil.copy(folder / "one.parquet", path)
        table.add_files([str(path)], check_duplicate_files=False)

    for length in lengths:
        while number < length:
            work()
        commits[str(length)] = timed(work, max(5, times if length < 100 else times // 10))
        sys.stderr.write(f"pyiceberg, log length {length}: {commits[str(length)]}\n")
        if length:
            files, total = bytes_below(folder)
            opens[str(length)] = {
                "open_ms": best_ms(lambda: catalog.load_table("bench.events").current_snapshot()),
                "plan_ms": best_ms(lambda: list(catalog.load_table("bench.events").scan().plan_files()), 2),
                "metadata_files": files,
                "metadata_bytes": total,
            }
            sys.stderr.write(f"pyiceberg, opening {length}: {opens[str(length)]}\n")
    answer({"commits": commits, "opening": opens, "peak_rss_mib": peak_rss_mib()})


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(number) for number in sys.argv[2].split(",")], int(sys.argv[3]))
