"""`python -m benchmarks.index.layouts`: bytes an event by part, and what building and asking cost, of both layouts.

Both are built and asked in turns in one process, by CPU time. A cold question opens its shards first.
"""

from __future__ import annotations

import gc
import json
import shutil
import statistics
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import get_args

import click

from benchmarks.append.machine import Machine
from benchmarks.index.peers.custody_peer import Custody
from benchmarks.index.workload import ATTRIBUTES, Question, pieces, shapes
from custody.index import build_shard
from custody.index.fields import Layout
from custody.index.manifest import NAME, Manifest, PackedFile
from custody.index.packed_dictionary import heads_bytes
from custody.vfs import PosixFileSystem

LAYOUTS: tuple[Layout, ...] = get_args(Layout)
FS = PosixFileSystem()
_PARTS = {"trm": "terms and short lists", "pst": "lists", "flt": "filter", "toc": "other"}
"""Parts of Whoosh's layout by the ends of the names of its files."""


@click.command(help=__doc__)
@click.option("--events", default=1_000_000, show_default=True)
@click.option("--shard", default=250_000, show_default=True, help="Events of a shard.")
@click.option("--questions", default=30, show_default=True, help="Questions of each shape.")
@click.option("--rounds", default=5, show_default=True, help="How often each is asked, cold and warm.")
@click.option("--output", type=click.Path(path_type=Path), help="A JSON file of the figures.")
@click.option("--scratch", type=click.Path(path_type=Path), help="A folder on the disk that is measured.")
def main(events: int, shard: int, questions: int, rounds: int, output: Path | None, scratch: Path | None) -> None:
    folder = Path(tempfile.mkdtemp(prefix="layouts-", dir=scratch))
    try:
        document = _measure(folder, events, shard, questions, rounds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if output is not None:
        output.write_text(json.dumps(document, indent=1))


def _measure(folder: Path, events: int, shard: int, questions: int, rounds: int) -> dict[str, object]:
    peers: dict[Layout, Custody] = {layout: Custody(folder / layout, layout) for layout in LAYOUTS}
    seconds: dict[Layout, list[float]] = {layout: [] for layout in LAYOUTS}
    asked: dict[str, list[Question]] = {}
    whole = 0
    for number, table in enumerate(pieces(events, shard)):
        whole += table.num_rows
        asked = asked or shapes(table, questions)
        if not number:
            for layout in LAYOUTS:  # what a first build pays once in a process
                build_shard(FS, folder / f"first-{layout}", table, ATTRIBUTES, layout=layout)
        for layout in LAYOUTS[:: 1 if number % 2 else -1]:
            gc.collect()
            begun = time.process_time()
            peers[layout].add(table)
            seconds[layout].append((time.process_time() - begun) / table.num_rows)
    sizes = {layout: Counter[str]() for layout in LAYOUTS}
    for layout, peer in peers.items():
        for path in sorted((folder / layout).iterdir()):
            sizes[layout].update(parts_of(path))
        peer.finish()
    times = {
        kind: {
            shape: _asked(peers, shape_questions, rounds, is_cold=kind == "cold")
            for shape, shape_questions in asked.items()
        }
        for kind in ("warm", "cold")
    }
    _print(whole, sizes, seconds, times)
    return {
        "events": whole,
        "machine": asdict(Machine.look(folder)),
        "bytes": {layout: dict(parts) for layout, parts in sizes.items()},
        "build_cpu_seconds_an_event": seconds,
        "cpu_milliseconds": times,
    }


def _asked(
    peers: dict[Layout, Custody], questions: list[Question], rounds: int, *, is_cold: bool
) -> dict[Layout, list[float]]:
    """Return the least CPU time of each question, in milliseconds; fails when the layouts answer differently."""
    least: dict[Layout, list[float]] = {layout: [] for layout in LAYOUTS}
    for question in questions:
        own: dict[Layout, list[float]] = {layout: [] for layout in LAYOUTS}
        answers = []
        for turn in range(rounds):
            for layout in LAYOUTS[:: 1 if turn % 2 else -1]:
                if is_cold:
                    peers[layout].forget()
                begun = time.process_time_ns()
                answer = peers[layout].ask(question)
                own[layout].append((time.process_time_ns() - begun) / 1e6)
                answers.append(answer)
        if any(answer != answers[0] for answer in answers):
            raise click.ClickException(f"{question}: the layouts answer differently")
        for layout in LAYOUTS:
            least[layout].append(min(own[layout]))
    return least


def parts_of(path: Path) -> Counter[str]:
    """Return the bytes of a shard's parts."""
    sizes: Counter[str] = Counter()
    packed = Manifest.decode((path / NAME).read_bytes(), path / NAME).description.packed
    for file in path.iterdir():
        size, end = file.stat().st_size, file.suffix[1:]
        if file.name == NAME:
            sizes["manifest"] += size
        elif isinstance(packed, PackedFile):
            sizes.update(_parts_of_packed(packed, size))
        elif end == "col":
            sizes["event ids" if "event_id" in file.name else "times and numbers"] += size
        else:
            sizes[_PARTS[end]] += size
    return sizes


def _parts_of_packed(packed: PackedFile, size: int) -> Counter[str]:
    fields = list(packed.fields.values())
    ends = [*(field.place for field in fields[1:]), packed.filter_place]
    sizes = Counter({"filter": packed.filter_bytes, "other": size - packed.filter_place - packed.filter_bytes})
    for field, end in zip(fields, ends, strict=True):
        heads = heads_bytes(field.terms)
        sizes["heads of lists"] += heads
        sizes["uuids" if field.kind == "uuids" else "other terms"] += field.lists - field.place - heads
        sizes["lists"] += (field.places or end) - field.lists
        sizes["places of words"] += 0 if field.places is None else end - field.places
    columns = [*packed.columns.items(), ("", min(field.place for field in fields) if fields else packed.filter_place)]
    for (name, begin), (_, behind) in pairwise(columns):
        sizes["event ids" if name == "event_id" else "times and numbers"] += behind - begin
    return sizes


def _print(
    events: int,
    sizes: dict[Layout, Counter[str]],
    seconds: dict[Layout, list[float]],
    times: dict[str, dict[str, dict[Layout, list[float]]]],
) -> None:
    click.echo(f"{events} events\n\n{'bytes an event':28}" + "".join(f"{layout:>12}" for layout in LAYOUTS))
    for part in sorted({part for counted in sizes.values() for part in counted}):
        click.echo(f"{part:28}" + "".join(f"{sizes[layout][part] / events:12.2f}" for layout in LAYOUTS))
    click.echo(f"{'all':28}" + "".join(f"{sizes[layout].total() / events:12.2f}" for layout in LAYOUTS))
    built = (f"{statistics.median(seconds[layout]) * 1e6:12.3f}" for layout in LAYOUTS)
    click.echo(f"\n{'build, µs of CPU an event':28}" + "".join(built))
    for kind, shapes_asked in times.items():
        click.echo(f"\n{kind + ', ms of CPU, p50 / p99':28}" + "".join(f"{layout:>16}" for layout in LAYOUTS))
        for shape, own in shapes_asked.items():
            cells = (f"{statistics.median(own[layout]):.3f} / {max(own[layout]):.3f}" for layout in LAYOUTS)
            click.echo(f"{shape:28}" + "".join(f"{cell:>16}" for cell in cells))


if __name__ == "__main__":
    main()
