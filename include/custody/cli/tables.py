"""Tables that never tear an identifier or a time apart: a table where it fits, else records of several lines."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from rich import box
from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

_BORDERS = 3  # columns that a table needs for each of its columns besides the text, and one
_FIELD_AND_VALUE = 2
_GAP = "  "


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
    left = width - table_width(least)
    # Who needs least more gets all of it first.
    for number in sorted(range(len(columns)), key=lambda number: natural[number] - least[number]):
        more = min(left, natural[number] - least[number])
        least[number] += more
        left -= more
    return least


def table(
    title: Text | None, columns: Sequence[str], rows: Sequence[Sequence[Text]], widths: Sequence[int], right: set[int]
) -> Table:
    """Return a table with columns of given widths."""
    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD)
    for number, (name, width) in enumerate(zip(columns, widths, strict=True)):
        made.add_column(name, justify="right" if number in right else "left", overflow="fold", width=width)
    for row in rows:
        made.add_row(*row)
    return made


def records(columns: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    """Yield lines that fold no word: of two columns each row as one line, of more each row as `name value` pairs.

    As many pairs stand on a line as fit into `width`; what is longer than a line is left to the terminal.
    """
    if len(columns) == _FIELD_AND_VALUE:
        first = max(cell_len(row[0]) for row in rows)
        for name, value in rows:
            yield _GAP + name + " " * (first - cell_len(name)) + _GAP + value
        yield ""
        return
    told = [list(_record(columns, row, width)) for row in rows]
    is_long = any(len(lines) > 1 for lines in told)
    for lines in told:
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
