"""Measures how event logs and staging files may be encoded: `python -m benchmarks.eventlog.encodings`.

Prints Markdown tables. All encodings get the blocks of the chosen one, except where it says otherwise. Times are CPU
time of one core; each figure is the median of some rounds. A point read is one block of all columns, decoded with its
checksums verified.
"""

from __future__ import annotations

import io
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.eventlog.bulk import tables
from custody.eventlog import LogOptions, row_bytes
from custody.eventlog.blocks import cut, encoded_bytes
from custody.eventlog.log_writer import DICTIONARY, ENCODINGS, SHARES
from custody.vfs import PosixFileSystem

_NUMBERS = ("event_id", "event_time", "source_ordinal")
_ALL_STATISTICS = [
    *("event_id", "event_type", "event_time", "component_id", "component_type", "flowfile_uuid", "file_size"),
    *("lineage_start_date", "source_node", "source_ordinal"),
]
_BATCH_ROWS = 30_000

Options = Mapping[str, Any]


def candidates() -> Iterator[tuple[str, Options, int]]:
    """Yield (what it is, options of the Parquet writer, block bytes): one thing is changed at a time."""
    chosen = LogOptions().parquet()
    plain = {**chosen, "use_dictionary": False, "column_encoding": None}
    numbers = {name: ENCODINGS[name] for name in _NUMBERS}
    lengths = {name: kind for name, kind in ENCODINGS.items() if kind == "DELTA_LENGTH_BYTE_ARRAY"}
    mib = 1 << 20
    yield "chosen", chosen, mib
    yield "a dictionary for every column", {**plain, "use_dictionary": True}, mib
    yield "all plain", plain, mib
    yield "dictionaries for columns of few values", {**plain, "use_dictionary": list(DICTIONARY)}, mib
    some = {**plain, "use_dictionary": list(DICTIONARY)}
    yield "… and ids and times as differences", {**some, "column_encoding": numbers}, mib
    yield "… and uuids with lengths apart", {**some, "column_encoding": {**numbers, **lengths}}, mib
    yield "… and addresses by their common beginnings: chosen", {**some, "column_encoding": dict(ENCODINGS)}, mib
    values = [f"{name}_attributes.key_value.value" for name in ("previous", "updated")]
    yield "chosen, and dictionaries for values of attributes", {**chosen, "use_dictionary": [*DICTIONARY, *values]}, mib
    yield "bounds for ten columns", {**chosen, "write_statistics": _ALL_STATISTICS}, mib
    yield "no bounds", {**chosen, "write_statistics": False}, mib
    yield "no Bloom filter", {**chosen, "bloom_filter_options": None}, mib
    yield "no page checksums", {**chosen, "write_page_checksum": False}, mib
    yield "data page version 2", {**chosen, "data_page_version": "2.0"}, mib
    for level in (3, 6, 9, 15):
        yield f"zstd level {level}", {**chosen, "compression_level": level}, mib
    for codec in ("gzip", "snappy", "lz4", "none"):
        yield codec, {**chosen, "compression": codec}, mib
    for size in (128 << 10, 256 << 10, 512 << 10, 2 << 20, 4 << 20):
        yield f"blocks of {size >> 10} KiB", chosen, size


def cpu_seconds(work: Callable[[], object], rounds: int) -> float:
    """Return the median CPU time of some rounds."""
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        seconds.append(time.process_time() - started)
    return statistics.median(seconds)


def write(events: pa.Table, options: Options, blocks: list[tuple[int, int]]) -> bytes:
    """Return the bytes of a log."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, events.schema, **options) as writer:
        for start, rows in blocks:
            writer.write_table(events.slice(start, rows), row_group_size=rows)
    return sink.getvalue()


def logs(events: pa.Table, rounds: int) -> Iterator[str]:
    """Yield the rows of the table of event logs."""
    sizes = encoded_bytes(events, SHARES)
    yield "| encoding | bytes an event | footer bytes a block | events/s written | ms a point read |"
    yield "| --- | --- | --- | --- | --- |"
    for name, options, block_bytes in candidates():
        blocks = cut(sizes, block_bytes)
        data = write(events, options, blocks)
        seconds = cpu_seconds(lambda options=options, blocks=blocks: write(events, options, blocks), rounds)  # type: ignore[misc]
        footer = int.from_bytes(data[-8:-4], "little") / len(blocks)
        log = pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True)
        reads = [
            cpu_seconds(lambda log=log, n=n: log.read_row_group(n, use_threads=False), 1)  # type: ignore[misc]
            for n in range(0, len(blocks), max(len(blocks) // 40, 1))
        ]
        size, speed = len(data) / events.num_rows, events.num_rows / seconds
        yield f"| {name} | {size:.1f} | {footer:.0f} | {speed:,.0f} | {1000 * statistics.median(reads):.2f} |"


def staging(events: pa.Table, rounds: int, folder: Path) -> Iterator[str]:
    """Yield the rows of the table of staging files: written to a real file and synced."""
    batches = [events.slice(start, _BATCH_ROWS).combine_chunks() for start in range(0, events.num_rows, _BATCH_ROWS)]
    yield "| codec of staging | bytes an event | events/s of CPU written | by the clock, synced | events/s read |"
    yield "| --- | --- | --- | --- | --- |"
    path = folder / "staging.arrow"

    def store(codec: str | None) -> None:
        path.unlink(missing_ok=True)
        options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
        with PosixFileSystem().create(path) as file:
            with pa.ipc.new_stream(file, events.schema, options=options) as writer:
                for batch in batches:
                    writer.write_table(batch)
            file.sync()

    def load() -> int:
        with pa.memory_map(str(path)) as source, pa.ipc.open_stream(source) as reader:
            return sum(int(row_bytes(pa.Table.from_batches([batch])).sum()) for batch in reader)

    for codec in (None, "lz4", "zstd"):
        started = time.perf_counter()
        written = cpu_seconds(lambda codec=codec: store(codec), rounds)  # type: ignore[misc]
        clock = (time.perf_counter() - started) / rounds
        size = path.stat().st_size / events.num_rows
        speeds = (events.num_rows / seconds for seconds in (written, clock, cpu_seconds(load, rounds)))
        yield f"| {codec or 'none'} | {size:.0f} | {' | '.join(f'{speed:,.0f}' for speed in speeds)} |"


@click.command()
@click.option("--events", type=click.IntRange(min=1000), default=200_000, show_default=True)
@click.option("--rounds", type=click.IntRange(min=1), default=3, show_default=True)
def main(events: int, rounds: int) -> None:
    """Print what each encoding costs."""
    pa.set_cpu_count(1)
    table = pa.concat_tables(tables(events)).combine_chunks()
    for line in logs(table, rounds):
        click.echo(line)
    click.echo()
    with tempfile.TemporaryDirectory() as folder:
        for line in staging(table, rounds, Path(folder)):
            click.echo(line)


if __name__ == "__main__":
    main()
