"""What became slower: benchmarks of an earlier revision and of this tree, in turns.

`PYTHONPATH=include python -m benchmarks.turns --before REVISION` in the project.

Machines change their speed from one hour to the next, so a figure of last week says little about today. Here both run
on the same machine, one after the other, several times; the first of a turn is the second of the next. Only custody is
measured, each part in processes of its own, and medians of the turns are compared.

The benchmarks of this tree measure both libraries. Where the earlier library lacks what they use, its own benchmarks
measure it; where that has no such part either, the part is named and left out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.append.machine import Machine, load_average
from benchmarks.environment import LOCAL, ROOT

# Numbers that say which measurement it is, where a benchmark writes measurements as a list.
_SETTINGS = ("threads", "batch_events", "batch_size", "destinations", "clients", "entities")
_PROSE = ("description", "note", "unit")
_SLOWER = 1.15
"""A line counts as slower from here on: medians of the same code, in turns, differ by as much."""


@dataclass(frozen=True, slots=True)
class Part:
    """A benchmark: its module, its options, where it writes its results, and which of these are compared.

    `figures` are expressions for whole names of lines, and whether more is better.
    """

    module: str
    options: tuple[str, ...]
    figures: Mapping[str, bool]
    output: str = "results.json"
    results: str = "results.json"
    """`output` again, or the file in it that has the results."""
    places: tuple[str, ...] = ("--scratch", "{made}", "--output", "{output}")
    """What tells it where to work, and where its results go: a folder that is there, and `output` beside it."""


_INGEST = {r"peers / custody / cpu": False}
PARTS: Mapping[str, Part] = {
    "append": Part(
        "append",
        ("--peer", "custody", "--peer", "custody-columns", "--rounds", "1", "--seconds", "1"),
        {r"cells / .* / median_events_per_second": True, r"custody_bytes_per_event / .*": False},
        "append",
        "append/results.json",
    ),
    "ingest of NiFi's JSON": Part("ingest", ("--files", "30", "--rounds", "1", "--peer", "custody"), _INGEST),
    **{
        f"ingest of {name}": Part(
            "ingest", ("--format", name, "--files", "15", "--rounds", "1", "--peer", "custody"), _INGEST
        )
        for name in ("avro", "openlineage", "ngsi")
    },
    "eventlog": Part(
        "eventlog",
        ("--events", "200000", "--reads", "300", "--cold-reads", "30", "--peer", "json"),
        {
            r"figures / bytes per event custody log \+ toc / value": False,
            r"figures / (written|read in order).* custody .* / value": True,
            r"figures / point read.* custody .* / value": False,
        },
    ),
    "index": Part(
        "index",
        ("--events", "300000", "--questions", "30", "--peer", "custody"),
        {r"peers / custody / (cpu|size_bytes|peak_bytes|times / .*)": False},
        "index",
        "index/results-300000.json",
    ),
    "lineage": Part(
        "lineage",
        ("--events", "500000", "--lineages", "5", "--peer", "custody"),
        {r"peers / custody / .*": False},
        "lineage",
        "lineage/results-500000.json",
    ),
    "growth": Part(
        "growth",
        ("--at", "500000", "--tries", "20", "--files", "10"),
        {
            r"figures / 500000 / events/s .*": True,
            # Not the files of NiFi's JSON, which are a part of their own, nor what a few events cost beside a start.
            r"figures / 500000 / (?!events/s|ingest|.*0,000 events|step recover|step checkpoint).*": False,
        },
    ),
    "catalog": Part(
        "catalog",
        ("--quick", "--peer", "custody"),
        {
            r"custody / commits / .* / p50_ms": False,
            r"custody / opening / .* / (.*_ms|.*_bytes|open_peak_rss_mib)": False,
        },
    ),
    "FlowFiles": Part(
        "flowfiles",
        ("--seconds", "1", "--rounds", "1", "--flowfiles", "200000", "--peer", "custody"),
        {r"figures / open, .* / median": False, r"figures / (?!open,).* / median": True},
    ),
    "sink": Part(
        "ngsi",
        (
            "--notifications",
            "10000",
            "--batch-size",
            "100",
            "--batch-size",
            "10000",
            "--destinations",
            "1",
            "--destinations",
            "10000",
        ),
        {r"cells / .* / (persist|acknowledge)_seconds": False},
        "ngsi",
        "ngsi/results.json",
    ),
    "receiver": Part(
        "receiver",
        ("--seconds", "2", "--rounds", "1", "--clients", "1", "--clients", "16"),
        {r"rounds / custody / .* / (cpu_ms|p50_ms)": False},
        "receiver",
        "receiver/results.json",
    ),
    "waiting": Part("waiting", ("--events", "260000", "--tries", "1"), {r"figures / .* / (CPU s|MB|engine MB)": False}),
    "events over HTTP": Part(
        "events",
        ("--seconds", "4", "--producers", "50"),
        {r"ways / .* / events_per_second": True, r"ways / .* / p50_ms": False},
    ),
    "delivery": Part(
        "delivery",
        (
            *("--producers", "50", "--seconds", "5"),
            *("--only", "events", "--only", "site-to-site", "--only", "site-to-site raw", "--only", "append"),
        ),
        {r"sides / .* / cpu_us": False},
        "delivery",
        "delivery/results.json",
    ),
    "api": Part(
        "api",
        ("--events", "200000", "--rounds", "5", "--seconds", "2"),
        {r"searches / .* / (library|api)_cpu": False},
    ),
    "store": Part("store", ("--events", "300000", "--rounds", "3"), {r"rows / .* / (ms|requests|bytes)": False}),
    "federation": Part(
        "federation",
        ("--writers", "8", "--events", "50000", "--opened", "100"),
        {r"questions / .* / (several|one)_cpu_ms": False, r"openings / .* / cpu_ms": False},
    ),
    "recovery": Part(
        "recovery",
        ("--gigabytes", "2"),
        {r"seconds_to_(open|acknowledge)": False},
        places=("--folder", "{made}", "--output", "{output}"),
    ),
    "software build": Part(
        "swh",
        ("build", "--edges", "300000"),
        {r"steps / .* / processes_cpu_seconds": False},
        "build",
        "build/results.json",
        places=("{made}/graph", "{output}"),
    ),
    "pages": Part(
        "pages",
        ("--events", "200000", "--rounds", "5"),
        {r".* / (paint|rows|bars|picture)": False},
    ),
}


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of both: medians of the turns, and the cost now as a part of the cost before."""

    part: str
    name: str
    before: float
    now: float
    ratio: float
    turns: int


