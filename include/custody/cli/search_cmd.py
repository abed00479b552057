"""`custody search`: events that match a query."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.output import clean, json_option, print_json, print_table, stderr, time_text
from custody.repository import Repository, StoredEvent


@click.command()
@click.argument("query", default="")
@click.option("--limit", "-n", type=click.IntRange(min=1), default=20, show_default=True, help="Events to print.")
@click.option("--offset", type=click.IntRange(min=0), default=0, help="Events to pass over first.")
@json_option
@click.pass_obj
def search(repository: Path, query: str, limit: int, offset: int, as_json: bool) -> None:
    """Print the events that match QUERY, newest first; without QUERY all of them.

    Fields, ranges, wildcards, AND, OR and NOT: docs/query.md.

    \b
    Example:
      custody -r demo search "event_type:SEND AND event_time:[2026-03-01 TO 2026-03-31]"
    """
    result = Repository.open(repository).search(query, limit=limit, offset=offset)
    talk = stderr()
    for notice in result.notices:
        talk.print(clean(notice))
    if as_json:
        print_json({"total": result.total, "events": [_document(stored) for stored in result.events]})
        return
    print_table(
        f"{result.total} events",
        ("writer", "event#", "time", "type", "component", "FlowFile", "filename"),
        [_row(stored) for stored in result.events],
    )


def _document(stored: StoredEvent) -> dict[str, object]:
    return {"writer": stored.writer, "event": stored.event}


def _row(stored: StoredEvent) -> tuple[object, ...]:
    event = stored.event
    component = event.component_name or event.component_type
    return (
        stored.writer,
        event.event_id,
        time_text(event.event_time),
        event.event_type,
        component,
        event.flowfile_uuid,
        event.filename,
    )
