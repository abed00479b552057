"""`custody catalog`: the timeline of what is live, with the commands that only look at it.

The commands that write, move or delete are in `catalog_change_cmd`.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec
from google.protobuf import json_format
from google.protobuf.message import Message

from custody.catalog import AddFile, Catalog, CatalogState, Transaction, open_catalog
from custody.catalog.codec import decode
from custody.catalog.difference_summary import difference_summary, listed_log, listed_shard, repairs_between
from custody.catalog.dump_and_load import dump_state
from custody.catalog.transaction_summary import summary_of
from custody.cli.groups import CommandGroup
from custody.cli.options import end_as_earlier_where, json_option, writer_option
from custody.cli.output import print_json, print_table, stderr, time_text
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.errors import ConfigurationError, CorruptionError, CustodyError, FormatVersionError, NotFoundError
from custody.query.times import time_span
from custody.vfs import PosixFileSystem
from custody.workspace import writer_names

_FILE_COLUMNS = ("file", "events#", "bytes#", "first id#", "last id#", "first event", "last event")


@click.group(cls=CommandGroup)
def catalog() -> None:
    """Look at the catalog, which says what is live, and take care of it."""


@catalog.command("log")
@click.option("--from", "start", help="First revision, or a time; default: the earliest that is kept.")
@click.option("--to", "stop", help="Last revision, or a time; default: the newest.")
@click.option(
    "--reasons", is_flag=True, help="Only what was forgotten, held, released, lost, mended or let go: by whom, and why."
)
@writer_option
@json_option
@click.pass_obj
def log(
    repository: Path, start: str | None, stop: str | None, reasons: bool, writer: str | None, as_json: bool
) -> None:
    """Print the catalog's transactions, oldest first; each is checked against its predecessor.

    \b
    Example:
      custody -r demo catalog log
      custody -r demo catalog log --from 2026-03-01
      custody -r demo catalog log --reasons
    """
    _, writer_catalog = load_catalog(repository, writer)
    first = None if start is None else _first_since(writer_catalog, start)
    last = None if stop is None else revision_of(writer_catalog, stop)
    summaries = [summary_of(transaction) for transaction in writer_catalog.timeline(first, last)]
    rows = [msgspec.to_builtins(one) for one in summaries if one.reasons or not reasons]
    if as_json:
        print_json(rows)
        return
    if reasons:
        told = [
            (one.revision, time_text(one.commit_time_ms), each.kind, each.name, each.reason, each.who, each.events)
            for one in summaries
            for each in one.reasons
        ]
        names = ("revision#", "committed", "what", "name", "reason", "who", "events#")
        print_table("", names, told, "nothing was forgotten, held, lost, mended or let go")
        return
    columns = ("revision#", "committed", "uuid", "files added#", "events added#", "shards added#", "removed#", "other")
    print_table("", columns, [_row(row) for row in rows], "no transactions yet")


@catalog.command("attestations")
@json_option
@click.pass_obj
def attestations(repository: Path, as_json: bool) -> None:
    """Print what the attestations in the folder catalog.attestations prove of the catalogs as they are now.

    Whether one was signed by the key that you trust, `custody verify --against FILE --key KEY` tells.

    \b
    Example:
      custody -r demo catalog attestations
    """
    # Imported here: other commands of the catalog need no reader of events.
    from custody.repository import Repository

    kept = Repository.open(repository).attestations()
    if as_json:
        print_json(kept)
        return
    rows = [
        (one.file, one.state, one.writer, one.revision, time_text(one.attested_ms), "; ".join(one.said)) for one in kept
    ]
    names = ("file", "state", "writer", "revision#", "attested", "")
    print_table("", names, rows, "no attestations are kept here (catalog.attestations)")


@catalog.command("show")
@writer_option
@json_option
@click.pass_obj
def show(repository: Path, writer: str | None, as_json: bool) -> None:
    """Print what is live now: files, shards, tombstones.

    \b
    Example:
      custody -r demo catalog show
    """
    _, writer_catalog = load_catalog(repository, writer)
    state = writer_catalog.load()
    for notice in writer_catalog.notices:
        stderr().print(f"notice: {notice}", markup=False)
    _print_state(state, as_json=as_json)


@catalog.command("at")
@click.argument("revision")
@click.option("--check", is_flag=True, help="Fail unless every file of that revision is there.")
@writer_option
@json_option
@click.pass_obj
def at(repository: Path, revision: str, check: bool, writer: str | None, as_json: bool) -> None:
    """Print what was live at REVISION: a number, or a time (the last revision committed by then).

    \b
    Example:
      custody -r demo catalog at 17
      custody -r demo catalog at 2026-03-01T12:00 --json
    """
    _, writer_catalog = load_catalog(repository, writer)
    _print_state(writer_catalog.at(revision_of(writer_catalog, revision), check_files=check), as_json=as_json)


@catalog.command("diff")
@click.argument("former")
@click.argument("later", default="newest")
@writer_option
@json_option
@click.pass_obj
def diff(repository: Path, former: str, later: str, writer: str | None, as_json: bool) -> None:
    """Print what became live and what ceased to be between the revisions (or times) FORMER and LATER.

    Also what was forgotten, held, lost and mended in between, and why.

    \b
    Example:
      custody -r demo catalog diff 3 17
      custody -r demo catalog diff 2026-03-01
    """
    _, writer_catalog = load_catalog(repository, writer)
    ends = revision_of(writer_catalog, former), revision_of(writer_catalog, later)
    changed = writer_catalog.difference(*ends)
    summary = difference_summary(changed, repairs=repairs_between(writer_catalog, *ends))
    if as_json:
        print_json(summary)
        return
    print_table("became live", _FILE_COLUMNS, _file_cells(changed.added.values()), "no files")
    print_table("ceased to be", _FILE_COLUMNS, _file_cells(changed.removed.values()), "no files")
    names = [("+", name) for name in changed.shards_added] + [("-", name) for name in changed.shards_removed]
    print_table("shards", ("", "name"), names, "none")
    for what in ("tombstones", "holds", "losses"):
        rows = [
            (sign, one.name, time_text(one.created_ms), one.reason)
            for sign, part in (("+", "added"), ("-", "removed"))
            for one in getattr(summary, f"{what}_{part}")
        ]
        if rows:
            print_table(what, ("", "name", "made", "reason"), rows)
    if summary.repairs:
        told = [(one.kind, one.name, one.reason, one.who, one.events) for one in summary.repairs]
        print_table("repairs", ("what", "name", "reason", "who", "events#"), told)


@catalog.command("dump")
@click.argument("revision", required=False)
@click.option("--footers", is_flag=True, help="Also the footers that the catalog keeps of its files, in base64.")
@click.option(
    "--state", is_flag=True, help="Print the newest state, or that at REVISION, to edit: custody catalog load."
)
@writer_option
@click.pass_obj
def dump(repository: Path, revision: str | None, footers: bool, state: bool, writer: str | None) -> None:
    """Print every object of the catalog as JSON, one a line, also of a damaged one; nothing is validated.

    Of the footers that the catalog keeps of its files only the length is printed, unless --footers is given. With
    --state not the objects are printed but what is live: a line for the catalog, and one for each entry.

    \b
    Example:
      custody -r demo catalog dump
      custody -r demo catalog dump 17
      custody -r demo catalog dump --state > state.jsonl
    """
    _, writer_catalog = load_catalog(repository, writer)
    if state:
        dumped = writer_catalog.at(revision_of(writer_catalog, revision or "newest"))
        for line in dump_state(writer_catalog, dumped, derived=footers):
            print_json(line)
        return
    objects = writer_catalog.objects
    for item in objects.list() if revision is None else objects.at(revision_of(writer_catalog, revision)):
        entry: dict[str, object] = {"key": item.key, "revision": item.revision, "checkpoint": item.is_checkpoint}
        try:
            data = objects.store.get(item.key)
            entry |= {"bytes": len(data), "message": _message(decode(data, item.key), footers=footers)}
        except CustodyError as error:
            # A damaged object does not end the dump: it is printed with its error.
            entry["error"] = str(error)
        print_json(entry)


def load_catalog(repository: Path, writer: str | None) -> tuple[Settings, Catalog]:
    """Return the settings and a writer's catalog, on whatever store the settings name."""
    settings = load_settings(repository)
    name = writer or settings.repository.writer
    opened = open_catalog(settings, name, PosixFileSystem(), SystemClock())

    def is_earlier() -> bool:
        # A catalog that is damaged ends the command, or is named by it.
        with suppress(CorruptionError, FormatVersionError):
            earlier = opened.earlier_state(opened.load())
            if earlier is not None:
                stderr().print(str(earlier), markup=False)
            return earlier is not None
        return False

    end_as_earlier_where(is_earlier)
    return settings, opened


