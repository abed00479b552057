"""Measures a large group merged at once and by ranges of ids: `python -m benchmarks.eventlog.parts --events 2000000`.

Each merge is a process of its own, in turns; parts are done one after the other, so that the CPU time of each is
known. What several workers gain follows from it: none waits for more than the driver's share and the longest part. Then
the step is run as users run it, by threads, and by processes of Spark. Prints Markdown tables of medians.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import click
import msgspec

import custody
from benchmarks.catalog.peer import peak_rss_mib
from benchmarks.environment import ROOT, library_path
from benchmarks.eventlog.bulk import tables, write_journals
from custody.config import load_settings
from custody.repository import Repository
from custody.rollover.rollover_steps import Rollover
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace

_AT_ONCE = 1 << 40


class Merged(msgspec.Struct, frozen=True):
    """What one merge cost: seconds of CPU, of all of it, of what the driver does alone, and of the longest part."""

    parts: int
    cpu_seconds: float
    driver_seconds: float
    longest_seconds: float
    memory_mib: float


def merge(folder: Path) -> Merged:
    """Merge the only unit of a repository in this process."""
    settings = load_settings(folder)
    step, workspace = Rollover(), Workspace(settings, "main")
    [unit] = step.waiting(workspace)
    started = time.process_time()
    parts = step.divide(workspace, unit)
    divided = time.process_time()
    seconds = []
    for part in parts or [unit]:
        before = time.process_time()
        step.run(Workspace(settings, "main"), part)
        seconds.append(time.process_time() - before)
    before = time.process_time()
    if parts:
        step.join(workspace, unit, parts)
    ended = time.process_time()
    return Merged(
        parts=len(parts),
        cpu_seconds=ended - started,
        driver_seconds=divided - started + ended - before,
        longest_seconds=max(seconds),
        memory_mib=peak_rss_mib(),
    )


def measure(folder: Path, merge_bytes: int) -> Merged:
    """Merge in a process of its own, and leave the journals as they were."""
    environ = {
        **os.environ,
        "PYTHONPATH": library_path(),
        "CUSTODY__EVENTLOG__MERGE_BYTES_MAX": str(merge_bytes),
    }
    command = [sys.executable, "-m", __spec__.name, "--child", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, check=True)
    workspace = Workspace(load_settings(folder), "main")
    workspace.fs.remove_tree(workspace.paths.staging)
    return msgspec.json.decode(done.stdout, type=Merged)


class Step(msgspec.Struct, frozen=True):
    """What the whole step took: seconds of its units by the clock, and of CPU with all processes that it began."""

    wall_seconds: float
    cpu_seconds: float


def run_step(folder: Path, merge_bytes: int, options: tuple[str, ...]) -> Step:
    """Run the step by its command, and leave the journals as they were."""
    environ = {
        **os.environ,
        "PYTHONPATH": str(Path(custody.__file__).parents[1]),
        "CUSTODY__EVENTLOG__MERGE_BYTES_MAX": str(merge_bytes),
        "CUSTODY__SPARK__MASTER": "local[2]",
        "CUSTODY__SPARK__DRIVER_BYTES_MAX": "0",
    }
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    program = "from custody.cli.main import main; main()"
    command = [sys.executable, "-c", program, "-r", str(folder), "run", "rollover", "--json", *options]
    done = subprocess.run(command, env=environ, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    workspace = Workspace(load_settings(folder), "main")
    workspace.fs.remove_tree(workspace.paths.staging)
    report = json.loads(done.stdout.splitlines()[-1])
    # Seconds of the report leave out how long Spark took to start.
    return Step(report["seconds"], after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


@click.command()
@click.option("--events", type=click.IntRange(min=1), default=2_000_000, show_default=True)
@click.option("--batch-events", type=click.IntRange(min=1), default=1000, show_default=True)
@click.option("--times", type=click.IntRange(min=1), default=5, show_default=True)
@click.option("--merge-bytes", type=int, multiple=True, default=[1 << 28, 1 << 29, 1 << 30], show_default=True)
@click.option("--child", is_flag=True, hidden=True)
@click.argument("folder", type=click.Path(path_type=Path), required=False)
def main(
    events: int, batch_events: int, times: int, merge_bytes: tuple[int, ...], child: bool, folder: Path | None
) -> None:
    """Print what merging one group costs, at once and in parts."""
    if child and folder is not None:
        click.echo(msgspec.json.encode(merge(folder)))
        return
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        repository = Repository.create(Path(scratch) / "repository")
        settings = repository.settings
        write_journals(PosixFileSystem(), settings, tables(events), group_events=events, batch_events=batch_events)
        sizes = [_AT_ONCE, *merge_bytes]
        done: dict[int, list[Merged]] = {size: [] for size in sizes}
        for _ in range(times):
            for size in sizes:
                done[size].append(measure(settings.root, size))
        click.echo("| merge_bytes_max | parts | CPU s | of these the driver | longest part | greatest memory, MiB |")
        click.echo("| --- | --- | --- | --- | --- | --- |")
        for size, results in done.items():
            cpu, driver, longest, memory = (
                statistics.median(getattr(result, name) for result in results)
                for name in ("cpu_seconds", "driver_seconds", "longest_seconds", "memory_mib")
            )
            named = "at once" if size == _AT_ONCE else f"{size >> 20} MiB"
            least = min(result.cpu_seconds for result in results)
            click.echo(
                f"| {named} | {results[0].parts} | {cpu:.2f} (least {least:.2f}) | {driver:.2f} | {longest:.2f} "
                f"| {memory:.0f} |"
            )
        ways = {
            "one thread": ("--local",),
            "two threads": ("--local", "--workers", "2"),
            "Spark, two processes": (),
        }
        runs = [(way, size) for way in ways for size in (_AT_ONCE, 1 << 28)]
        steps: dict[tuple[str, int], list[Step]] = {run: [] for run in runs}
        for _ in range(times):
            for way, size in runs:
                steps[way, size].append(run_step(settings.root, size, ways[way]))
        click.echo("\n| step by | merge_bytes_max | wall s | CPU s |\n| --- | --- | --- | --- |")
        for (way, size), taken in steps.items():
            named = "at once" if size == _AT_ONCE else f"{size >> 20} MiB"
            wall, cpu = (
                f"{statistics.median(values):.1f} (least {min(values):.1f})"
                for values in ([step.wall_seconds for step in taken], [step.cpu_seconds for step in taken])
            )
            click.echo(f"| {way} | {named} | {wall} | {cpu} |")


if __name__ == "__main__":
    main()
