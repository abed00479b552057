"""Reading measured: `python -m tests.benchmarks.eventlog.reading FOLDER --events 1000000`.

FOLDER gets a repository of live logs without an index, once; later runs use it again. Cold means: a new Repository,
and the system was asked to forget the pages of all logs. Warm means: the same Repository has read before.
`parquet alone` reads the same block by Parquet's footer, as pyarrow does it, without checks of ours.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from custody.catalog import Action, AddFile
from custody.eventlog import EventLog, LogOptions, log_metadata, write_log
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.benchmarks.eventlog.bulk import tables

_FS = PosixFileSystem()


def make(root: Path, events: int, log_events: int) -> None:
    """Make a repository whose logs are live."""
    workspace = Repository.create(root).workspace()
    held: list[pa.Table] = []
    for table in tables(events):
        held.append(table)
        if sum(part.num_rows for part in held) >= log_events:
            workspace.catalog.commit([_add(root, held)])
            held = []
    if held:
        workspace.catalog.commit([_add(root, held)])


def _add(root: Path, parts: list[pa.Table]) -> Action:
    workspace = Repository.open(root).workspace()
    table = pa.concat_tables(parts)
    metadata = log_metadata(table, "main", "provenance")
    files = workspace.files(metadata)
    made = write_log(_FS, files.log, table, metadata, LogOptions())
    print(f"log {metadata.first_event_id}: {made.blocks} blocks, {made.size_bytes} bytes, {files.toc.stat().st_size} toc")  # noqa: T201
    return Action(
        add_file=AddFile(
            path=files.relative_log,
            size_bytes=made.size_bytes,
            rows=table.num_rows,
            sha256=made.sha256,
            table="events",
            partition=metadata.partition,
            schema_version=1,
            first_event_id=metadata.first_event_id,
            last_event_id=metadata.last_event_id,
            first_event_time_ms=metadata.first_event_time_ms,
            last_event_time_ms=metadata.last_event_time_ms,
            toc_path=files.relative_toc,
            toc_sha256=made.toc_sha256,
            groups=metadata.groups,
        )
    )


def forget(root: Path) -> None:
    """Ask the system to drop the pages of all logs."""
    for path in (*root.rglob("*.parquet"), *root.rglob("*.toc")):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def timed(name: str, questions: Iterator[Callable[[], object]]) -> None:
    """Print the times of some questions; what comes before each `next` is not timed."""
    spent = []
    for ask in questions:
        start = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - start) * 1000)
    p50, p99 = np.percentile(spent, [50, 99])
    print(f"{name:44s} p50 {p50:8.3f} ms  p99 {p99:8.3f} ms  n {len(spent)}")  # noqa: T201


def rate(name: str, count: Callable[[], int]) -> None:
    """Print events per second and per second of CPU."""
    start, cpu = time.perf_counter(), time.process_time()
    events = count()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{name:44s} {events / wall:12,.0f} events/s {events / cpu:12,.0f} events/s of CPU")  # noqa: T201


@click.command()
@click.argument("root", type=click.Path(path_type=Path))
@click.option("--events", default=1_000_000)
@click.option("--log-events", default=200_000)
@click.option("--reads", default=400)
def main(root: Path, events: int, log_events: int, reads: int) -> None:
    """Measure."""
    if not root.exists():
        make(root, events, log_events)
    ids = random.Random(7)  # noqa: S311 - repeatable, not secret

    def fresh(drop: bool) -> Iterator[Callable[[], object]]:
        for _ in range(reads // 4):
            if drop:
                forget(root)
            wanted = ids.randrange(events)
            yield lambda wanted=wanted: Repository.open(root).get(wanted)  # type: ignore[misc]

    def plain(drop: bool) -> Iterator[Callable[[], object]]:
        logs = [(EventLog(_FS, path), path) for path in sorted(root.rglob("*.parquet"))]
        for _ in range(reads // 4):
            log, path = ids.choice(logs)
            number = ids.randrange(len(log.toc.blocks))
            if drop:
                del log
                forget(root)
            yield lambda path=path, number=number: _plain(path, number)  # type: ignore[misc]

    def alone(drop: bool) -> Iterator[Callable[[], object]]:
        paths = sorted(root.rglob("*.parquet"))
        for _ in range(reads // 4):
            path = ids.choice(paths)
            number = ids.randrange(len(EventLog(_FS, path).toc.blocks))
            if drop:
                forget(root)
            yield lambda path=path, number=number: EventLog(_FS, path).block(number)  # type: ignore[misc]

    for drop, name in ((True, "cold"), (False, "cold, pages in memory")):
        timed(f"{name}: Repository.open + get", fresh(drop))
        timed(f"{name}: one block, by the .toc", alone(drop))
        timed(f"{name}: one block, parquet alone", plain(drop))
    repository = Repository.open(root)
    repository.get(0)
    timed("warm, any event of all", ((lambda n=ids.randrange(events): repository.get(n)) for _ in range(reads * 5)))
    near = [ids.randrange(events) for _ in range(50)]
    for event_id in near:
        repository.get(event_id)
    timed("warm, block in the cache", ((lambda n=ids.choice(near): repository.get(n)) for _ in range(reads * 5)))
    many = [[ids.randrange(events) for _ in range(1000)] for _ in range(5)]
    timed("warm, 1000 events at random", ((lambda w=w: repository.get_many(w)) for w in many))
    rate("in order, as columns", lambda: sum(table.num_rows for table in repository.events(0, events).tables()))
    cores = pa.cpu_count()
    pa.set_cpu_count(1)
    rate("in order, as columns, one thread", lambda: sum(t.num_rows for t in repository.events(0, events).tables()))
    pa.set_cpu_count(cores)
    rate("in order, as objects", lambda: sum(1 for _ in repository.events(0, min(events, 200_000))))


def _plain(path: Path, number: int) -> object:
    with path.open("rb") as file:
        return pq.ParquetFile(file, page_checksum_verification=True).read_row_group(number)


if __name__ == "__main__":
    main()
