"""Notifications persisted a second: `PYTHONPATH=include python -m benchmarks.ngsi` in the project.

A cell is a batch size and a number of destinations. Notifications are stored as the receiver stores them (what HTTP
costs on top, benchmarks.receiver measures), rolled over, and written by the sink below a folder of the same disk.
In the end every value that was notified is counted in the files; a difference ends with exit code 1.

Beside it the same files are made by calls of the system alone, with one sync of the disk: what no sink can do without.
Nothing is deleted before the last cell, and each cell lies apart from what was deleted before the run. For some minutes
ext4 gives no inode of a deleted file to a new one and looks at all of them, one by one, for each new file and folder: a
run behind another one measures this. Calls of the system alone took three to nine times as long then.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from benchmarks.append.machine import Machine, load_average
from benchmarks.environment import LOCAL, set_apart
from custody.config import Settings
from custody.flow.content import with_content
from custody.lease import Attempt
from custody.ngsi.http_notification import Accepts, Arrival, read_arrival
from custody.ngsi.parameters import Parameters
from custody.ngsi_sink.opening import open_files, open_sink
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.vfs.whole_disk import sync_disk_of
from custody_conformance.end_to_end import FsUri, ScratchDir
from tests.support import run_steps

_ACKNOWLEDGED_TOGETHER = 100
_HEADING = (
    "batch size  destinations  notifications    acks/s  persisted/s  written/s  goes  files  disk/s  syncs saved"
    "  RSS MiB"
)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured; seconds of each phase, sizes in bytes."""

    batch_size: int
    at_once: int
    destinations: int
    notifications: int
    acknowledge_seconds: float
    rollover_seconds: float
    persist_seconds: float
    batches: int
    goes: int
    files: int
    bytes: int
    disk_seconds: float | None
    """Of the same files, new, by calls of the system and one sync; None where it is no disk of this machine."""
    rss_bytes_max: int
    """Of this process, in all cells so far."""

    def __str__(self) -> str:
        whole = self.acknowledge_seconds + self.rollover_seconds + self.persist_seconds
        alone = "" if self.disk_seconds is None else f"{self.files / self.disk_seconds:.0f}"
        return (
            f"{self.batch_size:>10}  {self.destinations:>12}  {self.notifications:>13}  "
            f"{self.notifications / self.acknowledge_seconds:>8.0f}  {self.notifications / whole:>11.0f}  "
            f"{self.notifications / self.persist_seconds:>9.0f}  {self.goes:>4}  {self.files:>5}  {alone:>6}  "
            f"{self.batches - self.goes:>11}  {self.rss_bytes_max / 2**20:>7.0f}"
        )


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--notifications", type=click.IntRange(min=1), default=20_000, help="Of one cell.")
@click.option("--batch-size", "sizes", type=click.IntRange(min=1), multiple=True, default=(1, 100, 10_000))
@click.option("--destinations", "widths", type=click.IntRange(min=1), multiple=True, default=(1, 100, 10_000))
@click.option("--format", "mode", default="json-row", help="What a file holds.")
@click.option("--base-uri", help="An HDFS to write to, webhdfs://host:9870/…; by default a folder of the same disk.")
@click.option("--at-once", type=click.IntRange(min=1), default=8, help="Files written at the same time.")
@click.option("--quick", is_flag=True, help="A few notifications: a test of the benchmark.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "ngsi", help="Where the results go.")
def main(
    notifications: int,
    sizes: tuple[int, ...],
    widths: tuple[int, ...],
    mode: str,
    base_uri: str | None,
    at_once: int,
    quick: bool,
    scratch: Path,
    output: Path,
) -> None:
    """Measure notifications acknowledged and persisted a second."""
    if quick:
        notifications, sizes, widths = 50, (1, 10), (1, 5)
    for folder in (scratch, output):
        folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="ngsi-", dir=scratch))
    set_apart(folder)
    access = Settings.model_validate({"root": folder}).ngsi  # who logs in there, of the environment
    place = {} if base_uri is None else FsUri.parse(base_uri).settings(access)
    cells: list[Cell] = []
    try:
        machine = Machine.look(folder)
        click.echo(f"{machine}\nload {load_average()}\n{_HEADING}")
        for size in sizes:
            for width in widths:
                ngsi = {"batch_size": size, "file_format": mode, "backend_files_at_once": at_once, **place}
                # Of a random name: ext4 chooses the place by it, and that of an earlier run is full of what it deleted.
                cell = Path(tempfile.mkdtemp(prefix=f"{size}-{width}-", dir=folder))
                cells.append(measure(cell / "repository", notifications, width, ngsi))
                click.echo(str(cells[-1]))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report = {"machine": asdict(machine), "mode": mode, "cells": msgspec.to_builtins(cells)}
    (output / "results.json").write_text(json.dumps(report, indent=1, default=str))


