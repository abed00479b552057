"""Notifications acknowledged a second: `PYTHONPATH=include python -m benchmarks.receiver` in the project.

A receiver as users start it, in a process of its own; clients are threads of this process. Both share the machine, so
the clients' work is measured too. Beside it `hollow`, the same server that stores nothing, shows what HTTP costs. At
the end every content that was acknowledged is compared with what was sent; a difference ends with exit code 1.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from benchmarks.append.machine import Machine, load_average
from benchmarks.environment import LOCAL
from benchmarks.receiver.load import Posted, Round, measure
from custody.repository import Repository
from tests.unit.serving.receiver_process import receiving, started

PEERS = ("custody", "hollow")
_APART = 10**10
"""Between the numbers of two measurements."""
_HEADING = (
    "peer     clients  entities   acks/s  (least-most)   p50 ms   p99 ms   a batch   CPU ms each   clients' CPU ms each"
)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seconds", type=click.FloatRange(min=0.05), default=5.0, help="Time of one cell.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="How often each cell is measured.")
@click.option("--clients", type=click.IntRange(1, 256), multiple=True, default=(1, 4, 16, 64), help="May be repeated.")
@click.option("--entities", type=click.IntRange(1, 100), multiple=True, default=(1, 10), help="Of a notification.")
@click.option("--quick", is_flag=True, help="Two clients for 0.2 s: a test of the benchmark.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "receiver", help="Where the results go.")
def main(
    seconds: float,
    rounds: int,
    clients: tuple[int, ...],
    entities: tuple[int, ...],
    quick: bool,
    scratch: Path,
    output: Path,
) -> None:
    """Measure acknowledged notifications a second."""
    if quick:
        seconds, rounds, clients, entities = 0.2, 1, (2,), (1, 3)
    for folder in (scratch, output):
        folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="receiver-", dir=scratch))
    try:
        machine = Machine.look(folder)
        if machine.disk.is_memory:
            click.echo(f"{folder} lies in memory: a sync costs nothing there.")
        click.echo(f"half of the syncs take at most {machine.disk.sync_p50_ms} ms; load {load_average()}")
        root = folder / "repository"
        Repository.create(root)
        cells = [(count, size) for size in entities for count in clients]
        rounds_by_peer = {peer: _measured(peer, root, cells, seconds, rounds) for peer in PEERS}
        wrong = _wrong(root, [item for _, posted in rounds_by_peer["custody"] for item in posted])
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    results = {peer: [asdict(item) for item, _ in measured] for peer, measured in rounds_by_peer.items()}
    document = {"machine": machine.document(), "load_after": load_average(), "rounds": results, "wrong": wrong}
    (output / "results.json").write_bytes(msgspec.json.format(msgspec.json.encode(document)))
    sys.exit(1 if wrong else 0)


def _measured(
    peer: str, root: Path, cells: Sequence[tuple[int, int]], seconds: float, rounds: int
) -> list[tuple[Round, list[Posted]]]:
    """Measure every cell in every round, and print a line a cell."""
    click.echo(_HEADING)
    rounds_by_cell: dict[tuple[int, int], list[tuple[Round, list[Posted]]]] = {cell: [] for cell in cells}
    command = [sys.executable, "-m", "benchmarks.receiver.hollow", str(root)]
    with receiving(root, "--quiet") if peer == "custody" else started(command) as at:
        warm = measure(at, 1, 1, seconds / 5, 0)
        for turn in range(rounds):
            for number, cell in enumerate(cells):
                first = (1 + turn * len(cells) + number) * _APART
                rounds_by_cell[cell].append(measure(at, *cell, seconds, first))
        _print(peer, rounds_by_cell)
    return [warm, *(item for items in rounds_by_cell.values() for item in items)]


def _print(peer: str, rounds_by_cell: dict[tuple[int, int], list[tuple[Round, list[Posted]]]]) -> None:
    for (clients, entities), items in rounds_by_cell.items():
        rounds = [item for item, _ in items]
        rates = [item.per_second for item in rounds]
        mid = {
            name: statistics.median(float(getattr(item, name) or 0) for item in rounds)
            for name in ("p50_ms", "p99_ms", "per_batch", "cpu_ms", "client_cpu_ms")
        }
        batch = f"{mid['per_batch']:.1f}" if mid["per_batch"] else "-"
        click.echo(
            f"{peer:8} {clients:7} {entities:9} {statistics.median(rates):8.0f}"
            f"  {f'({min(rates):.0f}-{max(rates):.0f})':14} {mid['p50_ms']:6.2f} {mid['p99_ms']:8.2f}"
            f" {batch:>9} {mid['cpu_ms']:13.3f} {mid['client_cpu_ms']:22.3f}"
        )


def _wrong(root: Path, told: Sequence[Posted]) -> int:
    """Return how many contents are not what was sent, or are missing."""
    repository = Repository.open(root)
    wrong = 0
    for start in range(0, len(told), 1000):
        part = told[start : start + 1000]
        events = {event.event_id: event for event in repository.get_many([item.event_id for item in part])}
        for item in part:
            event = events.get(item.event_id)
            wrong += event is None or repository.content(event).read() != item.body
    click.echo(f"{len(told)} acknowledged, {wrong} of them not as they were sent")
    return wrong


if __name__ == "__main__":
    main()
