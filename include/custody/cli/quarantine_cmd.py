"""`custody quarantine`: input that could not be stored: list it, try it again, remove it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from custody.capture import Format
from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, stderr, time_text
from custody.errors import ExitCode
from custody.ngsi_sink.opening import resubmit_pieces
from custody.ngsi_sink.resubmission import is_removable, require_removable
from custody.quarantine import QuarantineEntry
from custody.repository import FileReport, Repository

_ENTRIES_SHOWN = 200


@click.group(cls=CommandGroup)
def quarantine() -> None:
    """Look at rejected input and try it again."""


@quarantine.command("list")
@json_option
@click.pass_obj
def list_entries(repository: Path, as_json: bool) -> None:
    """Print what is in the quarantine, and why.

    A warning is about an event that was stored all the same.

    \b
    Example:
      custody -r demo quarantine list
    """
    entries = sorted(Repository.open(repository).quarantine.entries(), key=lambda entry: entry.received_ms)
    if as_json:
        print_json(entries)
        return
    _print_entries(f"{len(entries)} pieces", entries)


@quarantine.command("show")
@click.argument("key")
@click.pass_obj
def show(repository: Path, key: str) -> None:
    """Write the piece with the key KEY to stdout, byte for byte as it came.

    \b
    Example:
      custody -r demo quarantine show 3f2a9c0d11e45b67 > piece.json
    """
    sys.stdout.buffer.write(Repository.open(repository).quarantine.raw(key))


@quarantine.command("resubmit")
@click.argument("keys", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Try every piece.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice([format.value for format in Format]),
    help="Read the pieces as this, not as what they were.",
)
@json_option
@click.pass_obj
def resubmit(repository: Path, keys: tuple[str, ...], everything: bool, format_name: str | None, as_json: bool) -> None:
    """Try the pieces with the keys KEYS again; what is stored leaves the quarantine.

    What the sink of NGSI could not write is left to its next run: custody run ngsi_to_hdfs.

    \b
    Example:
      custody -r demo quarantine resubmit --all
    """
    opened = Repository.open(repository)
    if everything == bool(keys):
        raise click.UsageError("name KEYS or give --all")
    keys_wanted = [entry.key for entry in opened.quarantine.entries()] if everything else list(keys)
    format = None if format_name is None else Format(format_name)
    done = resubmit_pieces(opened, keys_wanted, format)
    reports = list(done.reports.values())
    if as_json:
        print_json(reports)
    else:
        print_table("", ("key", "stored#", "repeated#", "rejected#"), list(map(_outcome, done.reports, reports)))
    if done.left_to_sink:
        stderr().print(f"custody: {len(done.left_to_sink)} pieces are left to the next run of ngsi_to_hdfs")
    if any(report.rejected for report in reports):
        sys.exit(ExitCode.SOME_WORK_FAILED)


@quarantine.command("remove")
@click.argument("keys", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="All pieces; --code and --file narrow it.")
@click.option("--code", "codes", multiple=True, help="With --all, those rejected for this reason; may be repeated.")
@click.option("--file", "files", multiple=True, help="With --all, those of the file of this name; may be repeated.")
@asks_first
@json_option
@click.pass_obj
def remove(
    repository: Path,
    keys: tuple[str, ...],
    everything: bool,
    codes: tuple[str, ...],
    files: tuple[str, ...],
    consent: Consent,
    as_json: bool,
) -> None:
    """Forget the pieces with the keys KEYS, or all of them, for good.

    What the sink of NGSI could not write is part of its work and cannot be removed; --all leaves it.

    \b
    Example:
      custody -r demo quarantine remove 3f2a9c0d11e45b67
      custody -r demo quarantine remove --all --code contradiction --yes
    """
    if everything == bool(keys):
        raise click.UsageError("name KEYS or give --all")
    if keys and (codes or files):
        raise click.UsageError("--code and --file narrow --all, and mean nothing with KEYS")
    room = Repository.open(repository).quarantine
    if everything:
        names = {Path(file).name for file in files}
        entries = [entry for entry in room.entries() if _is_wanted(entry, set(codes), names)]
    else:
        entries = [room.get(key) for key in keys]
    require_removable(entries)

    def show(*, done: bool) -> None:
        if as_json:
            print_json({"done": done, "entries": entries})
        else:
            _print_entries(f"{len(entries)} pieces {'removed' if done else 'would go'}", entries)

    if not consent.yes:
        show(done=False)
    if consent.yes or (entries and consent.ask("Remove these pieces?")):
        room.remove(*(entry.key for entry in entries))
        show(done=True)


def _is_wanted(entry: QuarantineEntry, codes: set[str], files: set[str]) -> bool:
    """Whether --all means an entry; nothing in a filter means any."""
    is_of_code = not codes or entry.code in codes
    is_of_file = not files or Path(entry.file).name in files
    return is_removable(entry) and is_of_code and is_of_file


def _print_entries(title: str, entries: Sequence[QuarantineEntry]) -> None:
    print_table(
        title,
        ("key", "received", "severity", "code", "file", "place", "bytes#", "reason"),
        [_row(entry) for entry in entries[:_ENTRIES_SHOWN]],
    )
    if len(entries) > _ENTRIES_SHOWN:
        stderr().print(f"… and {len(entries) - _ENTRIES_SHOWN} more; custody quarantine list --json prints all")


def _row(entry: QuarantineEntry) -> tuple[object, ...]:
    place = "whole file" if entry.index is None else f"event {entry.index}, byte {entry.offset}"
    received = time_text(entry.received_ms)
    return (
        entry.key,
        received,
        entry.severity,
        entry.code,
        Path(entry.file).name,
        place,
        entry.size_bytes,
        entry.message,
    )


def _outcome(key: str, report: FileReport) -> tuple[object, ...]:
    return key, report.stored, report.repeated, report.rejected
