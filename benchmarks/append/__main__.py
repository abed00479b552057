"""The benchmark's command: `PYTHONPATH=include python -m benchmarks.append` from the project's root."""

from __future__ import annotations

import gc
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
import msgspec
from rich.console import Console

from benchmarks.append import growth, plot
from benchmarks.append.grid import Cell, Plan
from benchmarks.append.machine import Machine, load_average
from benchmarks.append.peers.base import Peer, PeerUnavailableError
from benchmarks.append.peers.custody_peer import ColumnsPeer, CustodyPeer
from benchmarks.append.peers.nifi_peer import NifiPeer, NifiProcess
from benchmarks.append.peers.raw_peer import RawPeer
from benchmarks.append.peers.sqlite_peer import SqlitePeer
from benchmarks.append.report import Results
from benchmarks.append.runner import lost, measure
from benchmarks.append.workload import Workload

PEERS = ("custody", "custody-columns", "raw", "sqlite", "nifi-sync", "nifi-nosync")
NIFI_PEERS = {"nifi-sync": True, "nifi-nosync": False}
_ROOT = Path(__file__).resolve().parents[2]
_LOCAL = _ROOT / ".local" / "benchmarks"
_WARM_UP = Cell(threads=4, batch_events=10)

Progress = Callable[[str], None]


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seconds", type=click.FloatRange(min=0.05), default=3.0, help="Time of one cell of one peer.")
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="How often each cell is measured.")
@click.option(
    "--threads", type=click.IntRange(min=1), multiple=True, default=(1, 4, 16), help="May be repeated; in rising order."
)
@click.option(
    "--batch",
    type=click.IntRange(1, 1000),
    multiple=True,
    default=(1, 10, 1000),
    help="May be repeated; in rising order.",
)
@click.option("--peer", type=click.Choice(PEERS), multiple=True, default=PEERS, help="May be repeated.")
@click.option("--quick", is_flag=True, help="The four corner cells once, 0.1 s each: a test of the benchmark.")
@click.option("--growth", "grows", is_flag=True, help="Measure custody's cost per event in a growing store instead.")
@click.option("--growth-events", type=click.IntRange(min=20_000), default=20_000_000, help="How far it grows.")
@click.option("--growth-steps", type=click.IntRange(min=2), default=20, help="In how many steps.")
@click.option("--scratch", type=click.Path(path_type=Path), default=_LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=_LOCAL / "append", help="Where the results go.")
def main(
    seconds: float,
    rounds: int,
    threads: tuple[int, ...],
    batch: tuple[int, ...],
    peer: tuple[str, ...],
    quick: bool,
    grows: bool,
    growth_events: int,
    growth_steps: int,
    scratch: Path,
    output: Path,
) -> None:
    """Measure acknowledged events per second: custody beside the raw disk, SQLite and NiFi."""
    plan = Plan(seconds, rounds, threads, batch)
    if quick:
        plan = Plan(0.1, 1, (threads[0], threads[-1]), (batch[0], batch[-1]))
    output.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if Console().is_terminal else 160)
    with _folder(scratch) as folder, console.status("making events") as status:
        if grows:
            _growth(growth_events, growth_steps, folder, output, console, status.update)
        else:
            chosen = [name for name in PEERS if name in peer]
            _comparison(plan, chosen, folder, output, console, status.update)


@contextmanager
def _folder(scratch: Path) -> Iterator[Path]:
    """A new folder on the disk that is measured; it goes with the run."""
    scratch.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="append-", dir=scratch))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _workload(plan: Plan) -> Workload:
    """Make the events; the garbage collector need not look at them in every measurement."""
    workload = Workload(events=20 * max(plan.batch_events), batches_max=500)
    gc.collect()
    gc.freeze()
    return workload


def _comparison(
    plan: Plan, chosen: Sequence[str], folder: Path, output: Path, console: Console, progress: Progress
) -> None:
    workload = _workload(plan)
    progress("opening the peers")
    raw = RawPeer(workload, folder)
    peers, skipped = _peers(chosen, raw, workload, folder)
    try:
        for key, reason in skipped.items():
            console.print(f"[yellow]{key} is left out:[/] {reason}")
        results = Results(
            plan=plan,
            machine=_machine(folder, console),
            peers=[peer.about for peer in peers],
            skipped=skipped,
            bytes_per_event={batch: raw.bytes_per_event(batch) for batch in plan.batch_events},
            load_before=load_average(),
        )
        progress("warming up")
        for peer in peers:
            peer.measure(_WARM_UP, min(2.0, 5 * plan.seconds), folder / f"warm-{peer.about.key}", verify=False)
        for series in measure(plan, peers, folder, progress):
            results.series, results.load_after = series, load_average()
            results.write(output / "results.json")
    finally:
        for peer in peers:
            peer.close()
    (output / "append.svg").write_text(plot.svg(plan, results.peers, results.series, results.caption()))
    console.print(results.table())
    notes = {one.peer: reading.note for one in results.series for reading in one.rounds if reading.note}
    for key, note in notes.items():
        console.print(f"[yellow]{key} complained:[/] {note}")
    if losses := lost(results.series):
        raise click.ClickException("\n".join(["events were lost:", *losses]))
    console.print(f"Every acknowledged event of the first round was read back. Results: {output}")


def _peers(chosen: Sequence[str], raw: RawPeer, workload: Workload, folder: Path) -> tuple[list[Peer], dict[str, str]]:
    """Return the chosen peers that can run here, and why the others cannot."""
    peers: list[Peer] = []
    skipped: dict[str, str] = {}
    if "custody" in chosen:
        peers.append(CustodyPeer(workload))
    if "custody-columns" in chosen:
        peers.append(ColumnsPeer(workload))
    if "raw" in chosen:
        peers.append(raw)
    if "sqlite" in chosen:
        peers.append(SqlitePeer(workload))
    nifi = [name for name in chosen if name in NIFI_PEERS]
    if nifi:
        try:
            process = NifiProcess(workload, folder)
        except PeerUnavailableError as error:
            skipped |= dict.fromkeys(nifi, str(error))
        else:
            peers += [NifiPeer(process, always_sync=NIFI_PEERS[name]) for name in nifi]
    if not peers:
        raise click.ClickException(f"no peer can run here: {skipped}")
    return peers, skipped


def _machine(folder: Path, console: Console) -> Machine:
    machine = Machine.look(folder)
    if machine.disk.is_memory:
        console.print(f"[yellow]{folder} lies in memory ({machine.disk.file_system}): a sync costs nothing there.[/]")
    return machine


def _growth(events: int, steps: int, folder: Path, output: Path, console: Console, progress: Progress) -> None:
    workload = _workload(Plan(0, 1, (growth.THREADS,), (growth.BATCH_EVENTS,)))
    machine, before = _machine(folder, console), load_average()
    done: list[growth.Step] = []
    try:
        for step in growth.grow(workload, events, steps, folder / "growth", progress):
            done.append(step)
            document = {
                "format": 1,
                "machine": machine.document(),
                "load_average": {"before": before, "after": load_average()},
                "threads": growth.THREADS,
                "batch_events": growth.BATCH_EVENTS,
                "steps": [asdict(one) | {"microseconds_per_event": one.microseconds_per_event} for one in done],
            }
            (output / "growth.json").write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    except growth.NoSpaceError as error:
        raise click.ClickException(str(error)) from error
    console.print(growth.table(done, f"load {before[0]} to {load_average()[0]}"))
    console.print(f"Every acknowledged event was read back. Results: {output / 'growth.json'}")


if __name__ == "__main__":
    main()
