"""Output of commands: data to stdout, talk to stderr; text from outside never reaches the terminal unescaped.

Tables that never tear an identifier or a time apart: a table where it fits, else records of several lines.
"""

from __future__ import annotations

import errno
import os
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import click
import msgspec
from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from custody.format.names import name_as_text

if TYPE_CHECKING:
    from custody.config import Settings
    from custody.model import Event
    from custody.store import Traffic

_BORDERS = 3  # columns that a table needs for each of its columns besides the text, and one
_FIELD_AND_VALUE = 2
_GAP = "  "
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_KIB = 1024
_CONTROL = re.compile(r"[\x7f-\x9f]")
_WIDTH_PIPED = 200  # a pipe has no width of its own; folding at 80 would tear ids apart


def stdout() -> Console:
    """Return the console for data; made anew each time, so that tests can redirect the stream."""
    return _console(err=False)


def stderr() -> Console:
    """Return the console for talk."""
    return _console(err=True)


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something takes a while, where nobody knows how long."""
    with stderr().status(clean(f"{what} …")) if sys.stderr.isatty() else nullcontext():
        yield


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    click.echo(json_text(value))


def json_text(value: object) -> str:
    """Return one JSON document on one line; JSON itself leaves DEL and the C1 control characters as they are."""
    try:
        text = msgspec.json.encode(value).decode()
    except UnicodeEncodeError:  # a name on disk that is no UTF-8
        text = msgspec.json.encode(_as_text(msgspec.to_builtins(value))).decode()
    return _CONTROL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def answered(event: Event, settings: Settings, *, whole: bool) -> Event:
    """Return an event as an answer shows it: with long attributes cut, unless they are to be `whole`."""
    # Imported here: most commands print no event.
    from custody.model import shortened

    return event if whole else shortened(event, settings.query.attribute_characters_max)


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
        # Where no width is given nothing has to fit, so no cell is folded.
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


def table_width(widths: Sequence[int]) -> int:
    """Return how wide a table with such columns is."""
    return sum(widths) + _BORDERS * len(widths) + 1


def column_widths(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> list[int] | None:
    """Return the widths of columns that fit into `width` and fold no word; None where there are none."""
    cells = [[name, *(row[number] for row in rows)] for number, name in enumerate(columns)]
    natural = [max(map(cell_len, column)) for column in cells]
    least = [max((cell_len(word) for cell in column for word in cell.split()), default=0) for column in cells]
    if table_width(least) > width:
        return None
    spare = width - table_width(least)
    # Who needs least more gets all of it first.
    for number in sorted(range(len(columns)), key=lambda number: natural[number] - least[number]):
        more = min(spare, natural[number] - least[number])
        least[number] += more
        spare -= more
    return least


def table(
    title: Text | None, columns: Sequence[str], rows: Sequence[Sequence[Text]], widths: Sequence[int], right: set[int]
) -> Table:
    """Return a table with columns of given widths."""
    grid = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, (name, width) in enumerate(zip(columns, widths, strict=True)):
        grid.add_column(name, justify="right" if number in right else "left", overflow="fold", width=width)
    for row in rows:
        grid.add_row(*row)
    return grid


def records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield lines that fold no word: of two columns each row as one line, of more each row as `name value` pairs.

    A line has as many pairs as fit into `width`; what is longer than a line is left to the terminal.
    """
    if len(columns) == _FIELD_AND_VALUE:
        first = max(cell_len(row[0]) for row in rows)
        for name, value in rows:
            yield _GAP + name + " " * (first - cell_len(name)) + _GAP + value
        yield ""
        return
    blocks = [list(_record(columns, row, width)) for row in rows]
    is_long = any(len(lines) > 1 for lines in blocks)
    for lines in blocks:
        yield from lines
        if is_long:
            yield ""


def _record(columns: Sequence[str], row: Sequence[str], width: int) -> Iterator[str]:
    line = ""
    for name, cell in zip(columns, row, strict=True):
        pair = f"{name} {cell}"
        if cell and line and cell_len(line) + len(_GAP) + cell_len(pair) > width:
            yield from _lines(line, width)
            line = ""
        if cell:
            line = f"{line}{_GAP}{pair}" if line else pair
    yield from _lines(line, width)


def _lines(line: str, width: int) -> list[str]:
    if cell_len(line) <= width:
        return [line]
    return textwrap.wrap(line, max(width, len(_GAP) + 1), subsequent_indent=_GAP, break_long_words=False) or [line]


class _Console(Console):
    """A console that leaves to the command's end what happens when nobody reads it any more."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))


def _has_width(*, err: bool = False) -> bool:
    return (sys.stderr if err else sys.stdout).isatty() or "COLUMNS" in os.environ


def _console(*, err: bool) -> Console:
    width = None if _has_width(err=err) else _WIDTH_PIPED
    # rich alone would leave bold and dim letters under NO_COLOR.
    is_plain = bool(os.environ.get("NO_COLOR"))
    return _Console(
        stderr=err,
        soft_wrap=True,
        highlight=False,
        # Nothing that is printed has either, and to look for them loads a table of all emoji.
        markup=False,
        emoji=False,
        width=width,
        color_system=None if is_plain else "auto",
    )


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


def traffic_text(traffic: Traffic) -> str:
    """Return what was asked of an object store in a few words; nothing where the store is a folder."""
    if not traffic.count:
        return ""
    kinds = ", ".join(f"{kind} {number}" for kind, number in sorted(traffic.requests.items()))
    sizes = f"{size_text(traffic.bytes_read)} read, {size_text(traffic.bytes_written)} written"
    return f"requests to the store: {traffic.count} ({kinds}), {sizes}"