class NoSuchPartError(Exception):
    """A revision cannot be measured by these benchmarks."""


def figures(part: Part, results: object) -> dict[str, float]:
    """Return the compared lines of a benchmark's results; the median where a line has several readings."""
    readings: dict[str, list[float]] = {}
    for name, values in _lines(results, ()):
        if any(re.fullmatch(pattern, name) for pattern in part.figures):
            readings.setdefault(name, []).extend(values)
    return {name: statistics.median(values) for name, values in readings.items()}


def _lines(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, list[float]]]:
    if isinstance(value, dict):
        for key, held in value.items():
            yield from _lines(held, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for held in value:
            name = [str(text) for key, text in held.items() if isinstance(text, str) and key not in _PROSE]
            name += [f"{key} {held[key]}" for key in _SETTINGS if key in held]
            rest = {key: one for key, one in held.items() if key not in _SETTINGS and not isinstance(one, str)}
            yield from _lines(rest, (*path, " ".join(name)))
    elif isinstance(value, list):
        numbers = [one for one in value if isinstance(one, int | float)]
        if numbers:
            yield " / ".join(path), numbers
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield " / ".join(path), [value]


def compared(name: str, part: Part, before: Sequence[dict[str, float]], now: Sequence[dict[str, float]]) -> list[Line]:
    """Return the lines that both have in each turn."""
    lines = []
    for line in before[0]:
        if not all(line in turn for turn in (*before, *now)):
            continue
        old, new = (statistics.median(turn[line] for turn in turns) for turns in (before, now))
        if not old or not new:
            continue
        is_more_better = next(more for pattern, more in part.figures.items() if re.fullmatch(pattern, line))
        lines.append(Line(name, line, old, new, old / new if is_more_better else new / old, len(before)))
    return lines


def unpack(revision: str, folder: Path) -> None:
    """Put the files of a revision into a folder.

    Raises:
        click.ClickException: git does not know it.
    """
    done = subprocess.run(["git", "archive", revision], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise click.ClickException(f"{revision}: {done.stderr.decode(errors='replace').strip()}")
    with tarfile.open(fileobj=BytesIO(done.stdout)) as archive:
        archive.extractall(folder, filter="data")


def measure(part: Part, library: Path, benchmarks: Path, scratch: Path) -> dict[str, float]:
    """Run a benchmark of one tree with the library of another or the same, and return its lines.

    Raises:
        NoSuchPartError: it failed; with the last line that it said.
    """
    folder = Path(tempfile.mkdtemp(prefix="turn-", dir=scratch))
    try:
        paths = os.pathsep.join((str(library / "include"), str(library / "plugins"), str(benchmarks)))
        made = folder / "made"
        made.mkdir()
        places = [place.format(made=made, output=folder / part.output) for place in part.places]
        done = subprocess.run(
            [sys.executable, "-m", f"benchmarks.{part.module}", *part.options, *places],
            cwd=benchmarks,
            env=os.environ | {"PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        results = folder / part.results
        if done.returncode or not results.exists():
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise NoSuchPartError(said[-1])
        return figures(part, json.loads(results.read_text()))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def turns(name: str, part: Part, before: Path, rounds: int, scratch: Path) -> list[Line]:
    """Measure a part of both trees so many times, in turns.

    Raises:
        NoSuchPartError: one of them cannot be measured.
    """
    old: list[dict[str, float]] = []
    new: list[dict[str, float]] = []
    benchmarks = ROOT
    for turn in range(rounds):
        if turn % 2 == 0:
            try:
                old.append(measure(part, before, benchmarks, scratch))
            except NoSuchPartError:
                if turn or benchmarks == before:
                    raise
                benchmarks = before
                old.append(measure(part, before, benchmarks, scratch))
        new.append(measure(part, ROOT, ROOT, scratch))
        if turn % 2:
            old.append(measure(part, before, benchmarks, scratch))
    return compared(name, part, old, new)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--before", required=True, help="The revision to compare with, as git names it.")
@click.option(
    "--part", "parts", type=click.Choice(list(PARTS)), multiple=True, default=tuple(PARTS), help="Repeatable."
)
@click.option("--rounds", type=click.IntRange(min=1), default=3, help="Turns of each part.")
@click.option("--scratch", type=click.Path(path_type=Path), default=LOCAL, help="The disk that is measured.")
@click.option("--output", type=click.Path(path_type=Path), default=LOCAL / "turns.json", help="Where the results go.")
def main(before: str, parts: tuple[str, ...], rounds: int, scratch: Path, output: Path) -> None:
    """Compare benchmarks of an earlier revision with this tree's, in turns on this machine."""
    scratch.mkdir(parents=True, exist_ok=True)
    output.parent.mkdir(parents=True, exist_ok=True)
    console = Console(width=None if Console().is_terminal else 180)
    machine, load = Machine.look(scratch), load_average()
    lines: list[Line] = []
    missing: dict[str, str] = {}
    folder = Path(tempfile.mkdtemp(prefix="turns-", dir=scratch)).resolve()
    try:
        unpack(before, folder)
        for name in parts:
            console.print(f"{name} …", style="dim")
            try:
                lines += turns(name, PARTS[name], folder, rounds, scratch.resolve())
            except NoSuchPartError as error:
                missing[name] = str(error)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    table = Table("part", "line", "before", "now", "cost", title=f"{before} and now, medians of {rounds} turns")
    for line in lines:
        style = "red" if line.ratio > _SLOWER else ""
        table.add_row(line.part, line.name, f"{line.before:,.4g}", f"{line.now:,.4g}", f"{line.ratio:.2f}", style=style)
    console.print(table)
    for name, why in missing.items():
        console.print(f"{name} cannot be measured there: {why}", markup=False)
    document = {
        "before": before,
        "machine": machine.document(),
        "load": {"before": load, "after": load_average()},
        "lines": [
            {
                "part": line.part,
                "line": line.name,
                "before": line.before,
                "now": line.now,
                "cost": line.ratio,
                "turns": line.turns,
            }
            for line in lines
        ],
        "missing": missing,
    }
    output.write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
