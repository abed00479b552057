"""Reading measured: `python -m benchmarks.eventlog.reading FOLDER --events 1000000`.

FOLDER gets a repository of live logs without an index, once; later runs use it again. Cold means: a new Repository,
and the system was asked to forget the pages of all logs. Warm means: the same Repository has read before.
`parquet alone` reads the same block by Parquet's footer, as pyarrow does it, without checks of ours.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.eventlog.bulk import tables
from benchmarks.eventlog.publishing import add_file
from custody.catalog import Action
from custody.eventlog import EventLog, LogOptions, log_metadata, write_log
from custody.repository import Repository
from custody.vfs import PosixFileSystem

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
    log = write_log(_FS, files.log, table, metadata, LogOptions())
    toc_bytes = files.toc.stat().st_size
    print(f"log: {log.blocks} blocks, {log.size_bytes} bytes, {toc_bytes} bytes of .toc")  # noqa: T201
    return add_file(workspace, metadata)


def forget(root: Path) -> None:
    """Ask the system to drop the pages of all logs."""
    for path in (*root.rglob("*.parquet"), *root.rglob("*.toc")):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def timed(name: str, prepare: Callable[[], object], ask: Callable[[], object], times: int) -> None:
    """Print how long `ask` takes; `prepare` comes before each one and is not timed."""
    spent = []
    for _ in range(times):
        prepare()
        start = time.perf_counter()
        ask()
        spent.append((time.perf_counter() - start) * 1000)
    p50, p99 = np.percentile(spent, [50, 99])
    print(f"{name:48s} p50 {p50:8.3f} ms  p99 {p99:8.3f} ms  n {times}")  # noqa: T201


def rate(name: str, count: Callable[[], int]) -> None:
    """Print events per second and per second of CPU."""
    start, cpu = time.perf_counter(), time.process_time()
    events = count()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{name:44s} {events / wall:12,.0f} events/s {events / cpu:12,.0f} events/s of CPU")  # noqa: T201


class Cold:
    """Reads of a process that has read nothing yet."""

    def __init__(self, root: Path, events: int) -> None:
        self._root = root
        self._events = events
        self._ids = random.Random(7)  # noqa: S311 - repeatable, not secret
        self._paths = sorted(root.rglob("*.parquet"))
        self._blocks = [len(EventLog(_FS, path).toc.blocks) for path in self._paths]

    def get(self) -> None:
        """Read one event of the repository."""
        Repository.open(self._root).get(self._ids.randrange(self._events))

    def by_toc(self) -> None:
        """Read one block by the table of contents."""
        path, number = self._choose()
        EventLog(_FS, path).block(number)

    def by_footer(self) -> None:
        """Read one block as pyarrow does it."""
        path, number = self._choose()
        with path.open("rb") as file:
            pq.ParquetFile(file, page_checksum_verification=True).read_row_group(number)

    def _choose(self) -> tuple[Path, int]:
        at = self._ids.randrange(len(self._paths))
        return self._paths[at], self._ids.randrange(self._blocks[at])


@click.command()
@click.argument("root", type=click.Path(path_type=Path))
@click.option("--events", default=1_000_000)
@click.option("--log-events", default=200_000)
@click.option("--reads", default=100)
def main(root: Path, events: int, log_events: int, reads: int) -> None:
    """Measure."""
    if not root.exists():
        make(root, events, log_events)
    cold = Cold(root, events)
    for name, prepare in (("cold", partial(forget, root)), ("cold, pages in memory", lambda: None)):
        timed(f"{name}: Repository.open and get", prepare, cold.get, reads)
        timed(f"{name}: one block by the .toc", prepare, cold.by_toc, reads)
        timed(f"{name}: one block, Parquet alone", prepare, cold.by_footer, reads)
    warm(root, events, reads * 20)
    in_order(root, events)


def warm(root: Path, events: int, reads: int) -> None:
    """Measure a repository that has read before."""
    ids = random.Random(11)  # noqa: S311 - repeatable, not secret
    repository = Repository.open(root)
    repository.get_many(range(0, events, events // 100))
    timed("warm, any event of all", lambda: None, lambda: repository.get(ids.randrange(events)), reads)
    near = [ids.randrange(events) for _ in range(50)]
    repository.get_many(near)
    timed("warm, block in the cache", lambda: None, lambda: repository.get(ids.choice(near)), reads)
    many = partial(ids.sample, range(events), 1000)
    timed("warm, 1000 events at random", lambda: None, lambda: repository.get_many(many()), 5)


def in_order(root: Path, events: int) -> None:
    """Measure reading from the first event on."""
    repository = Repository.open(root)

    def columns() -> int:
        return sum(table.num_rows for table in repository.events(0, events).tables())

    rate("in order, as columns", columns)
    cores = pa.cpu_count()
    pa.set_cpu_count(1)
    rate("in order, as columns, one thread", columns)
    pa.set_cpu_count(cores)
    rate("in order, as objects", lambda: sum(1 for _ in repository.events(0, min(events, 200_000))))


if __name__ == "__main__":
    main()