def load_catalogs(repository: Path, writer: str | None) -> list[Catalog]:
    """Return the catalog of a writer, or of all that have one when none is named."""
    if writer is not None:
        return [load_catalog(repository, writer)[1]]
    settings = load_settings(repository)
    catalogs = [load_catalog(repository, name)[1] for name in writer_names(settings, PosixFileSystem())]
    # A writer that has committed nothing yet has a folder and no catalog.
    return [catalog for catalog in catalogs if next(iter(catalog.objects.list()), None) is not None]


def revision_of(catalog: Catalog, text: str) -> int:
    """Return the revision that a text means: a number, `newest`, or a time in ISO 8601 (UTC unless it says).

    Raises:
        ConfigurationError: it is none of these.
        NotFoundError: there is no such revision.
    """
    if text.isdigit():
        return int(text)
    if text == "newest":
        return catalog.load().revision
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"revision {text!r}: expected a number, newest, or a time like 2026-03-01T12:00."
        ) from error
    # Without an offset UTC, whatever the time zone of this machine: the same command means the same everywhere.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return _revision_at(catalog, int(moment.timestamp() * 1000))


def _revision_at(catalog: Catalog, time_ms: int) -> int:
    uncertain = catalog.uncertain_times(time_ms)
    if uncertain is not None:
        stderr().print(f"{catalog.objects}: {uncertain}", markup=False)
    return catalog.revision_at(time_ms)


