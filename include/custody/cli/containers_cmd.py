"""`custody containers`: the disks of a repository, forgetting one that is lost, and claiming a writer's name."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text
from custody.config import load_settings
from custody.repository.containers import claim_writer_name, container_statuses, forget_container


@click.group(cls=CommandGroup)
def containers() -> None:
    """Look at the containers of all writers, forget a lost one, claim a name."""


@containers.command("list")
@json_option
@click.pass_obj
def list_containers(repository: Path, as_json: bool) -> None:
    """Print which containers belong to which writer, and which of them are missing.

    \b
    Example:
      custody -r demo containers list
    """
    entries = container_statuses(load_settings(repository))
    if as_json:
        print_json(entries)
        return
    rows = [
        (
            item.writer,
            item.container,
            item.path,
            "missing" if item.is_missing else "there",
            item.journals,
            size_text(item.journal_bytes),
        )
        for item in entries
    ]
    print_table(f"{len(rows)} containers", ("writer", "container", "path", "state", "journals#", "bytes#"), rows)


@containers.command("drop")
@click.argument("identity")
@asks_first
@click.pass_obj
def drop(repository: Path, identity: str, consent: Consent) -> None:
    """Forget the missing container IDENTITY, whose disk is lost for good.

    Events that only its journals held are lost with it. Their ids are not given out again.

    \b
    Example:
      custody -r demo containers drop 6f1c2d3e000040008000000000000001
    """
    settings = load_settings(repository)
    if not consent.yes:
        click.echo(f"events that only the journals of container {identity} hold would be lost", err=True)
    if not consent.ask("Forget the container?"):
        return
    for writer in forget_container(settings, identity):
        click.echo(f"writer {writer}: container {identity} is forgotten")


@containers.command("claim")
@click.argument("writer")
@asks_first
@click.pass_obj
def claim(repository: Path, writer: str, consent: Consent) -> None:
    """Make the containers of this repository those of the name WRITER, which others have claimed.

    For containers that were all replaced by hand, and for a machine that takes over from one that is gone. A process
    elsewhere that still has the name is refused; what its containers hold and the store does not is not lost, but no
    answer has it before `custody recover --adopt` was run there.

    \b
    Example:
      custody -r demo containers claim main
    """
    settings = load_settings(repository)
    if not consent.yes:
        click.echo(f"the machine that has the writer name {writer} now could not go on with it", err=True)
    if not consent.ask("Claim the name?"):
        return
    # Not at the top: the other commands need no sink.
    from custody.ngsi_sink.opening import sink_cursors
    from custody.repository import Repository

    # The sink reads journals, too: it would pass over new events with ids that its cursor has passed.
    taken = sink_cursors(Repository(settings)).get(writer, 0)
    claimed = claim_writer_name(settings, writer, ids_taken_below=taken)
    click.echo(f"writer {writer}: incarnation {claimed.incarnation}, from event id {claimed.first_event_id} on")
