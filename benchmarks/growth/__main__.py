"""What an event costs in a repository that grows: `PYTHONPATH=include python -m benchmarks.growth --at 1000000`.

One repository grows to each of some sizes. At each of them the last events are measured on their way from NiFi's JSON
and from columns to being live and searchable, and then a new process asks it: point reads, searches, lineages, opening,
the plan of retention. Last, its oldest log expires and is deleted. Costs an event that grow with the repository are a
defect.

With `--folder` the repository stays there, and a run that ended goes on where it was: a hundred million events take an
hour or more, and about 25 GB.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import click

from benchmarks.append.machine import Machine
from benchmarks.environment import LOCAL
from benchmarks.eventlog.bulk import BASE_EVENTS
from benchmarks.growth.sides import Figures, ask_all, expire, grow


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option(
    "--at",
    "sizes",
    multiple=True,
    type=click.IntRange(min=2 * BASE_EVENTS),
    default=(1_000_000, 10_000_000),
    help="Measure at this many events; may be repeated.",
)
@click.option("--tries", type=click.IntRange(min=2), default=50, help="How many questions of each kind.")
@click.option("--files", type=click.IntRange(min=1), default=50, help="Files of 1,000 events that are ingested.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep the repository here, and go on with one.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk, where no folder is named.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "growth.json", help="Where results go.")
def main(sizes: tuple[int, ...], tries: int, files: int, folder: Path | None, scratch: Path, output: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    home = folder or Path(tempfile.mkdtemp(prefix="growth-", dir=scratch))
    kept = home / "figures.json"
    try:
        home.mkdir(parents=True, exist_ok=True)
        figures: dict[str, Figures] = json.loads(kept.read_text()) if kept.exists() else {}
        machine = Machine.look(home)
        click.echo(str(machine), err=True)
        for size in sorted(sizes):
            # A process for each part, so that memory is that of one, and each part is kept.
            for part, arguments in ((grow, (size, files)), (ask_all, (tries,)), (expire, ())):
                key = f"{part.__name__} {size}"
                if key not in figures:
                    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                        figures[key] = process.submit(part, home / "repository", *arguments).result()
                    kept.write_text(json.dumps(figures, indent=1))
        parts = ("grow", "ask_all", "expire")
        chosen = {
            str(size): {name: value for part in parts for name, value in figures[f"{part} {size}"].items()}
            for size in sorted(sizes)
        }
        output.write_text(
            json.dumps({"machine": asdict(machine), "load": os.getloadavg(), "figures": chosen}, indent=1) + "\n"
        )
        click.echo(table(chosen))
    finally:
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


def table(figures: dict[str, Figures]) -> str:
    """Return the figures as a table in Markdown, a column for each size."""
    sizes = list(figures)
    lines = [
        "| | " + " | ".join(f"{int(size):,}" for size in sizes) + " |",
        "|---|" + "---|" * len(sizes),
    ]
    lines += [
        f"| {name} | " + " | ".join(f"{figures[size][name]:g}" for size in sizes) + " |" for name in figures[sizes[0]]
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
