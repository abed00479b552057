"""The benchmark's command: `PYTHONPATH=include python -m benchmarks.eventlog` from the project's root."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.append.machine import Machine, load_average
from benchmarks.append.peers.base import PeerUnavailableError
from benchmarks.append.peers.nifi_peer import build, java_version
from benchmarks.environment import LOCAL, ROOT, library_path, peers_python
from benchmarks.eventlog import plot, report, steps
from benchmarks.eventlog.bulk import BASE_EVENTS
from benchmarks.eventlog.measuring import Task, rates
from benchmarks.eventlog.peers import custody_peer

PEERS = ("duckdb", "sqlite", "json", "delta", "nifi")
_EVENTS_LEAST, _EVENTS_MOST = 2_000, 10_000_000

Progress = Callable[[str], None]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--events", type=click.IntRange(_EVENTS_LEAST, _EVENTS_MOST), default=1_000_000)
@click.option("--peer", type=click.Choice(PEERS), multiple=True, default=PEERS, help="May be repeated.")
@click.option("--reads", type=click.IntRange(min=10), default=2000, help="Warm point reads of each system.")
@click.option("--cold-reads", type=click.IntRange(min=5), default=100, help="Cold point reads of each system.")
@click.option("--drop-caches", is_flag=True, help="Empty the whole machine's page cache before cold reads (root).")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=LOCAL / "eventlog.json", help="Where the results go."
)
def main(
    events: int, peer: tuple[str, ...], reads: int, cold_reads: int, drop_caches: bool, scratch: Path, output: Path
) -> None:
    """Measure custody's event logs beside NiFi's, Delta Lake, DuckDB and SQLite, one after the other."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="eventlog-", dir=scratch)).resolve()
    console = Console(width=None if Console().is_terminal else 180)
    base = max(min(BASE_EVENTS, events // 10), 1)
    task = Task(str(folder), events, base, reads, cold_reads, drop_caches)
    try:
        with console.status("starting") as status:
            machine, before = Machine.look(folder), load_average()
            results = {"custody": _custody(task, status.update)}
            skipped = {}
            for name in (name for name in PEERS if name in peer):
                status.update(f"measuring {name}")
                try:
                    results[name] = _peer(name, task)
                except PeerUnavailableError as error:
                    skipped[name] = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    facts = {
        "events": events,
        "machine": machine.document(),
        "load_average": {"before": before, "after": load_average()},
        "skipped": skipped,
    }
    caption = (
        f"{events:,} events; {machine.processors} × {machine.processor}; {machine.disk.file_system}; {machine.kernel}; "
        f"Python {machine.python}; revision {machine.revision}; load {before[0]} to {load_average()[0]}"
    )
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(json.dumps(report.document(results, facts), indent=1) + "\n")
    output.with_suffix(".svg").write_text(plot.svg(report.figures(results), caption))
    for name, reason in skipped.items():
        console.print(f"[yellow]{name} is left out:[/] {reason}")
    console.print(report.table(results, caption))
    console.print(f"Results: {output} and {output.with_suffix('.svg')}")


def _custody(task: Task, progress: Progress) -> dict[str, Any]:
    """Build the repository slice by slice, and read it when it holds a tenth and when it holds all."""
    totals = dict.fromkeys(("rollover", "compress"), (0, 0.0, 0.0))
    memory: dict[str, float] = {}
    early: dict[str, Any] = {}
    root = task.folder(custody_peer.NAME)
    for number, tiles in enumerate(custody_peer.slices(task.events, task.base)):
        progress(f"custody: writing slice {number + 1}")
        _run("custody", task.text(work="write", slice=number))
        for name, (before, seconds, cpu) in totals.items():
            progress(f"custody: {name} of slice {number + 1}")
            done = steps.measure(root, name)
            totals[name] = before + done.events, seconds + done.seconds, cpu + done.cpu_seconds
            memory[name] = max(memory.get(name, 0.0), done.memory_bytes / (1 << 20))
        _run("custody", task.text(work="publish"))
        if number == 0:
            progress("custody: point reads of a tenth")
            held = tiles * task.base
            early = {"events": held, **_run("custody", task.text(work="points", events=held))["result"]}
    write = {name: rates(*total) for name, total in totals.items()}
    for name, one in write.items():
        if one["events"] != task.events:
            raise click.ClickException(f"custody: expected {task.events} events of {name}, got {one['events']}")
    both = rates(task.events, *(sum(total[place] for total in totals.values()) for place in (1, 2)))
    progress("custody: reading")
    return {
        "events": task.events,
        **_run("custody", task.text(work="sizes"))["result"],
        "write": {**write, "steps": both, "peak_rss_mib": memory},
        "points": _run("custody", task.text(work="points", events=task.events))["result"],
        "points_early": early,
        "in_order": _run("custody", task.text(work="in_order"))["result"],
    }


def _peer(name: str, task: Task) -> dict[str, Any]:
    """Measure one other system.

    Raises:
        PeerUnavailableError: it cannot run on this machine.
    """
    if name == "nifi":
        java_version()
        build()
    if name != "delta":
        return _run(name, task.text())
    try:
        python = peers_python()
    except (OSError, subprocess.CalledProcessError) as error:
        raise PeerUnavailableError(f"the environment of the peers could not be made: {error}") from error
    logs = [str(path) for path in custody_peer.logs(task)]
    return _run(name, task.text(logs=logs), python=python)


def _run(name: str, argument: str, python: Path = Path(sys.executable)) -> dict[str, Any]:
    """Run a peer in a process of its own and return what it tells.

    Raises:
        click.ClickException: it failed.
    """
    path = library_path() if name != "delta" else str(ROOT)
    done = subprocess.run(
        [python, "-m", f"benchmarks.eventlog.peers.{name}_peer", argument],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise click.ClickException(f"{name} failed:\n{done.stderr[-4000:]}")
    document: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return document


if __name__ == "__main__":
    main()
