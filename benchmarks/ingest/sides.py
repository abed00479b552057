"""One side of the benchmark in a process of its own: reads all files of a folder once, and prints what it took."""

from __future__ import annotations

import io
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import duckdb
import fastavro
import msgspec
import pyarrow as pa
import pyarrow.json as pj
import pyarrow.parquet as pq

from benchmarks.catalog.peer import peak_rss_mib
from custody.capture import event_reader
from custody.freed_memory import keep_freed_memory
from custody.repository import Repository


def custody(files: list[Path], folder: Path) -> None:
    """Ingest as the command does."""
    keep_freed_memory()
    repository = Repository.create(folder / "repository")
    with repository.ingest() as work:
        for path in files:
            report = work.file(path)
            assert report.stored == report.read > 0


def one_by_one(files: list[Path], folder: Path) -> None:
    """Ingest with an object for each event."""
    with patch.object(event_reader, "_short_array", return_value=None):
        custody(files, folder)


def duckdb_side(files: list[Path], folder: Path) -> None:
    """Read into columns and write Parquet, with one thread."""
    database = duckdb.connect()
    database.execute("set threads = 1")
    database.execute("set enable_progress_bar = false")
    for number, path in enumerate(files):
        database.execute(f"copy (from read_json('{path}')) to '{folder / str(number)}.parquet' (compression zstd)")


def pyarrow_side(files: list[Path], folder: Path) -> None:
    """Read into columns and write Parquet, with one thread; it reads an event a line, so lines are made before."""
    pa.set_cpu_count(1)
    options = pj.ReadOptions(use_threads=False, block_size=1 << 24)
    for number, path in enumerate(files):
        lines = path.read_bytes()
        if lines.startswith(b"["):
            lines = b"\n".join(bytes(raw) for raw in msgspec.json.decode(lines, type=list[msgspec.Raw]))
        table = pj.read_json(io.BytesIO(lines), read_options=options)
        pq.write_table(table, folder / f"{number}.parquet", compression="zstd")


def parser_alone(files: list[Path], _: Path) -> None:
    """Parse into Python's own objects."""
    decoder = msgspec.json.Decoder()
    for path in files:
        data = path.read_bytes()
        if data.startswith(b"["):
            decoder.decode(data)
        else:
            decoder.decode_lines(data)


def fastavro_alone(files: list[Path], _: Path) -> None:
    """Read Avro into Python's own objects."""
    for path in files:
        with path.open("rb") as file:
            for _record in fastavro.reader(file):
                pass


SIDES: dict[str, Callable[[list[Path], Path], None]] = {
    "custody": custody,
    "custody, one by one": one_by_one,
    "DuckDB": duckdb_side,
    "pyarrow": pyarrow_side,
    "msgspec, untyped": parser_alone,
    "fastavro": fastavro_alone,
}


def main() -> None:
    """Run the side that the first argument names."""
    name, inputs, folder = sys.argv[1:]
    files = sorted(Path(inputs).iterdir())
    cpu, wall = time.process_time(), time.perf_counter()
    SIDES[name](files, Path(folder))
    taken = {"cpu": time.process_time() - cpu, "wall": time.perf_counter() - wall}
    sys.stdout.write(json.dumps({**taken, "memory": peak_rss_mib() * (1 << 20)}))


if __name__ == "__main__":
    main()
