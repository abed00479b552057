"""`custody hold`: legal holds, which neither retention nor compaction overrides."""

from __future__ import annotations

import getpass
from pathlib import Path

import click

from custody.cli.forget_cmd import attribute_pairs
from custody.cli.groups import CommandGroup
from custody.cli.options import answering_own, json_option
from custody.cli.output import print_json, print_table, time_text
from custody.errors import InvalidInputError
from custody.repository import EventSelection, Hold, Repository


@click.group(cls=CommandGroup)
def hold() -> None:
    """Keep events from being expired or erased, whatever the settings say."""


@hold.command("add")
@click.argument("name")
@click.option("--event-id", "event_ids", type=int, multiple=True, help="Events with this id; with --writer.")
@click.option("--flowfile", "uuids", multiple=True, help="Events of the FlowFile with this uuid.")
@click.option("--attribute", "pairs", multiple=True, help="NAME=VALUE: a FlowFile attribute before or after the event.")
@click.option("--event-type", "types", multiple=True, help="Events of this type.")
@click.option("--from", "from_ms", type=int, default=0, help="Events from this time on, in ms since the epoch.")
@click.option("--to", "to_ms", type=int, default=0, help="Events before this time, in ms since the epoch.")
@click.option("--writer", help="Only events of this writer; otherwise of all of them.")
@click.option("--reason", required=True, help="Why; it stays in the catalog.")
@click.option("--who", help="Who asks for it; the user of this process if not given.")
@click.pass_obj
def add(
    repository: Path,
    name: str,
    event_ids: tuple[int, ...],
    uuids: tuple[str, ...],
    pairs: tuple[str, ...],
    types: tuple[str, ...],
    from_ms: int,
    to_ms: int,
    writer: str | None,
    reason: str,
    who: str | None,
) -> None:
    """Hold the events that fulfil all conditions given, later ones included, under a name.

    An event log with a held event does not expire. An event that was forgotten is still not given out, but stays on
    disk while it is held.

    \b
    Example:
      custody -r demo hold add case-17 --attribute customer=4711 --reason "court order of 2026-03-02"
    """
    if event_ids and writer is None:
        raise InvalidInputError("--event-id: expected --writer with it, because each writer counts its own event ids.")
    conditions = EventSelection(
        event_ids=event_ids, flowfile_uuids=uuids, from_ms=from_ms, to_ms=to_ms, attributes=attribute_pairs(pairs)
    )
    opened = Repository.open(repository)
    opened.hold(name, conditions, reason, who or getpass.getuser(), event_types=types, writer=writer)


@hold.command("list")
@json_option
@click.pass_obj
def list_holds(repository: Path, as_json: bool) -> None:
    """List the holds that stand.

    \b
    Example:
      custody -r demo hold list
    """
    holds = answering_own(repository).holds()
    if as_json:
        print_json(holds)
        return
    rows = [
        (item.name, ", ".join(item.writers), _conditions(item), item.reason, item.who, time_text(item.created_ms))
        for item in holds
    ]
    print_table("", ("hold", "writers", "events", "reason", "who", "since"), rows, "no holds")


@hold.command("release")
@click.argument("name")
@click.option("--reason", required=True, help="Why; it stays in the catalog.")
@click.option("--who", help="Who asks for it; the user of this process if not given.")
@click.pass_obj
def release(repository: Path, name: str, reason: str, who: str | None) -> None:
    """End a hold; what should have expired goes with the next pass of retention.

    \b
    Example:
      custody -r demo hold release case-17 --reason "case closed"
    """
    Repository.open(repository).release(name, reason, who or getpass.getuser())


def _conditions(item: Hold) -> str:
    parts = [f"event ids {', '.join(map(str, item.event_ids))}"] if item.event_ids else []
    parts += [f"FlowFiles {', '.join(item.flowfile_uuids)}"] if item.flowfile_uuids else []
    parts += [f"types {', '.join(item.event_types)}"] if item.event_types else []
    parts += [f"{name}={value}" for name, value in sorted(item.attributes.items())]
    parts += [f"{time_text(item.from_ms)} to {time_text(item.to_ms)}"] if item.to_ms else []
    return " and ".join(parts)
