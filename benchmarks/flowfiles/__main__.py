"""The benchmark's command: `PYTHONPATH=include python -m benchmarks.flowfiles` from the project's root."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console

from benchmarks.append.machine import Machine, load_average
from benchmarks.append.peers.base import PeerUnavailableError
from benchmarks.environment import LOCAL
from benchmarks.flowfiles.measures import Answer, Order, Peer, Plan, Series, Step, in_folder, queue_steps, short_steps
from benchmarks.flowfiles.peers.custody_peer import CustodyPeer
from benchmarks.flowfiles.peers.nifi_peer import NifiPeer, NifiProcess
from benchmarks.flowfiles.peers.plain_peer import PlainPeer
from benchmarks.flowfiles.peers.sqlite_peer import SqlitePeer
from benchmarks.flowfiles.report import Results

PEERS = ("custody", "nifi-sync", "nifi-nosync", "sqlite", "plain")
QUICK = Plan(
    seconds=0.2,
    rounds=1,
    contents=1,
    large_bytes=2 << 20,
    swap_files=1,
    flowfiles=35_000,
    drained=15_000,
    is_settled=False,
)
_WARM_UP_SECONDS = 1.0

Progress = Callable[[str], None]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seconds", type=click.FloatRange(min=0.05), default=Plan.seconds, help="Time of commits, a peer.")
@click.option("--rounds", type=click.IntRange(min=1), default=Plan.rounds, help="How often each figure is measured.")
@click.option("--flowfiles", type=click.IntRange(min=1000), default=Plan.flowfiles, help="How many the long queue has.")
@click.option("--peer", type=click.Choice(PEERS), multiple=True, default=PEERS, help="May be repeated.")
@click.option("--quick", is_flag=True, help="Little of everything, once: a test of the benchmark.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option(
    "--output", type=click.Path(path_type=Path), default=LOCAL / "flowfiles.json", help="Where the results go."
)
def main(
    seconds: float, rounds: int, flowfiles: int, peer: tuple[str, ...], quick: bool, scratch: Path, output: Path
) -> None:
    """Measure FlowFiles in queues: custody beside NiFi, SQLite and the disk itself."""
    plan = QUICK if quick else Plan(seconds, rounds, flowfiles=flowfiles, drained=min(Plan.drained, flowfiles // 2))
    output.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if Console().is_terminal else 160)
    with _folder(scratch) as folder, console.status("opening the peers") as status:
        peers, skipped = _peers(peer, folder)
        try:
            for key, reason in skipped.items():
                console.print(f"[yellow]{key} is left out:[/] {reason}")
            results = _measured(plan, peers, skipped, folder, status.update)
        finally:
            for one in peers:
                one.close()
    results.write(output)
    console.print(results.table())
    console.print(f"Nothing that was acknowledged was lost. Results: {output}")


@contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    """A new folder on the disk that is measured; it goes with the run."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="flowfiles-", dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _peers(chosen: Sequence[str], folder: Path) -> tuple[list[Peer], dict[str, str]]:
    """Return the chosen peers that can run here, and why the others cannot."""
    peers: list[Peer] = [CustodyPeer()] if "custody" in chosen else []
    skipped: dict[str, str] = {}
    nifi = [name for name in PEERS if name in chosen and name.startswith("nifi")]
    if nifi:
        try:
            process = NifiProcess(folder)
        except PeerUnavailableError as error:
            skipped = dict.fromkeys(nifi, str(error))
        else:
            peers += [NifiPeer(process, always_sync=name == "nifi-sync") for name in nifi]
    if "sqlite" in chosen:
        peers.append(SqlitePeer())
    if "plain" in chosen:
        peers.append(PlainPeer())
    return peers, skipped


def _measured(plan: Plan, peers: Sequence[Peer], skipped: dict[str, str], folder: Path, progress: Progress) -> Results:
    begun = time.monotonic()
    about = [peer.about for peer in peers]
    results = Results(plan, Machine.look(folder), about, skipped, load_average())
    _warm_up(plan, peers, folder, progress)
    for number in range(plan.rounds):
        for place, step in enumerate(short_steps(plan)):
            for peer in _rotated(peers, number + place):
                if step.measure in peer.measures:
                    progress(f"round {number + 1} of {plan.rounds}, {step.label}: {peer.about.label}")
                    _take(results, peer, step, folder / "short")
                    _clear(plan, folder / "short")
    for peer in peers:
        for step in queue_steps(plan):
            if step.measure in peer.measures:
                progress(f"{step.label}: {peer.about.label}")
                _take(results, peer, step, folder / "queue")
        _clear(plan, folder / "queue")
    results.load_after, results.seconds = load_average(), time.monotonic() - begun
    return results


def _warm_up(plan: Plan, peers: Sequence[Peer], folder: Path, progress: Progress) -> None:
    order = Order(
        measure="commits", folder=str(folder / "warm"), threads=4, seconds=min(_WARM_UP_SECONDS, plan.seconds)
    )
    for peer in peers:
        progress(f"warming up: {peer.about.label}")
        peer.measure(order)
        _clear(plan, folder / "warm")


def _take(results: Results, peer: Peer, step: Step, folder: Path) -> None:
    answer: Answer = peer.measure(in_folder(step.order, folder))
    if not step.check(answer):
        raise click.ClickException(f"{peer.about.label}, {step.label}: something was lost: {answer}")
    for figure in step.figures:
        series = results.series.setdefault((figure.name, peer.about.key), Series(peer.about.key, figure))
        series.readings.append(figure.of(answer))


def _clear(plan: Plan, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    if plan.is_settled:
        os.sync()  # what one peer left in memory must not be written during the next one's turn


def _rotated(peers: Sequence[Peer], by: int) -> list[Peer]:
    start = by % len(peers)
    return [*peers[start:], *peers[:start]]


if __name__ == "__main__":
    main()
