"""Questions while gigabytes wait in journals: `PYTHONPATH=include python -m benchmarks.waiting` in the project.

A repository gets groups of sealed journals that nobody rolled over. Each question is asked by a process of its own,
the way the command line asks: CPU time with that of the processes that it started, and the most memory of either. All
tries of a question must have one answer, and SQL must count every event; a difference ends with exit code 1.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from multiprocessing import get_context
from pathlib import Path

import click

from benchmarks.append.machine import Machine
from benchmarks.environment import LOCAL
from benchmarks.eventlog.bulk import tables, write_journals
from benchmarks.waiting.sides import QUESTIONS, Figures, ask
from custody.repository import Repository
from custody.vfs import PosixFileSystem

_GROUP_EVENTS = 80_000


@click.command(help=__doc__, context_settings={"show_default": True})
@click.option("--events", type=click.IntRange(min=1000), default=1_040_000, help="How many wait; a kilobyte each.")
@click.option("--tries", type=click.IntRange(min=1), default=3, help="Processes that ask each question.")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep the repository here, and ask one that is there.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk, where no folder is named.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "waiting.json", help="Where results go.")
def main(events: int, tries: int, folder: Path | None, scratch: Path, output: Path) -> None:
    scratch.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    home = folder or Path(tempfile.mkdtemp(prefix="waiting-", dir=scratch))
    root = home / "repository"
    try:
        if not root.exists():
            home.mkdir(parents=True, exist_ok=True)
            settings = Repository.create(root).settings
            write_journals(PosixFileSystem(), settings, tables(events), group_events=_GROUP_EVENTS)
        machine = Machine.look(home)
        click.echo(f"{machine}\n{'':38} CPU s     MB  engine MB", err=True)
        figures: dict[str, Figures] = {}
        for question in QUESTIONS:
            asked: list[Figures] = []
            for _ in range(tries):
                with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
                    asked.append(process.submit(ask, root, question, events).result())
            if len({each["answer"] for each in asked}) != 1 or not asked[0]["answer"]:
                sys.exit(f"{question}: expected the same answer each time, got {[each['answer'] for each in asked]}")
            middle = {key: statistics.median(each[key] for each in asked) for key in asked[0]}
            figures[question] = middle
            click.echo(f"{question:38} {middle['CPU s']:5.2f}  {middle['MB']:5.0f}  {middle['engine MB']:9.0f}")
        output.write_text(
            json.dumps({"machine": asdict(machine), "load": os.getloadavg(), "figures": figures}, indent=1) + "\n"
        )
    finally:
        if folder is None:
            shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
