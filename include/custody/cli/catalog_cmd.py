"""`custody catalog`: the timeline of what is live."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from custody.catalog import Transaction
from custody.cli.output import json_option, print_json, print_table, time_text, writer_option
from custody.repository import Repository


@click.group()
def catalog() -> None:
    """Look at the catalog, which says what is live."""


@catalog.command("log")
@writer_option
@json_option
@click.pass_obj
def log(repository: Path, writer: str | None, as_json: bool) -> None:
    """Print the catalog's transactions, oldest first; each is checked against its predecessor.

    \b
    Example:
      custody -r demo catalog log
    """
    rows = [_summary(transaction) for transaction in Repository.open(repository).timeline(writer)]
    if as_json:
        print_json(rows)
        return
    columns = ("revision#", "committed", "uuid", "files added#", "events added#", "shards added#", "removed#")
    print_table("", columns, [_row(row) for row in rows])


def _summary(transaction: Transaction) -> dict[str, object]:
    kinds = [action.WhichOneof("kind") for action in transaction.actions]
    return {
        "revision": transaction.revision,
        "commit_time_ms": transaction.commit_time_ms,
        "uuid": str(UUID(bytes=transaction.uuid)),
        "previous_digest": transaction.previous_digest.hex(),
        "files_added": kinds.count("add_file"),
        "events_added": sum(action.add_file.rows for action in transaction.actions if action.HasField("add_file")),
        "shards_added": kinds.count("add_shard"),
        "removed": kinds.count("remove_file") + kinds.count("remove_shard"),
    }


def _row(summary: dict[str, object]) -> tuple[object, ...]:
    time = summary["commit_time_ms"]
    return (
        summary["revision"],
        time_text(time if isinstance(time, int) else None),
        summary["uuid"],
        summary["files_added"],
        summary["events_added"],
        summary["shards_added"],
        summary["removed"],
    )
