"""What a merged group becomes: an event log, a shard, and the actions that make both live."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import Action, AddFile, AddShard, SourceRange, describe
from custody.errors import NotFoundError
from custody.eventlog import EventLog, LogMetadata, log_metadata, read_staging, write_log
from custody.index import build_shard
from custody.rollover.report import UnitReport
from custody.rollover.workspace import Workspace


def compress_group(workspace: Workspace, unit: str, first_event_id: int) -> UnitReport:
    """Write the event log of a merged group and its table of contents."""
    table, metadata = _staged(workspace, first_event_id)
    path = workspace.files(metadata).log
    log = write_log(workspace.fs, path, table, metadata, workspace.log_options)
    return UnitReport(unit=unit, events=table.num_rows, bytes=log.size_bytes, note=f"{log.blocks} blocks")


def build_index(workspace: Workspace, unit: str, first_event_id: int) -> UnitReport:
    """Build the index shard of a merged group, or of a live log whose shard is gone."""
    path, table = _to_index(workspace, first_event_id)
    shard = build_shard(workspace.fs, path, table, workspace.settings.index.attributes)
    return UnitReport(unit=unit, events=shard.documents, bytes=shard.size_bytes, note=shard.path.name)


def lost_shards(workspace: Workspace) -> Iterator[int]:
    """Yield the first event ids of the live shards whose folder does not exist."""
    for shard in workspace.catalog.load().shards.values():
        if not workspace.fs.exists(workspace.shard_path(shard)):
            yield shard.first_event_id


def _to_index(workspace: Workspace, first_event_id: int) -> tuple[Path, pa.Table]:
    """Return where a shard belongs and what it indexes: the catalog's word for what is live, else staging."""
    state = workspace.catalog.load()
    for shard in state.shards.values():
        if shard.first_event_id == first_event_id:
            logs = [EventLog(workspace.fs, workspace.paths.home / path).read() for path in shard.log_paths]
            return workspace.shard_path(shard), pa.concat_tables(logs)
    table, metadata = _staged(workspace, first_event_id)
    return workspace.files(metadata).shard, table


def transaction_of(workspace: Workspace, firsts: Sequence[int]) -> tuple[list[Action], int, int, int]:
    """Return the actions that make groups live, and their events, bytes and next event id.

    Raises:
        NotFoundError: a group's log is not there: its compress step has to run first.
    """
    actions: list[Action] = []
    events = size = next_event_id = 0
    for first in firsts:
        table, metadata = _staged(workspace, first, ["event_id", "event_time", "source_node", "source_ordinal"])
        file, shard = (
            _add_file(workspace, table, metadata),
            _add_shard(workspace, table.num_rows, metadata),
        )
        actions += [Action(add_file=file), Action(add_shard=shard)]
        events += table.num_rows
        size += file.size_bytes + shard.size_bytes
        next_event_id = max(next_event_id, metadata.last_event_id + 1)
    return actions, events, size, next_event_id


def _staged(
    workspace: Workspace, first_event_id: int, columns: list[str] | None = None
) -> tuple[pa.Table, LogMetadata]:
    table = read_staging(workspace.fs, workspace.paths.staging_file(first_event_id))
    metadata = log_metadata(table, workspace.writer, workspace.database)
    return (table.select(columns) if columns else table), metadata


def _add_file(workspace: Workspace, table: pa.Table, metadata: LogMetadata) -> AddFile:
    """Describe a log by the bytes on disk, after checking that they are this group's."""
    files = workspace.files(metadata)
    EventLog(workspace.fs, files.log).check(metadata)
    data, toc = workspace.fs.read(files.log), workspace.fs.read(files.toc)
    made = AddFile(
        path=files.relative_log,
        size_bytes=len(data),
        rows=table.num_rows,
        sha256=hashlib.sha256(data).digest(),
        table=metadata.table,
        partition=metadata.partition,
        schema_version=metadata.schema_version,
        first_event_id=metadata.first_event_id,
        last_event_id=metadata.last_event_id,
        first_event_time_ms=metadata.first_event_time_ms,
        last_event_time_ms=metadata.last_event_time_ms,
        toc_path=files.relative_toc,
        toc_sha256=hashlib.sha256(toc).digest(),
        sources=_source_ranges(table),
    )
    describe(made, lambda start, length: data[start:][:length])
    return made


def _source_ranges(table: pa.Table) -> list[SourceRange]:
    """Return the bounds of each source's own event numbers, so that a repeated event is looked for where it may be."""
    has_key = pc.and_(pc.is_valid(table.column("source_node")), pc.is_valid(table.column("source_ordinal")))
    known = table.filter(has_key)
    by_node = known.group_by("source_node").aggregate([("source_ordinal", "min"), ("source_ordinal", "max")])
    return [
        SourceRange(node=node, first_ordinal=first, last_ordinal=last)
        for node, first, last in sorted(
            zip(
                by_node.column("source_node").to_pylist(),
                by_node.column("source_ordinal_min").to_pylist(),
                by_node.column("source_ordinal_max").to_pylist(),
                strict=True,
            )
        )
    ]


def _add_shard(workspace: Workspace, documents: int, metadata: LogMetadata) -> AddShard:
    files = workspace.files(metadata)
    names = workspace.fs.list(files.shard)
    if not names:
        raise NotFoundError(f"index shard {files.shard} is missing. Run the index step before the commit.")
    return AddShard(
        name=files.shard_name,
        container=files.container,
        documents=documents,
        size_bytes=sum(workspace.fs.size(files.shard / name) for name in names),
        first_event_id=metadata.first_event_id,
        last_event_id=metadata.last_event_id,
        first_event_time_ms=metadata.first_event_time_ms,
        last_event_time_ms=metadata.last_event_time_ms,
        log_paths=[files.relative_log],
    )
