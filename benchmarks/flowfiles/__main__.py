"""Commits a second of the FlowFile repository beside SQLite (WAL, synchronous=FULL), with the same durability.

Each FlowFile makes three commits: it is received (10 attributes, 1 KB of content), gets an attribute, and is
transferred to another queue. The sides run in turns; the medians are told, with CPU seconds and syncs.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from unittest.mock import patch

import click

from custody.flow import Component
from custody.repository import Repository

ATTRIBUTES = {f"attribute{number}": f"value {number}" for number in range(10)}
CONTENT = bytes(range(256)) * 4
COMPONENT = Component(id="benchmark", type="Benchmark")
Figures = dict[str, float]


def _measure(threads: int, flowfiles: int, work: Callable[[int], None]) -> Figures:
    """Let threads do the work; `work` gets the number of FlowFiles of one thread."""
    syncs, lock = [0], threading.Lock()

    def counted(sync: Callable[[int], None]) -> Callable[[int], None]:
        def call(descriptor: int) -> None:
            with lock:
                syncs[0] += 1
            sync(descriptor)

        return call

    share = max(1, flowfiles // threads)
    with patch("os.fsync", counted(os.fsync)), patch("os.fdatasync", counted(os.fdatasync)):
        wall, cpu = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(work, [share] * threads))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    commits = share * threads * 3
    return {"commits_per_second": commits / wall, "cpu_seconds": cpu, "wall_seconds": wall, "syncs": syncs[0] / commits}


def run_custody(folder: Path, threads: int, flowfiles: int) -> Figures:
    """Measure the FlowFile repository, contents and provenance included."""
    with Repository.create(folder).flowfiles() as flow:
        for number in range(threads):
            for name in "abc":
                flow.connect(f"{name}{number}")
        free = iter(range(threads))

        def work(count: int) -> None:
            number = next(free)
            for _ in range(count):
                with flow.session(COMPONENT) as session:
                    new = session.create(ATTRIBUTES)
                    new = session.write_bytes(new, CONTENT)
                    session.receive(new, "http://localhost/benchmark")
                    session.transfer(new, f"a{number}")
                for source, target in ("ab", "bc"):
                    with flow.session(COMPONENT) as session:
                        flowfile = session.get(f"{source}{number}")
                        if flowfile is None:
                            raise RuntimeError(f"queue {source}{number} is empty: a FlowFile is lost")
                        if source == "a":
                            flowfile = session.put_attribute(flowfile, "checked", "yes")
                        session.transfer(flowfile, f"{target}{number}")

        return _measure(threads, flowfiles, work)


def run_sqlite(folder: Path, threads: int, flowfiles: int) -> Figures:
    """Measure a table of FlowFiles and one of events, contents as files that are synced before the commit."""
    folder.mkdir()

    def connect() -> sqlite3.Connection:
        connection = sqlite3.connect(folder / "db", timeout=60, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    with closing(connect()) as connection:
        connection.execute("CREATE TABLE flowfile (uuid TEXT PRIMARY KEY, queue TEXT, attributes TEXT, claim TEXT)")
        connection.execute("CREATE TABLE event (id INTEGER PRIMARY KEY, uuid TEXT, type TEXT, attributes TEXT)")

    def work(count: int) -> None:
        with closing(connect()) as connection:
            for _ in range(count):
                name, attributes = str(uuid.uuid4()), json.dumps(ATTRIBUTES)
                with (folder / name).open("wb") as file:
                    file.write(CONTENT)
                    file.flush()
                    os.fsync(file.fileno())
                for kind, queue in (("RECEIVE", "a"), ("ATTRIBUTES_MODIFIED", "b"), ("ROUTE", "c")):
                    connection.execute("BEGIN IMMEDIATE")
                    connection.execute("REPLACE INTO flowfile VALUES (?, ?, ?, ?)", (name, queue, attributes, name))
                    connection.execute("INSERT INTO event VALUES (NULL, ?, ?, ?)", (name, kind, attributes))
                    connection.execute("COMMIT")

    return _measure(threads, flowfiles, work)


@click.command()
@click.option("--runs", default=5, show_default=True)
@click.option("--flowfiles", default=1000, show_default=True, help="How many FlowFiles each run makes.")
@click.option("--folder", type=click.Path(path_type=Path), help="Where to write; a temporary folder by default.")
def main(runs: int, flowfiles: int, folder: Path | None) -> None:
    """Print the medians as JSON."""
    readings: dict[str, list[Figures]] = {}
    for _ in range(runs):
        for threads in (1, 16):
            for name, run in (("custody", run_custody), ("sqlite", run_sqlite)):
                home = Path(tempfile.mkdtemp(dir=folder))
                try:
                    readings.setdefault(f"{name} {threads}", []).append(run(home / "repository", threads, flowfiles))
                finally:
                    shutil.rmtree(home)
    click.echo(
        json.dumps(
            {
                name: {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}
                for name, found in readings.items()
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
