"""`custody content`: the contents of FlowFiles, from the content repository."""

from __future__ import annotations

import codecs
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from custody.cli.consent import Consent, asks_first
from custody.cli.groups import CommandGroup
from custody.cli.options import as_of_option, json_option, writer_option
from custody.cli.output import clean as clean_text
from custody.cli.output import print_json, print_table, size_text, stderr
from custody.cli.swh_output import print_occurrences
from custody.errors import ConfigurationError
from custody.repository import Content, Repository
from custody.repository.content_listing import CleanedContents
from custody.swh import content_swhid
from custody.vfs import PosixFileSystem, temporary

if TYPE_CHECKING:
    from custody.read.time_travel import AsOf

_UNSAFE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


@click.group(cls=CommandGroup)
def content() -> None:
    """Read the contents that events speak of."""


@content.command()
@click.argument("event_id", type=click.IntRange(min=0))
@click.option("--previous", is_flag=True, help="The content before the event, not after it.")
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, dir_okay=False), help="Write to this new file, not to stdout."
)
@click.option("--raw", is_flag=True, help="Write to a terminal whatever it is, control characters included.")
@as_of_option
@writer_option
@click.pass_obj
def get(
    repository: Path,
    event_id: int,
    previous: bool,
    output: Path | None,
    raw: bool,
    as_of: AsOf | None,
    writer: str | None,
) -> None:
    """Write the content of the event with the id EVENT_ID, checked while it is written.

    A file gets its name when all of it is there. On damage the exit code is 20, and stdout has only what
    is right. Control characters go to a terminal only with --raw.

    \b
    Example:
      custody -r demo content get 42 -o notification.json
    """
    at = Repository.open(repository)
    stored = at.content(at.get(event_id, writer, as_of=as_of), previous=previous)
    if stored.differs is not None:
        stderr().print(clean_text(f"{stored.differs}."))
    if output is not None:
        _write_file(output, stored)
        return
    stream = sys.stdout.buffer
    chunks = stored.chunks()
    for chunk in _printable(chunks) if stream.isatty() and not raw else chunks:
        stream.write(chunk)
    stream.flush()


@content.command()
@click.argument("event_id", type=click.IntRange(min=0))
@click.option("--previous", is_flag=True, help="The content before the event, not after it.")
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="The oldest so many.")
@as_of_option
@writer_option
@json_option
@click.pass_obj
def where(
    repository: Path,
    event_id: int,
    previous: bool,
    limit: int,
    as_of: AsOf | None,
    writer: str | None,
    as_json: bool,
) -> None:
    """Print in which revisions and releases of software the content of an event is, oldest first.

    The content is asked for by the hash that git gives it, in the provenance tables that were published
    (docs/swh.md). The exit code is 12 when they do not have it.

    \b
    Example:
      custody -r demo content where 42
    """
    at = Repository.open(repository)
    swhid = content_swhid(at.content(at.get(event_id, writer, as_of=as_of), previous=previous))
    print_occurrences({swhid: at.software().occurrences(swhid, limit)}, as_json)


@content.command("list")
@writer_option
@json_option
@click.pass_obj
def list_claims(repository: Path, writer: str | None, as_json: bool) -> None:
    """List the files of the content repository, with their sizes and how many contents each holds.

    \b
    Example:
      custody -r demo content list
    """
    claims = Repository.open(repository).contents(writer)
    if as_json:
        for item in claims:
            print_json(msgspec.to_builtins(item))
        return
    rows = [(item.claim, item.contents, size_text(item.bytes), item.problem) for item in claims]
    print_table("", ("claim", "contents#", "size#", "problem"), rows)


@content.command()
@asks_first
@json_option
@click.pass_obj
def clean(repository: Path, consent: Consent, as_json: bool) -> None:
    """Delete the files whose contents no event speaks of, as a crash or a producer that gave up leaves them.

    Files that were written in the last content.unused_minutes stay.

    \b
    Example:
      custody -r demo content clean --dry-run
      custody -r demo content clean --yes
    """
    opened = Repository.open(repository)
    if not consent.yes:
        plan = opened.clean_contents(apply=False)
        _print_cleaned(plan, as_json=as_json)
    if consent.yes or (plan.claims and consent.ask("Delete these files?")):
        _print_cleaned(opened.clean_contents(apply=True), as_json=as_json)


def _print_cleaned(cleaned: CleanedContents, *, as_json: bool) -> None:
    if as_json:
        print_json(cleaned)
        return
    print_table("", ("claim",), [(name,) for name in cleaned.claims])
    what = "deleted" if cleaned.is_applied else "would be deleted"
    stderr().print(clean_text(f"{len(cleaned.claims)} files, {size_text(cleaned.bytes)}, {what}"))


def _write_file(path: Path, source: Content) -> None:
    fs = PosixFileSystem()
    if fs.exists(path):
        raise ConfigurationError(f"{path}: exists already. Name a new file.")
    # A content is checked while it is read: on damage no file has the name that was asked for.
    partial = temporary(path)
    try:
        with fs.create(partial) as file:
            for chunk in source.chunks():
                file.write(chunk)
            file.sync()
        fs.rename(partial, path)
    except BaseException:
        fs.remove(partial)
        raise
    fs.sync_directory(path.absolute().parent)


def _printable(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield chunks that a terminal only shows.

    Raises:
        ConfigurationError: one would drive it, or is no text.
    """
    # Incremental, as a character may lie across two chunks.
    decoder = codecs.getincrementaldecoder("utf-8")()
    for chunk in chunks:
        try:
            text = decoder.decode(chunk)
        except UnicodeDecodeError:
            raise _refused("is no text") from None
        if _UNSAFE.search(text):
            raise _refused("has control characters")
        yield chunk


def _refused(what: str) -> ConfigurationError:
    return ConfigurationError(f"the content {what}, which can drive a terminal. Use -o FILE, a pipe, or --raw.")
