"""`custody forget`: hides events from all answers."""

from __future__ import annotations

import getpass
from collections.abc import Iterable
from pathlib import Path

import click

from custody.cli.consent import Consent, asks_first
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, stderr
from custody.errors import InvalidInputError
from custody.repository import EventSelection, Repository


@click.command()
@click.option("--event-id", "event_ids", type=int, multiple=True, help="Events with this id; with --writer.")
@click.option("--flowfile", "uuids", multiple=True, help="Events of the FlowFile with this uuid.")
@click.option("--attribute", "pairs", multiple=True, help="NAME=VALUE: a FlowFile attribute before or after the event.")
@click.option("--from", "from_ms", type=int, default=0, help="Events from this time on, in ms since the epoch.")
@click.option("--to", "to_ms", type=int, default=0, help="Events before this time, in ms since the epoch.")
@click.option("--writer", help="Only events of this writer; otherwise of all of them.")
@click.option("--reason", required=True, help="Why; it stays in the catalog.")
@click.option("--who", help="Who asks for it; the user of this process if not given.")
@asks_first
@json_option
@click.pass_obj
def forget(
    repository: Path,
    event_ids: tuple[int, ...],
    uuids: tuple[str, ...],
    pairs: tuple[str, ...],
    from_ms: int,
    to_ms: int,
    writer: str | None,
    reason: str,
    who: str | None,
    consent: Consent,
    as_json: bool,
) -> None:
    """Let no answer give out events that fulfil all conditions given; later events are not meant.

    A tombstone in the catalog says so, at once, to search, lineage, SQL and reading by id. The events lie on disk until
    a compaction erases them. An ingest does not bring them back.

    \b
    Example:
      custody -r demo forget --attribute customer=4711 --reason "request of 2026-03-02" --yes
    """
    conditions = EventSelection(
        event_ids=event_ids, flowfile_uuids=uuids, from_ms=from_ms, to_ms=to_ms, attributes=attribute_pairs(pairs)
    )
    opened = Repository.open(repository)
    if event_ids and writer is None:
        raise InvalidInputError("--event-id: expected --writer with it, because each writer counts its own event ids.")
    before = None
    if not consent.yes:
        plan = opened.plan_forget(conditions, writer)
        before = plan.before
        for notice in plan.notices:
            stderr().print(clean(notice))
        if as_json:
            print_json(plan.events)
        else:
            print_table("would be forgotten", ("writer", "events#"), list(plan.events.items()))
            if plan.held:
                print_table("stays on disk, hidden", ("hold", "events#"), list(plan.held.items()))
    if not consent.ask("Forget these events?"):
        return
    tombstones = opened.forget(conditions, reason, writer, who=who or getpass.getuser(), before=before)
    if as_json:
        print_json(tombstones)
    else:
        rows = [(item.writer, item.tombstone, item.revision) for item in tombstones]
        print_table("", ("writer", "tombstone", "revision#"), rows)


def attribute_pairs(texts: Iterable[str]) -> dict[str, str]:
    """Return the attributes that options NAME=VALUE name.

    Raises:
        InvalidInputError: one is not of this form.
    """
    return dict(_pair(text) for text in texts)


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise InvalidInputError(f"--attribute: expected NAME=VALUE, got {text!r}.")
    return name, value
