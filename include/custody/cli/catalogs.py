"""What the commands of the catalog share: opening one, words for its contents, asking before anything goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import click

from custody.catalog import AddFile, AddShard, Catalog, Transaction, open_catalog, store_of
from custody.cli.output import time_text
from custody.clock import SystemClock
from custody.config import Settings, load_settings
from custody.config.parsing import is_local
from custody.errors import ConfigurationError
from custody.format.names import COMPACT_LEASE, RETENTION_LEASE, is_name
from custody.journal import lock_path
from custody.lease import Attempt
from custody.vfs import PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, take_lease

Command = TypeVar("Command", bound=Callable[..., Any])
_DURATION = re.compile(r"(\d+)(ms|s|m|h|d)")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def opened(repository: Path, writer: str | None) -> tuple[Settings, Catalog]:
    """Return settings and the catalog of a writer, on whatever store the settings name."""
    settings = load_settings(repository)
    name = writer or settings.repository.writer
    return settings, open_catalog(settings, name, PosixFileSystem(), SystemClock())


def opened_all(repository: Path, writer: str | None) -> list[Catalog]:
    """Return the catalog of a writer, or of all that have one when none is named."""
    if writer is not None:
        return [opened(repository, writer)[1]]
    settings = load_settings(repository)
    names = [name for name in store_of(settings, PosixFileSystem()).folders("") if is_name(name)]
    catalogs = [opened(repository, name)[1] for name in names]
    return [catalog for catalog in catalogs if next(iter(catalog.objects.list()), None) is not None]


def dry_run_option(command: Command) -> Command:
    """Give a command the option --dry-run."""
    return click.option("--dry-run", is_flag=True, help="Only say what would be done.")(command)


def yes_option(command: Command) -> Command:
    """Give a command the option --yes."""
    return click.option("--yes", is_flag=True, help="Do it; without this nothing is changed.")(command)


def accept_loss_option(command: Command) -> Command:
    """Give a command the option --accept-loss."""
    text = "Do it even if events may be given out again that were forgotten or had expired."
    return click.option("--accept-loss", is_flag=True, help=text)(command)


@contextmanager
def undisturbed(settings: Settings, writer: str) -> Iterator[None]:
    """Hold what a writer and the steps on its files need, so that nobody else changes its catalog.

    Raises:
        LockedError: a writer lives under this name, or a step, a compaction or a retention is at work.
    """
    if not is_local(settings.repository.store):
        yield  # no writer and no step of a pipeline works there so far
        return
    fs, clock = PosixFileSystem(), SystemClock()
    lock = lock_path(settings.containers, writer)
    with ExitStack() as held:
        if fs.exists(lock.parent):
            held.enter_context(fs.lock(lock))
        for name in (ROLLOVER_LEASE, COMPACT_LEASE, RETENTION_LEASE):
            lease = take_lease(settings, writer, Attempt.new("catalog"), name, fs=fs, clock=clock, wait_seconds=0)
            held.callback(lease.release)
        yield


def confirm(*, yes: bool, dry_run: bool) -> bool:
    """Return whether to do it.

    Raises:
        click.UsageError: neither or both of the options were given.
    """
    if yes == dry_run:
        raise click.UsageError("this changes the catalog's history: look with --dry-run, do it with --yes")
    return yes


def duration_ms(text: str) -> int:
    """Return a duration such as 90s, 24h or 7d in milliseconds.

    Raises:
        ConfigurationError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ConfigurationError(f"duration {text!r}: expected a number and ms, s, m, h or d, such as 24h.")
    return int(match[1]) * _UNITS_MS[match[2]]


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
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return catalog.revision_at(int(moment.timestamp() * 1000))


def summary(transaction: Transaction) -> dict[str, object]:
    """Return what a transaction did, counted."""
    kinds = [action.WhichOneof("kind") for action in transaction.actions]
    listed = ("add_file", "add_shard", "remove_file", "remove_shard")
    return {
        "revision": transaction.revision,
        "commit_time_ms": transaction.commit_time_ms,
        "uuid": str(UUID(bytes=transaction.uuid)),
        "previous_digest": transaction.previous_digest.hex(),
        "files_added": kinds.count("add_file"),
        "events_added": sum(action.add_file.rows for action in transaction.actions if action.HasField("add_file")),
        "shards_added": kinds.count("add_shard"),
        "removed": kinds.count("remove_file") + kinds.count("remove_shard"),
        "other": [kind for kind in kinds if kind not in listed],
    }


def file_row(file: AddFile) -> dict[str, object]:
    """Return a live file for people and machines."""
    return {
        "path": file.path,
        "events": file.rows,
        "size_bytes": file.size_bytes,
        "first_event_id": file.first_event_id,
        "last_event_id": file.last_event_id,
        "first_event_time_ms": file.first_event_time_ms,
        "last_event_time_ms": file.last_event_time_ms,
        "sha256": file.sha256.hex(),
    }


def shard_row(shard: AddShard) -> dict[str, object]:
    """Return a live shard for people and machines."""
    return {
        "name": shard.name,
        "container": shard.container,
        "documents": shard.documents,
        "size_bytes": shard.size_bytes,
        "log_paths": list(shard.log_paths),
    }


def file_cells(files: Iterable[AddFile]) -> list[tuple[object, ...]]:
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


FILE_COLUMNS = ("file", "events#", "bytes#", "first id#", "last id#", "first event", "last event")
