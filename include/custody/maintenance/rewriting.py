"""Writing live logs anew as one log without the events that tombstones mean; every other event keeps its id.

The logs are read twice, a few blocks at a time: few columns first, for what the new log says of itself, then all of
them. The new files have names of their own, so that who reads the old ones goes on, and two attempts never meet.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import (
    AddFile,
    AddTombstone,
    CatalogState,
    Condition,
    SourceKeys,
    columns_needed,
    source_keys,
    visible,
)
from custody.eventlog import EventLog, LogMetadata, OnDamage, StagedSource, refuse, source_bounds, write_log
from custody.format.names import attempt_suffix
from custody.index import build_shard
from custody.maintenance.planning import erasable, held_in, meaning, open_file
from custody.model import require_keeping
from custody.rollover import LogFiles, Workspace

_LOOKED_AT = ("event_id", "event_time", "source_node", "source_ordinal")


@dataclass(slots=True)
class Survey:
    """What stays of some logs, and the keys of what does not; times in ms, UTC."""

    rows: int = 0
    erased: int = 0
    first_event_id: int = -1
    last_event_id: int = -1
    times: tuple[int, int] = (0, 0)
    partition: str = ""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: list[SourceKeys] = field(default_factory=list)

    def add(self, kept: pa.Table) -> None:
        """Count events that stay; they follow those before."""
        if not kept.num_rows:
            return
        times = kept.column("event_time").cast(pa.int64())
        low, high = pc.min_max(times).as_py().values()
        if self.rows == 0:
            self.first_event_id = kept.column("event_id")[0].as_py()
            self.partition = str(np.datetime64(times[0].as_py(), "ms").astype("datetime64[D]"))
            self.times = (low, high)
        self.times = (min(self.times[0], low), max(self.times[1], high))
        self.last_event_id = kept.column("event_id")[-1].as_py()
        self.rows += kept.num_rows
        [batch] = kept.combine_chunks().to_batches()
        for node, first, last in source_bounds(batch):
            known = self.bounds.get(node, (first, last))
            self.bounds[node] = (min(known[0], first), max(known[1], last))

    @property
    def sources(self) -> list[StagedSource]:
        """The bounds of each source's own event numbers."""
        return [
            StagedSource(node=node, first_ordinal=low, last_ordinal=high)
            for node, (low, high) in sorted(self.bounds.items())
        ]


def survey(
    workspace: Workspace,
    state: CatalogState,
    files: Sequence[AddFile],
    held: Mapping[str, Condition],
    on_damage: OnDamage = refuse,
) -> Survey:
    """Look at what stays of some logs, which are neighbours in the order of their ids; what is held stays.

    Keys are kept of what somebody forgot. What a rule of the retention took is not remembered: that would grow for
    ever, and an event that comes again is taken by the rule again.

    Raises:
        CorruptionError: a block is damaged, and `on_damage` does not pass it over.
    """
    found = Survey()
    for file in files:
        stones, kept = meaning(state, file), held_in(held, file)
        asked_for = [stone for stone in stones if not stone.by_retention]
        columns = sorted({*_LOOKED_AT, *columns_needed([*stones, *kept])})
        for table in _tables(workspace, file, columns, on_damage):
            goes = erasable(stones, kept, table)
            found.add(table.filter(pc.invert(goes)))
            gone = table.filter(goes)
            found.erased += gone.num_rows
            found.keys += source_keys(gone.filter(pc.invert(visible(asked_for, gone))))
    return found


def metadata_of(workspace: Workspace, files: Sequence[AddFile], found: Survey, attempt: uuid.UUID) -> LogMetadata:
    """Return what the new log says of itself."""
    return LogMetadata(
        writer=workspace.writer,
        database=workspace.database,
        table=files[0].table,
        partition=found.partition,
        first_event_id=found.first_event_id,
        last_event_id=found.last_event_id,
        first_event_time_ms=found.times[0],
        last_event_time_ms=found.times[1],
        rows=found.rows,
        groups=tuple(sorted({group for file in files for group in file.groups})),
        transaction=attempt,
    )


def write_anew(
    workspace: Workspace,
    state: CatalogState,
    files: Sequence[AddFile],
    metadata: LogMetadata,
    held: Mapping[str, Condition],
    on_damage: OnDamage = refuse,
) -> LogFiles:
    """Write the new log, its table of contents and its shard; return where they are.

    Durability: on return they survive power loss; nothing lists them yet.

    Raises:
        FormatVersionError: a newer custody wrote a log, with columns that would be lost.
    """
    for file in files:
        require_keeping(file.schema_version, file.path)
    made = workspace.files(metadata, attempt_suffix(metadata.transaction))

    def events() -> Iterator[pa.Table]:
        return (
            table
            for file in files
            for table in _kept(workspace, file, meaning(state, file), held_in(held, file), on_damage)
        )

    write_log(workspace.fs, made.log, events, metadata, workspace.log_options)
    log, index = EventLog(workspace.fs, made.log), workspace.settings.index
    tables = log.tables(range(len(log.toc.blocks)))
    build_shard(workspace.fs, made.shard, tables, index.attributes, standard=index.fields, ranges=index.ranges)
    return made


def _kept(
    workspace: Workspace,
    file: AddFile,
    stones: Sequence[AddTombstone],
    held: Sequence[Condition],
    on_damage: OnDamage,
) -> Iterator[pa.Table]:
    for table in _tables(workspace, file, None, on_damage):
        yield table.filter(pc.invert(erasable(stones, held, table))) if stones else table


def _tables(
    workspace: Workspace, file: AddFile, columns: Sequence[str] | None, on_damage: OnDamage
) -> Iterator[pa.Table]:
    log = open_file(workspace, file)
    yield from log.tables(range(len(log.toc.blocks)), columns, on_damage)
