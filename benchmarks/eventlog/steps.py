"""Measures the steps rollover and compress: `python -m benchmarks.eventlog.steps --events 1000000`.

The steps run in a process of their own, whose greatest memory is that of one task of a job. Prints a Markdown table.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec

from benchmarks.catalog.peer import peak_rss_mib
from benchmarks.environment import ROOT, library_path
from benchmarks.eventlog.bulk import tables, write_journals
from custody.config import load_settings
from custody.recovery import STEPS
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace


class Measured(msgspec.Struct, frozen=True):
    """What one step cost; seconds on the clock and of CPU, bytes of memory at most until then."""

    step: str
    units: int
    events: int
    seconds: float
    cpu_seconds: float
    bytes_in: int
    bytes: int
    memory_bytes: int


def run_step(folder: Path, name: str) -> Measured:
    """Do all units of a step, one after the other, in this process."""
    settings = load_settings(folder)
    units = STEPS[name].units(settings)
    started, cpu = time.perf_counter(), time.process_time()
    done = [STEPS[name].run(Workspace(settings, unit.writer), unit) for unit in units]
    return Measured(
        step=name,
        units=len(done),
        events=sum(report.events for report in done),
        seconds=time.perf_counter() - started,
        cpu_seconds=time.process_time() - cpu,
        bytes_in=sum(report.bytes_in for report in done),
        bytes=sum(report.bytes for report in done),
        memory_bytes=int(peak_rss_mib() * (1 << 20)),
    )


def measure(folder: Path, name: str) -> Measured:
    """Do a step in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", __spec__.name, "--child", name, str(folder)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": library_path()},
        capture_output=True,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Measured)


@click.command()
@click.option("--events", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--group-events", type=click.IntRange(min=1), default=1_000_000, show_default=True)
@click.option("--batch-events", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--child", hidden=True)
@click.argument("folder", type=click.Path(path_type=Path), required=False)
def main(events: int, group_events: int, batch_events: int, child: str | None, folder: Path | None) -> None:
    """Print what rollover and compress cost."""
    if child is not None and folder is not None:
        click.echo(msgspec.json.encode(run_step(folder, child)))
        return
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        repository = Repository.create(Path(scratch) / "repository")
        write_journals(
            PosixFileSystem(),
            repository.settings,
            tables(events),
            group_events=group_events,
            batch_events=batch_events,
        )
        click.echo("| step | units | events/s | events/s of CPU time | MB/s read | greatest memory |")
        click.echo("| --- | --- | --- | --- | --- | --- |")
        for name in ("rollover", "compress"):
            results = measure(repository.settings.root, name)
            click.echo(
                f"| {name} | {results.units} | {results.events / results.seconds:,.0f} "
                f"| {results.events / results.cpu_seconds:,.0f} | {results.bytes_in / results.seconds / 1e6:,.0f} "
                f"| {results.memory_bytes / 1e6:,.0f} MB |"
            )


if __name__ == "__main__":
    main()