def _first_since(catalog: Catalog, text: str) -> int:
    """Return the first revision of a listing that begins at a revision or a time, also one such as `7 days ago`."""
    try:
        if text.endswith(" ago"):
            return _revision_at(catalog, time_span(text, SystemClock().now_ms())[0])
        return revision_of(catalog, text)
    except NotFoundError:
        if text.isdigit():
            raise
        return max(catalog.load().floor, 0)  # all that is kept was committed later


def _file_cells(files: Iterable[AddFile]) -> list[tuple[object, ...]]:
    """Return the cells of a table of files."""
    return [
        (
            file.path,
            file.rows,
            file.size_bytes,
            file.first_event_id,
            file.last_event_id,
            time_text(file.first_event_time_ms),
            time_text(file.last_event_time_ms),
        )
        for file in files
    ]


def _message(transaction: Transaction, *, footers: bool) -> object:
    document = _plain(transaction)
    # A checkpoint has its files encoded, so that it can be read without them.
    files = [_plain(AddFile.FromString(data)) for data in transaction.live_files]
    if files:
        document["live_files"] = files
    listed = [*files, *(action["add_file"] for action in document.get("actions", []) if "add_file" in action)]
    # Kilobytes of base64 a file would hide the rest.
    for file in listed if not footers else ():
        if "footer" in file:
            file["footer"] = f"{len(b64decode(file['footer']))} bytes"
    return document


def _plain(message: Message) -> dict[str, Any]:
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def _print_state(state: CatalogState, *, as_json: bool) -> None:
    files = sorted((state.files[path] for path in state.files), key=lambda file: file.first_event_id)
    if as_json:
        print_json(
            {
                "revision": state.revision,
                "commit_time_ms": state.commit_time_ms,
                "catalog_id": str(state.catalog_id),
                "digest": state.digest.hex(),
                "next_event_id": state.next_event_id,
                "earliest_revision": state.floor,
                "epoch": state.epoch,
                "sealed": None if state.seal is None else state.seal.reason,
                "files": [listed_log(file) for file in files],
                "shards": [listed_shard(state.shards[name]) for name in sorted(state.shards)],
                "tombstones": [_message_of(state, name) for name in sorted(state.tombstones)],
                "absorbed": sorted(state.absorbed),
                "holds": sorted(state.holds),
                "marks": sorted(name for name, mark in state.marks.items() if mark.paths or mark.shards),
            }
        )
        return
    title = f"revision {state.revision} of {time_text(state.commit_time_ms)}, {len(state.shards)} shards"
    print_table(f"{title}, {len(state.tombstones)} tombstones", _FILE_COLUMNS, _file_cells(files), "no files")


def _message_of(state: CatalogState, name: str) -> dict[str, object]:
    stone = state.tombstones[name]
    return {"id": name, "reason": stone.reason, "created_ms": stone.created_ms, "event_ids": len(stone.event_ids)}


def _row(row: dict[str, object]) -> tuple[object, ...]:
    time, other = row["commit_time_ms"], row["other"]
    return (
        row["revision"],
        time_text(time if isinstance(time, int) else None),
        row["uuid"],
        row["files_added"],
        row["events_added"],
        row["shards_added"],
        row["removed"],
        ", ".join(str(kind) for kind in other) if isinstance(other, list) else "",
    )
