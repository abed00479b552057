"""How long a lineage of 1,000 events takes among millions: `PYTHONPATH=include python -m benchmarks.lineage`.

Lineages whose events lie close together and lineages spread evenly over all events, each asked by its last FlowFile:
the first time in an open repository, and again. Beside it DuckDB over the same files, and SQLite with an index. All
have to give the events that were planted.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path
from statistics import median

import click
import pyarrow as pa

from benchmarks.append.machine import Machine, load_average
from benchmarks.environment import LOCAL
from benchmarks.eventlog.bulk import write_journals
from benchmarks.lineage.peers import PEERS, Asked, about, ask_all, write_sqlite
from benchmarks.lineage.workload import LAYOUTS, Planted, pieces, plant
from custody.config import SETTINGS_FILE
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from tests.support import run_steps

_GROUP_EVENTS = 1_000_000
_HEADING = f"{'':10}" + "".join(f"{f'{layout}, {when}':>18}" for layout in LAYOUTS for when in ("first", "again"))


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--events", type=click.IntRange(min=1), default=10_000_000, help="Events of the repository.")
@click.option("--size", type=click.IntRange(min=300), default=1000, help="Events of a lineage.")
@click.option("--lineages", type=click.IntRange(min=1), default=20, help="Lineages of each layout.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, help="How often each is asked again.")
@click.option("--peer", "names", multiple=True, type=click.Choice(list(PEERS)), help="Only these; may be repeated.")
@click.option("--quick", is_flag=True, help="Few events: a test of the benchmark.")
@click.option("--row-copies", is_flag=True, help="Logs hold copies of rows (eventlog.row_copies).")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "lineage", help="Where the results go.")
def main(
    events: int,
    size: int,
    lineages: int,
    repeats: int,
    names: tuple[str, ...],
    quick: bool,
    row_copies: bool,
    scratch: Path,
    output: Path,
) -> None:
    if quick:
        events, size, lineages, repeats = 8000, 300, 2, 1
    chosen = names or tuple(PEERS)
    for folder in (scratch, output):
        folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="lineage-", dir=scratch))
    try:
        machine = Machine.look(folder)
        click.echo(f"{machine}\nload {load_average()}; {events} events, lineages of {size}, {lineages} of each layout")
        planted = plant(events, lineages, size)
        _build(folder / "repository", events, planted, with_sqlite="SQLite" in chosen, row_copies=row_copies)
        asked = {
            layout: [(one.leaf, list(one.places)) for one in planted if one.layout == layout] for layout in LAYOUTS
        }
        click.echo(f"p50 in ms; load {load_average()}\n{_HEADING}{'memory MiB':>12}")
        figures: dict[str, Asked] = {}
        for name in chosen:
            # A process each, so that memory is that of one peer.
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                figures[name] = process.submit(ask_all, name, folder / "repository", size, asked, repeats).result()
            click.echo(_row(name, figures[name]))
        for name in chosen:
            click.echo(f"{name}: {about(name)}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    suffix = "-row-copies" if row_copies else ""
    document = {
        "events": events,
        "size": size,
        "row_copies": row_copies,
        "machine": asdict(machine),
        "load": os.getloadavg(),
        "peers": {name: asdict(one) for name, one in figures.items()},
    }
    (output / f"results-{events}{suffix}.json").write_text(json.dumps(document, indent=1))


def _build(folder: Path, events: int, planted: list[Planted], *, with_sqlite: bool, row_copies: bool) -> None:
    """Make a repository in which all events are live and indexed, and the file of SQLite beside it."""
    Repository.create(folder)
    (folder / SETTINGS_FILE).write_text(f"[eventlog]\nrow_copies = {str(row_copies).lower()}\n")
    repository = Repository.open(folder)
    start = time.monotonic()
    for number, group in enumerate(_groups(pieces(events, planted))):
        write_journals(PosixFileSystem(), repository.settings, group)
        run_steps(repository.settings)
        done = min((number + 1) * _GROUP_EVENTS, events)
        click.echo(f"{done} events after {time.monotonic() - start:.0f} s", err=True)
    if with_sqlite:
        write_sqlite(folder, pieces(events, planted))
        click.echo(f"SQLite after {time.monotonic() - start:.0f} s", err=True)


def _groups(tables: Iterable[pa.Table]) -> Iterator[list[pa.Table]]:
    group: list[pa.Table] = []
    for table in tables:
        group.append(table)
        if sum(part.num_rows for part in group) >= _GROUP_EVENTS:
            yield group
            group = []
    if group:
        yield group


def _row(name: str, asked: Asked) -> str:
    times = [times_by_layout[layout] for layout in LAYOUTS for times_by_layout in (asked.first, asked.again)]
    return f"{name:10}" + "".join(f"{median(one):>18.1f}" for one in times) + f"{asked.memory_bytes >> 20:>12}"


if __name__ == "__main__":
    main()
