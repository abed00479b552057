"""`custody writers`: which there are, where they lie, retiring one that is done, and the archive of the retired."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, size_text
from custody.config import load_settings
from custody.errors import ExitCode
from custody.repository.writers import (
    WriterEntry,
    absorb_retired,
    absorbable,
    check_retirable,
    list_writers,
    place_writer,
    retire_writer,
)


@click.group(cls=CommandGroup)
def writers() -> None:
    """List writers, place one in a store of its own, retire one that is done, take up the retired in an archive."""


@writers.command("list")
@json_option
@click.pass_obj
def list_all(repository: Path, as_json: bool) -> None:
    """Print the writers with what they stored, and which of them were retired or absorbed.

    \b
    Example:
      custody -r demo writers list
    """
    entries = list_writers(load_settings(repository))
    if as_json:
        print_json(entries)
        return
    rows = [(*_row(item), item.groups_waiting, item.host, _said(item)) for item in entries]
    head = ("writer", "kind", "revision#", "events#", "logs#", "bytes#", "waiting#", "machine", "")
    print_table(f"{len(rows)} writers", head, rows)


@writers.command("place")
@click.argument("writer")
@click.argument("store")
@json_option
@click.pass_obj
def place(repository: Path, writer: str, store: str, as_json: bool) -> None:
    """Let WRITER lie in STORE, such as another bucket, from its first event on.

    The repository's own store has to be an object store; it keeps the record, so that every machine finds the writer.

    \b
    Example:
      custody -r demo writers place plant-7 s3://plant-7/provenance
    """
    done = place_writer(load_settings(repository), writer, store)
    if as_json:
        print_json(done)
    else:
        click.echo(f"writer {writer}: {'lies' if done.is_new else 'lies already'} in {done.store}")


@writers.command("retire")
@click.argument("writer")
@click.option("--reason", required=True, help="Why; it is kept in the catalog.")
@click.option(
    "--dead",
    is_flag=True,
    help="The machine that has the name is dead. If it comes back, it is refused, and its journals are adopted.",
)
@json_option
@asks_first
@click.pass_obj
def retire(repository: Path, writer: str, reason: str, dead: bool, as_json: bool, consent: Consent) -> None:
    """Retire WRITER for good: nothing is appended or committed under its name any more.

    Its events stay readable. They expire and can be forgotten again once the archive has taken them up. Events that
    wait have to be rolled over first.

    \b
    Example:
      custody -r demo writers retire main-2 --reason "its machine was given back"
    """
    settings = load_settings(repository)
    entry = check_retirable(settings, writer, is_machine_dead=dead)
    if not consent.yes:
        click.echo(
            f"writer {writer}: {entry.events} events in {entry.logs} logs; nothing could be stored under the name "
            "any more, for good",
            err=as_json,
        )
    if not consent.ask("Retire the writer?"):
        return
    done = retire_writer(settings, writer, reason, is_machine_dead=dead)
    if as_json:
        print_json(done)
    else:
        click.echo(f"writer {writer}: retired at revision {done.revision}, with {done.events} events: {done.reason}")


@writers.command("absorb")
@click.option("--into", "archive", default="archive", show_default=True, help="Name of the archive.")
@click.option("--workers", type=int, default=1, show_default=True, help="Threads that write logs.")
@json_option
@asks_first
@click.pass_obj
def absorb(repository: Path, archive: str, workers: int, as_json: bool, consent: Consent) -> None:
    """Let the archive take up all retired writers: one writer to read instead of many.

    Their events get ids of the archive: event N of a writer becomes N and a number that `custody writers list` shows.
    Once there is an archive, the step `absorb` of the maintenance does the same by Spark.

    \b
    Example:
      custody -r demo writers absorb --into archive
    """
    settings = load_settings(repository)
    if not consent.yes:
        _print_entries("to be absorbed", absorbable(settings, archive), as_json=as_json)
    if not consent.ask("Absorb them?"):
        return
    report = absorb_retired(settings, archive, workers=workers)
    if as_json:
        print_json(report)
    else:
        for unit in report.details:
            click.echo(f"{unit.unit}: {unit.error or unit.note or 'done'}")
    if report.failed:
        raise click.exceptions.Exit(ExitCode.SOME_WORK_FAILED)


def _print_entries(title: str, entries: list[WriterEntry], *, as_json: bool) -> None:
    if as_json:
        print_json(entries)
        return
    print_table(
        f"{len(entries)} writers {title}",
        ("writer", "kind", "revision#", "events#", "logs#", "bytes#"),
        [_row(item) for item in entries],
    )


def _row(item: WriterEntry) -> tuple[object, ...]:
    return item.writer, item.kind, item.revision, item.events, item.logs, size_text(item.log_bytes)


def _said(item: WriterEntry) -> str:
    if item.archive is not None:
        return f"event N is event {item.first_event_id} + N of {item.archive}"
    return item.reason or ("held by a live process" if item.is_held else "")
