"""Findings on the command line: how commands print them, and the options for the depth of a verification.

Also the progress bar of work that goes through known bytes.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from custody.cli.output import print_table, size_text, stderr
from custody.maintenance.findings import Finding, Level

Command = TypeVar("Command", bound=Callable[..., Any])
_SEVERITIES = {
    "damage": "damage",
    "loss": "events that are known to be lost",
    "notice": "notices",
    "orphan": "what belongs to nothing",
}


def quick_option(command: Command) -> Command:
    """Give a command the option --quick."""
    text = "Only names, sizes, heads and ends of files, and the whole catalog."
    return click.option("--quick", is_flag=True, help=text)(command)


def deep_option(command: Command) -> Command:
    """Give a command the option --deep."""
    text = "Also decode every event, and compare each shard with its logs."
    return click.option("--deep", is_flag=True, help=text)(command)


def level_of(*, quick: bool, deep: bool) -> Level:
    """Return the level that the options say.

    Raises:
        click.UsageError: both were given.
    """
    if quick and deep:
        raise click.UsageError("give --quick or --deep, not both")
    if quick:
        return Level.QUICK
    return Level.DEEP if deep else Level.DEFAULT


def print_findings(findings: Iterable[Finding]) -> None:
    """Print findings as tables, the worst first."""
    by_severity: dict[str, list[Finding]] = {name: [] for name in _SEVERITIES}
    for item in findings:
        by_severity[item.severity].append(item)
    for severity, items in by_severity.items():
        if severity == "orphan" and items:
            rows: Sequence[Sequence[object]] = [
                (item.kind, item.writer, item.path, size_text(item.size_bytes), item.repair) for item in items
            ]
            print_table(_SEVERITIES[severity], ("kind", "writer", "path", "bytes#", "who removes it"), rows)
        elif items:
            rows = [(item.kind, item.message, item.events or None, _ids(item), item.repair) for item in items]
            print_table(_SEVERITIES[severity], ("kind", "what", "events#", "ids", "what mends it"), rows)


_COUNTED = {
    "damage": "damaged",
    "loss": "known to be lost",
    "notice": "to be noticed",
    "orphan": "belonging to nothing",
}


def verdict(findings: Iterable[Finding]) -> str:
    """Return in a few words what findings come to, the worst first."""
    counts = Counter(str(item.severity) for item in findings)
    parts = [f"{counts[severity]} {word}" for severity, word in _COUNTED.items() if counts[severity]]
    return ", ".join(parts) or "nothing wrong"


def _ids(item: Finding) -> str:
    if item.first_event_id is None:
        return ""
    return f"{item.first_event_id} to {item.last_event_id}"


@contextmanager
def bar() -> Iterator[Callable[[str, int, int], None]]:
    """Show progress on a terminal; the function that is yielded takes (writer, bytes done, bytes in all)."""
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=stderr(), transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=None)

        def show(writer: str, done: int, total: int) -> None:
            progress.update(task, description=writer, completed=done, total=total)

        yield show
