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
from rich.console import Console
from rich.text import Text

from custody.cli.tables import column_widths, records, table, table_width
from custody.format.names import name_as_text

Command = TypeVar("Command", bound=Callable[..., Any])
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KIB = 1024
_CONTROL = re.compile(r"[\x7f-\x9f]")
_WIDTH_PIPED = 200  # a pipe has no width of its own; folding at 80 would tear ids apart


class _Console(Console):
    """A console that leaves to the command's end what happens when nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _has_width(*, err: bool = False) -> bool:
    return (sys.stderr if err else sys.stdout).isatty() or "COLUMNS" in os.environ


def _console(*, err: bool) -> Console:
    width = None if _has_width(err=err) else _WIDTH_PIPED
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
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a name on disk that is no UTF-8
        text = msgspec.json.encode(_as_text(msgspec.to_builtins(value))).decode()
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    click.echo(json_text(value))


def _as_text(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    """Return a value of JSON with every text as `name_as_text` writes it."""
    if isinstance(value, str):
        try:
            return name_as_text(value)
        except UnicodeEncodeError:  # no name of a file has such halves
            return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_as_text(name): _as_text(item) for name, item in value.items()}
    return [_as_text(item) for item in value] if isinstance(value, list | tuple) else value


def print_table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], empty: str = "nothing to show"
) -> None:
    """Print a table; a column whose name ends in a number sign is set right-justified, without the sign.

    Of a table without rows only the title is printed, with `empty` where it does not say already that there are none.

    Where it is wider than the terminal, its rows become records of several lines: what is printed can be copied whole.
    """
    console = stdout()
    cells = [[clean(cell) for cell in row] for row in rows]
    plain = [[cell.plain for cell in row] for row in cells]
    if not cells:
        says_it = title.startswith("0 ")
        console.print(clean(title if says_it else "; ".join(part for part in (title, empty) if part)))
        return
    names = [name.removesuffix("#") for name in columns]
    # A pipe has no width of its own: a table there is as wide as it has to be.
    widths = column_widths(names, plain, console.width if _has_width() else sys.maxsize)
    heading = clean(title) if title else None
    if widths is None:
        for line in [*([heading.plain, ""] if heading else []), *records(names, plain, console.width)]:
            console.print(clean(line))
        return
    right = {number for number, name in enumerate(columns) if name.endswith("#")}
    if not _has_width():
        console.width = max(console.width, table_width(widths))
    console.print(table(heading, names, cells, widths, right))


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
