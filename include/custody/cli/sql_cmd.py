"""`custody sql`: events asked in SQL."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
import pyarrow as pa

from custody.cli.options import Duration, answering_own, as_of_option, json_option
from custody.cli.output import clean, print_json, print_table, stderr
from custody.errors import ConfigurationError
from custody.sql.plain_values import plain_rows

if TYPE_CHECKING:
    from custody.catalog.pruning import PrunedReads
    from custody.read.sql import SqlResult
    from custody.read.time_travel import AsOf

_INFINITE_DAYS = (1 << 31) - 1  # the engine's word for a day without end

_TIMEOUT = Duration(plain_unit="s", least_ms=1)


@click.command()
@click.argument("query")
@click.option(
    "--limit", "-n", type=click.IntRange(min=0), default=1000, show_default=True, help="Rows to print; 0 for all."
)
@click.option(
    "--timeout",
    "timeout_ms",
    type=_TIMEOUT,
    help="How long the query may take, such as 30s; without a unit, in seconds.",
)
@as_of_option
@click.option("--writer", "-w", help="Only what is this writer's; needed with a REVISION where there are several.")
@click.option("--skip-damaged", is_flag=True, help="Leave out what is damaged; reads every log from end to end.")
@click.option("--explain", is_flag=True, help="Say how many logs and blocks were left out, and what ruled them out.")
@click.option(
    "--software-revision",
    type=click.IntRange(min=0),
    help="Read the tables of software as of this revision of their catalog.",
)
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV instead of a table.")
@json_option
@click.pass_obj
def sql(
    repository: Path,
    query: str,
    limit: int,
    timeout_ms: int | None,
    as_of: AsOf | None,
    writer: str | None,
    skip_damaged: bool,
    explain: bool,
    software_revision: int | None,
    as_csv: bool,
    as_json: bool,
) -> None:
    """Print the rows of QUERY, one SELECT over all events of all writers, those included that are not live yet.

    Tables: events, logs, transactions, and software_* of the provenance of software (docs/sql.md). With
    --json each row is one line.

    \b
    Example:
      custody -r demo sql "select event_type, count(*) from events group by all"
    """
    if as_csv and as_json:
        raise ConfigurationError("--csv and --json exclude each other.")
    seconds_max = None if timeout_ms is None else timeout_ms / 1000
    opened = answering_own(repository)
    with opened.sql(
        query,
        seconds_max=seconds_max,
        skip_damaged=skip_damaged,
        writer=writer,
        as_of=as_of,
        software_revision=software_revision,
    ) as result:
        rows = plain_rows(result.batches())
        # Read as they come: a result may be larger than the memory.
        shown = islice(rows, limit or None)
        if as_json:
            for row in shown:
                print_json(dict(zip(result.schema.names, row, strict=True)))
        elif as_csv:
            _print_csv(result, shown)
        else:
            names = [f"{field.name}#" if _is_number(field.type) else field.name for field in result.schema]
            print_table("", names, ([_text(value) for value in row] for row in shown))
        talk = stderr()
        # One row more is read, to see whether there is one.
        if limit and next(rows, None) is not None:
            talk.print(clean(f"There are more rows than {limit}; --limit 0 prints all of them."))
        for notice in result.notices:
            talk.print(clean(notice))
        if explain:
            talk.print(clean(_explained(result.explained)))


def _explained(reads: PrunedReads) -> str:
    """Say what was read, on one line: stdout has the rows alone."""
    by = ", ".join(f"{name} {count}" for name, count in sorted(reads.by.items()))
    left = f"{reads.logs - reads.logs_pruned} of {reads.logs} logs"
    if reads.blocks:
        left += f", {reads.blocks - reads.blocks_pruned} of {reads.blocks} blocks"
    return f"read: {left}" + (f"; blocks ruled out by {by}" if by else "; the catalog rules out nothing")


def _text(value: object) -> object:
    return value if value is None or isinstance(value, str | int | float) else msgspec.json.encode(value).decode()


def _is_number(kind: pa.DataType) -> bool:
    is_number: bool = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
    return is_number


def _print_csv(result: SqlResult, rows: Iterator[list[object]]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    # Control characters can only drive a terminal: a file gets the data as they are.
    safe = clean if sys.stdout.isatty() else (lambda value: value)
    writer.writerow(map(safe, result.schema.names))
    for row in rows:
        writer.writerow("" if value is None else safe(_text(value)) for value in row)