def measure(root: Path, notifications: int, destinations: int, ngsi: Mapping[str, object]) -> Cell:
    """Return one cell; ends the process where a value is missing or there twice."""
    root.mkdir(parents=True)
    user = f"bench-{uuid.uuid4().hex[:12]}"  # an HDFS has the files of other cells, too
    section = {"hdfs_username": user, "hive": False, **ngsi}
    settings = Settings.model_validate({"root": root, "ngsi": section})
    repository = Repository(settings)
    begun = time.monotonic()
    _acknowledge(repository, notifications, destinations)
    acknowledged = time.monotonic()
    run_steps(settings)
    live = time.monotonic()
    with open_sink(repository, Attempt.new("benchmark")) as opened:
        # What is younger than batch_timeout is due as well, so that the last batch is measured too.
        done = opened.run(until_ms=int(time.time() * 1000) + 1000)
    persisted = time.monotonic()
    parameters = Parameters.from_section(settings.ngsi, root)
    files = ScratchDir(open_files(parameters, PosixFileSystem(), root), f"/user/{user}")
    there = files.contents()
    disk_seconds = None
    if settings.ngsi.backend == "file":
        disk_seconds = _disk_alone(root / "disk", there)  # what the sink wrote stays: see above
    else:
        files.remove()
    files.close()
    _compare(settings.ngsi.file_format, there, notifications)
    return Cell(
        batch_size=settings.ngsi.batch_size,
        at_once=settings.ngsi.backend_files_at_once,
        destinations=destinations,
        notifications=notifications,
        acknowledge_seconds=acknowledged - begun,
        rollover_seconds=live - acknowledged,
        persist_seconds=persisted - live,
        batches=done.batches,
        goes=done.chunks,
        files=len(there),
        bytes=done.bytes,
        disk_seconds=disk_seconds,
        rss_bytes_max=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )


def _acknowledge(repository: Repository, notifications: int, destinations: int) -> None:
    """Store notifications as the intake of the receiver does, a hundred at a time."""
    accepts = Accepts.of(repository.settings.ngsi)
    with repository.writer() as writer:
        for first in range(0, notifications, _ACKNOWLEDGED_TOGETHER):
            numbers = range(first, min(first + _ACKNOWLEDGED_TOGETHER, notifications))
            bodies = [_body(number, number % destinations) for number in numbers]
            stored = writer.content.put_many(bodies)
            events = []
            for number, body, content in zip(numbers, bodies, stored, strict=True):
                headers = {"content-type": "application/json", "fiware-correlator": str(number)}
                read = read_arrival(
                    Arrival(body, headers, "http://localhost/notify", None, int(time.time() * 1000)), accepts
                )
                events += [with_content(event, content) for event in read.events]
            writer.append(events)


def _body(number: int, destination: int) -> bytes:
    value = {"type": "Number", "value": number, "metadata": {}}
    entity = {"id": f"Car{destination}", "type": "Car", "speed": value}
    return msgspec.json.encode({"subscriptionId": "57458eb60962ef754e7c0998", "data": [entity]})


def _disk_alone(folder: Path, files: Mapping[str, bytes]) -> float | None:
    """Make files in folders of their own by calls of the system, then sync the disk; return the seconds of all."""
    paths = {f"{folder}{path}": data for path, data in files.items()}
    folders = list(dict.fromkeys(path.rpartition("/")[0] for path in paths))
    for above in {name.rpartition("/")[0] for name in folders}:
        os.makedirs(above, exist_ok=True)
    begun = time.monotonic()
    for name in folders:
        os.mkdir(name, 0o750)
    for path, data in paths.items():
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        os.write(descriptor, data)
        os.close(descriptor)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    is_synced = sync_disk_of(descriptor)
    os.close(descriptor)
    return time.monotonic() - begun if is_synced else None


def _compare(mode: str, files: Mapping[str, bytes], notifications: int) -> None:
    if mode != "json-row":
        return
    numbers = sorted(
        int(msgspec.json.decode(line)["attrValue"]) for data in files.values() for line in data.splitlines()
    )
    if numbers != list(range(notifications)):
        sys.exit(
            f"expected each of {notifications} values once, got {len(numbers)}, {len(set(numbers))} different ones"
        )


if __name__ == "__main__":
    main()
