"""`custody spool`: the events of a producer that wait on this machine, and their delivery."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
import msgspec

from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, print_table, stderr
from custody.client import DeliverySummary, HttpSender, SpoolDelivery, spool_state
from custody.client.spool_delivery import Sender
from custody.errors import ConfigurationError, ExitCode, LockedError
from custody.format.names import name_as_text

TOKEN_VARIABLE = "CUSTODY_TOKEN"  # noqa: S105 - the name of a variable
_folders = click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path))


@click.group(cls=CommandGroup)
def spool() -> None:
    """Look at the spools of producers, and deliver them to a server or into a repository."""


@spool.command()
@_folders
@json_option
def status(folders: tuple[Path, ...], as_json: bool) -> None:
    """Print what waits in the spools FOLDERS; nothing is changed.

    \b
    Example:
      custody spool status /var/spool/custody
      custody spool status /var/spool/custody --json
    """
    states = {name_as_text(str(folder)): spool_state(folder) for folder in folders}
    if as_json:
        print_json([{"folder": folder, **asdict(state)} for folder, state in states.items()])
        return
    rows = [
        (folder, s.source, s.waiting_events, s.waiting_bytes, s.segments, s.refused, s.damaged_bytes)
        for folder, s in states.items()
    ]
    print_table("", ("spool", "source", "events#", "bytes#", "segments#", "refused#", "damaged bytes#"), rows)


@spool.command()
@_folders
@click.option("--to", "url", metavar="URL", help="Server of custody; without it the repository takes the events.")
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help=f"File with the server's token alone; else {TOKEN_VARIABLE} has it.",
)
@click.option("--authority", type=click.Path(path_type=Path), help="Certificates (PEM) to check the server's with.")
@click.option(
    "--patience",
    default=300.0,
    show_default=True,
    type=click.FloatRange(0),
    help="Seconds to try a server that is away or busy.",
)
@click.option("--follow", is_flag=True, help="Go on until Ctrl-C: deliver what comes.")
@click.option("--poll", default=1.0, show_default=True, type=click.FloatRange(0.05), help="Seconds between looks.")
@json_option
@click.pass_obj
def deliver(
    repository: Path,
    folders: tuple[Path, ...],
    url: str | None,
    token_file: Path | None,
    authority: Path | None,
    patience: float,
    follow: bool,
    poll: float,
    as_json: bool,
) -> None:
    """Deliver the events that wait in the spools FOLDERS, each once.

    A segment goes when all of it was acknowledged. What the server rejects is in its quarantine; what it does not take
    at all is put aside in the folder `refused` of the spool, with the reason.

    \b
    Example:
      custody spool deliver /var/spool/custody --to https://custody.example:5080 --token-file token
      custody -r demo spool deliver /var/spool/custody --json
    """
    summaries = {folder: DeliverySummary() for folder in folders}
    with open_sender(repository, folders[0], url, token_file, authority, patience) as sender:
        while True:
            for folder in folders:
                summaries[folder] = _sum(summaries[folder], _delivered(folder, sender, is_patient=follow))
            if not follow:
                break
            try:
                time.sleep(poll)
            except KeyboardInterrupt:
                break
    if as_json:
        print_json([{"folder": name_as_text(str(f)), **msgspec.structs.asdict(s)} for f, s in summaries.items()])
    else:
        rows = [(str(f), s.stored, s.repeated, s.rejected, s.refused, s.segments) for f, s in summaries.items()]
        print_table("", ("spool", "stored#", "repeated#", "rejected#", "refused#", "segments#"), rows)
    if any(summary.rejected or summary.refused for summary in summaries.values()):
        sys.exit(ExitCode.SOME_WORK_FAILED)


def _delivered(folder: Path, sender: Sender, *, is_patient: bool) -> DeliverySummary:
    def said(events: int) -> None:
        stderr().print(clean(f"custody: {name_as_text(str(folder))}: {events} events delivered"))

    try:
        return SpoolDelivery(folder, sender, progress=said if stderr().is_terminal else lambda _: None).deliver()
    except LockedError:
        if not is_patient:
            raise
        return DeliverySummary()  # another process delivers it now


def _sum(one: DeliverySummary, other: DeliverySummary) -> DeliverySummary:
    names = DeliverySummary.__struct_fields__
    return DeliverySummary(**{name: getattr(one, name) + getattr(other, name) for name in names})


@contextmanager
def open_sender(
    repository: Path, folder: Path, url: str | None, token_file: Path | None, authority: Path | None, patience: float
) -> Iterator[Sender]:
    """Yield where the events of a spool go: to a server, or without its address into the repository.

    Raises:
        UsageError: token or certificates are given, and no server.
        LockedError: live processes hold all writer slots of the repository.
    """
    if url is not None:
        with HttpSender(url, read_token(token_file), authority=authority, patience_seconds=patience) as sender:
            yield sender
        return
    if token_file is not None or authority is not None:
        raise click.UsageError("--token-file and --authority belong to --to")
    # Imported here: a producer's machine delivers to a server, and needs no Arrow for it.
    from custody.repository import Repository
    from custody.repository.spool_sender import sender_into

    with sender_into(Repository.open(repository), folder) as sender:
        yield sender


def read_token(file: Path | None, variable: str = TOKEN_VARIABLE) -> str | None:
    """Return the token that is alone in a file; without one, what a variable has, if anything.

    Raises:
        ConfigurationError: the file cannot be read, or has something else.
    """
    if file is None:
        return os.environ.get(variable) or None
    try:
        token = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{file}: expected a file with a token: {error}") from None
    if not token or len(token.split()) > 1:
        raise ConfigurationError(f"{file}: expected one token and nothing else.")
    return token
