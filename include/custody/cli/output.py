"""How commands print: data to stdout, talk to stderr; text from outside never reaches the terminal unescaped."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

Command = TypeVar("Command", bound=Callable[..., Any])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KIB = 1024
_CONTROL = re.compile(r"[\x7f-\x9f]")
_WIDTH_PIPED = 200  # a pipe has no width of its own; folding at 80 would tear ids apart


class _Console(Console):
    """A console that leaves to the command's end what happens when nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _console(*, err: bool) -> Console:
    stream = sys.stderr if err else sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else _WIDTH_PIPED
    return _Console(stderr=err, soft_wrap=True, highlight=False, width=width)


def stdout() -> Console:
    """Return the console for data; made anew each time, so that tests can redirect the stream."""
    return _console(err=False)


def stderr() -> Console:
    """Return the console for talk."""
    return _console(err=True)


def json_option(command: Command) -> Command:
    """Give a command the option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def writer_option(command: Command) -> Command:
    """Give a command the option --writer."""
    text = "Whose events are meant; needed where several writers have such."
    return click.option("--writer", "-w", help=text)(command)


def json_text(value: object) -> str:
    """Return one JSON document on one line; JSON itself leaves DEL and the C1 control characters as they are."""
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", msgspec.json.encode(value).decode())


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    click.echo(json_text(value))


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table; a column whose name ends in a number sign is set right-justified, without the sign."""
    table = Table(title=clean(title) if title else None, title_justify="left", box=box.SIMPLE_HEAD)
    for name in columns:
        table.add_column(name.removesuffix("#"), justify="right" if name.endswith("#") else "left", overflow="fold")
    for row in rows:
        table.add_row(*(clean(cell) for cell in row))
    stdout().print(table)


def clean(value: object) -> Text:
    """Return a cell: without control characters, which could drive the terminal, and without markup."""
    text = "" if value is None else str(value)
    return Text("".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text))


def time_text(milliseconds: int | None) -> str:
    """Return a time in ISO 8601, UTC, with milliseconds."""
    if milliseconds is None:
        return ""
    moment = _EPOCH + timedelta(milliseconds=milliseconds)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def size_text(size: int) -> str:
    """Return a number of bytes as people read it."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"
