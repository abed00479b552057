"""Rolling over one unit: its groups are merged in event-id order and cut into the events of future logs.

The work goes on in a folder of the attempt, which is renamed when all in it is durable: a crash leaves nothing that is
half used. Memory is bounded by the chunks that the journals are read in, whatever a group's size. Where the events are
cut depends on the events and the settings alone.
"""

from __future__ import annotations

import errno
import logging
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa

from custody.errors import StorageError
from custody.eventlog import StagedLog, StagingWriter, fitting, row_bytes, transaction_of_groups
from custody.format.names import BUILDING_PREFIX, UNIT_MANIFEST, staged_log
from custody.journal import Damage, Group, MergeReader
from custody.quarantine import keep_evidence
from custody.rollover.manifest import UnitManifest
from custody.rollover.report import UnitReport
from custody.rollover.workspace import Workspace
from custody.vfs import FileSystem

CHUNK_BYTES = 32 << 20
_PROGRESS_SECONDS = 10.0
_LOG = logging.getLogger("custody.rollover")


def merge_unit(workspace: Workspace, unit: str, groups: Sequence[Group]) -> UnitReport:
    """Merge sealed groups and publish them as a staged unit; one that is there already is kept.

    Durability: on return the unit and the evidence of damaged records survive power loss.
    """
    fs, folder = workspace.fs, workspace.paths.staged_unit(groups[0].first_event_id)
    reader = MergeReader(fs, groups)
    for damage in reader.damage:
        _keep_evidence(workspace, damage)
    fs.make_directory(folder.parent)
    attempt = folder.with_name(f"{BUILDING_PREFIX}{folder.name}-{uuid.uuid4().hex}")
    fs.make_directory(attempt)
    try:
        logs = _write(fs, attempt, _watched(reader, unit), workspace.settings.eventlog.log_bytes_target)
        manifest = _manifest(workspace, groups, logs)
        with fs.create(attempt / UNIT_MANIFEST) as file:
            file.write(manifest.encode())
            file.sync()
        fs.sync_directory(attempt)
        _publish(fs, attempt, folder)
    except BaseException:
        fs.remove_tree(attempt)
        raise
    return UnitReport(
        unit=unit,
        events=sum(log.rows for log in logs),
        bytes_in=sum(fs.size(path) for group in groups for path in group.sealed),
        bytes=sum(log.file_bytes for log in logs),
        note="; ".join([f"{len(groups)} groups, {len(logs)} logs", *map(_said, reader.damage)]),
    )


def _write(fs: FileSystem, folder: Path, chunks: Iterator[pa.Table], bytes_target: int) -> list[StagedLog]:
    """Write the events of each future log into a file of its own: as many as fit into the target, at least one."""
    done: list[StagedLog] = []
    with ExitStack() as opened:
        writer: StagingWriter | None = None
        for chunk in chunks:
            sizes = row_bytes(chunk)
            start = 0
            while start < chunk.num_rows:
                rows = fitting(sizes[start:], bytes_target, writer.plain_bytes if writer else 0)
                if writer is not None and rows == 0:
                    done.append(writer.finish())
                    writer = None
                    continue
                if writer is None:
                    first = chunk.column("event_id")[start].as_py()
                    writer = opened.enter_context(StagingWriter(fs, folder / staged_log(first)))
                writer.write(chunk.slice(start, rows), sizes[start : start + rows])
                start += rows
        if writer is not None:
            done.append(writer.finish())
    return done


def _manifest(workspace: Workspace, groups: Sequence[Group], logs: Sequence[StagedLog]) -> UnitManifest:
    firsts = tuple(group.first_event_id for group in groups)
    return UnitManifest(
        writer=workspace.writer,
        database=workspace.database,
        transaction=transaction_of_groups(workspace.writer, workspace.database, firsts),
        groups=firsts,
        logs=tuple(logs),
        incarnation=workspace.ownership.of_group(groups[0]),
    )


def _publish(fs: FileSystem, attempt: Path, folder: Path) -> None:
    """Give a whole unit its name, unless another attempt was faster."""
    try:
        if fs.exists(folder):
            fs.remove_tree(attempt)
        else:
            fs.rename(attempt, folder)
    except StorageError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        fs.remove_tree(attempt)
    # Also for a unit that is there already: who published it may have died before this.
    fs.sync_directory(folder.parent)


def _keep_evidence(workspace: Workspace, damage: Damage) -> None:
    """Put damaged bytes into the quarantine; bytes that are there already stay as they are."""
    keep_evidence(
        workspace.fs,
        workspace.settings.quarantine,
        damage.evidence(),
        code="journal-damage",
        message=str(damage),
        file=str(damage.path),
        offset=damage.offset,
        now_ms=workspace.clock.now_ms(),
        format="journal",
    )


def _said(damage: Damage) -> str:
    return f"damage kept in the quarantine: {damage.path} @{damage.offset}, {damage.length} bytes"


def _watched(reader: MergeReader, unit: str) -> Iterator[pa.Table]:
    """Hand the chunks on; a long merge says in the log how far it has come."""
    done, told = 0, time.monotonic()
    for chunk in reader.chunks(CHUNK_BYTES):
        yield chunk
        done += chunk.num_rows
        if time.monotonic() - told >= _PROGRESS_SECONDS:
            told = time.monotonic()
            _LOG.info("%s: %d of %d events merged", unit, done, reader.rows)
