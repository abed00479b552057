"""`python -m benchmarks.index`: indexing speed, size and query times of custody beside other indexes."""

from __future__ import annotations

import gc
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

import click

from benchmarks.append.machine import Machine
from benchmarks.index.growth import draw_growth
from benchmarks.index.peers import PEERS
from benchmarks.index.peers.base import Answer, Cost, Peer
from benchmarks.index.peers.custody_peer import Custody
from benchmarks.index.peers.tantivy_peer import add_packages
from benchmarks.index.plot import draw
from benchmarks.index.workload import Question, Rows, pieces, shapes

LOCAL = Path(".local/benchmarks/index")
PACKAGES = ("tantivy==0.27.0",)
WHOOSH_EVENTS_MAX = 100_000
VISITED = (1, 2, 5, 10, 20, 50, 100)


@dataclass
class Figures:
    """What was measured of one peer; seconds, bytes, and milliseconds of each question by shape."""

    about: str
    events: int = 0
    wall: float = 0.0
    cpu: float = 0.0
    size_bytes: int = 0
    pieces: list[float] = field(default_factory=list)
    """CPU seconds of each piece."""
    visits: dict[int, dict[str, list[float]]] = field(default_factory=dict)
    """For custody: milliseconds of questions that visit so many shards, by kind of question."""
    process_cpu: float = 0.0
    """For NiFi: CPU seconds of the whole process while it stored and indexed; `cpu` is that of its index threads."""
    again: dict[str, list[float]] = field(default_factory=dict)
    """For custody: milliseconds of questions that were asked before, by shape."""
    peak_bytes: int = 0
    """For custody alone: the most memory that the process had."""
    times: dict[str, list[float]] = field(default_factory=dict)


@click.command(help=__doc__)
@click.option("--events", default=100_000, show_default=True, help="Events to index: 100000, 1000000, 10000000.")
@click.option("--shard", default=250_000, show_default=True, help="Events of a piece; custody makes a shard of each.")
@click.option("--questions", default=30, show_default=True, help="Questions of each shape, each asked three times.")
@click.option("--peer", "names", multiple=True, type=click.Choice(list(PEERS)), help="Only these; may be repeated.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL, show_default=True)
@click.option("--scratch", type=click.Path(path_type=Path), help="A folder on the disk that is measured.")
def main(events: int, shard: int, questions: int, names: tuple[str, ...], output: Path, scratch: Path | None) -> None:
    _install(output / "packages")
    chosen = [name for name in names or PEERS if name != "whoosh" or events <= WHOOSH_EVENTS_MAX]
    output.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="index-", dir=scratch or output))
    try:
        figures = _measure({name: PEERS[name](folder / name) for name in chosen}, folder, events, shard, questions)
        machine = asdict(Machine.look(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    document = {
        "events": events,
        "shard": shard,
        "machine": machine,
        "peers": {n: asdict(f) for n, f in figures.items()},
    }
    (output / f"results-{events}.json").write_text(json.dumps(document, indent=1))
    draw(output / f"index-{events}.svg", {name: dict(f.times) for name, f in figures.items()}, events)
    draw_growth(output)
    _print(figures, events)


def _install(folder: Path) -> None:
    if not folder.exists():
        command = ["pip", "install", "--quiet", "--no-deps", "--target", str(folder), *PACKAGES]
        subprocess.run([sys.executable, "-m", *command], check=True)
    add_packages(folder)


def _measure(peers: dict[str, Peer], folder: Path, events: int, shard: int, questions: int) -> dict[str, Figures]:
    figures = {name: Figures(peer.about) for name, peer in peers.items()}
    asked: dict[str, list[Question]] = {}
    for number, table in enumerate(pieces(events, shard)):
        rows = Rows(table)
        if number == (events // shard) // 2:
            asked = shapes(table, questions)
        for name in _rotated(list(peers), number):
            prepared = peers[name].prepare(rows)
            gc.collect()
            wall, cpu = time.perf_counter(), time.process_time()
            told = peers[name].add(prepared)
            cost = told or Cost(time.perf_counter() - wall, time.process_time() - cpu)
            figures[name].wall += cost.wall
            figures[name].cpu += cost.cpu
            figures[name].pieces.append(cost.cpu)
            figures[name].events += table.num_rows
            del prepared
            os.sync()
        click.echo(f"{(number + 1) * shard} events", err=True)
    for name, peer in peers.items():
        cpu = time.process_time()
        peer.finish()
        figures[name].cpu += time.process_time() - cpu if name == "tantivy" else 0
        figures[name].process_cpu = getattr(peer, "process_cpu_seconds", 0.0)
        files = (path for path in (folder / name).rglob("*") if path.is_file())
        figures[name].size_bytes = peer.size_bytes or sum(path.stat().st_size for path in files)
    _ask_all(peers, figures, asked, [count for count in VISITED if count <= events // shard])
    for peer in peers.values():
        peer.close()
    if list(peers) == ["custody"]:
        figures["custody"].peak_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return figures


def _ask_all(
    peers: dict[str, Peer], figures: dict[str, Figures], asked: dict[str, list[Question]], visits: list[int]
) -> None:
    custody = peers.get("custody")
    for shape, listed in asked.items():
        for number, question in enumerate(listed):
            _ask(peers, figures, shape, question, number)
            if isinstance(custody, Custody):
                figures["custody"].again.setdefault(shape, []).extend(custody.again(question))
        click.echo(f"asked: {shape}", err=True)
    if isinstance(custody, Custody):
        figures["custody"].visits = custody.visits(visits, len(next(iter(asked.values()))))


def _ask(peers: dict[str, Peer], figures: dict[str, Figures], shape: str, question: Question, number: int) -> None:
    answers: dict[str, Answer] = {}
    for name in _rotated(list(peers), number):
        answer, times = peers[name].measure(question)
        if answer is not None:
            answers[name] = answer
            figures[name].times.setdefault(shape, []).extend(times)
    for name, answer in answers.items():
        if not peers[name].agrees(answer, answers.get("custody", answer)):
            raise click.ClickException(f"{shape} {question}: custody and {name} answer differently")


def _rotated(names: list[str], by: int) -> list[str]:
    start = by % len(names)
    return names[start:] + names[:start]


def _print(figures: dict[str, Figures], events: int) -> None:
    click.echo(
        f"\n{events} events; peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MB, all peers"
    )
    click.echo(f"{'':12}{'events/s':>12}{'events/cpu-s':>14}{'bytes/event':>13}")
    for name, f in figures.items():
        click.echo(f"{name:12}{f.events / f.wall:12,.0f}{f.events / f.cpu:14,.0f}{f.size_bytes / f.events:13.1f}")
    click.echo(f"\n{'p50 / p99 ms':14}" + "".join(f"{name:>20}" for name in figures))
    for shape in next(iter(figures.values())).times:
        cells = [_cell(f.times.get(shape, [])) for f in figures.values()]
        click.echo(f"{shape:14}" + "".join(f"{cell:>20}" for cell in cells))
    whole = {name: [t for times in f.times.values() for t in times] for name, f in figures.items()}
    click.echo(f"{'all':14}" + "".join(f"{_cell(times):>20}" for times in whole.values()))
    if "custody" in figures:
        again = figures["custody"].again
        click.echo("custody, asked before: " + ", ".join(f"{shape} {_cell(times)}" for shape, times in again.items()))


def _cell(times: list[float]) -> str:
    return f"{at(times, 0.5):.3f} / {at(times, 0.99):.3f}" if times else "–"


def at(times: list[float], part: float) -> float:
    """Return the time that this part of all times does not exceed."""
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


if __name__ == "__main__":
    main()
