"""Rewriting live logs as one log without the events that tombstones mean; every other event keeps its id.

`plan_rewrites` chooses the logs: those with forgotten events, and small neighbours, which become one log. A log waits
while journals or a staged unit of its groups are on disk, for its events would stay there. No log reaches over a group
that is not live, because the id ranges of logs do not overlap. A log is small up to half of a log's target size, so an
event is rewritten a bounded number of times.

Logs are read twice, a few blocks at a time: few columns first (`survey_logs`), for what the new log says of itself,
then all of them (`rewrite_logs`). The new files have names of their own, so that readers of the old ones go on and two
attempts never meet. Events that a hold means are neither erased nor expired (`hold_conditions`).

Index shards that no catalog lists any more hold words of the events, so they are removed at once. A search in such a
shard fails over to the log. `remove_folder` renames a folder before it deletes the files, so that a folder with a
shard's name is always a whole shard.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import (
    AddFile,
    AddTombstone,
    CatalogState,
    Condition,
    SourceKeys,
    columns_needed,
    footer_of,
    live_groups,
    matching_rows,
    may_match,
    source_keys,
    visible,
)
from custody.errors import CorruptionError, NotFoundError, StorageError, StripeMissingError
from custody.eventlog import EventLog, LogMetadata, OnDamage, StagedSource, refuse, source_bounds, write_log
from custody.format.names import BUILDING_PREFIX, REMOVING_PREFIX, ContainerPaths, attempt_suffix, parse_shard
from custody.index import build_shard
from custody.model import UNASSIGNED, Event, is_newer, require_keeping, to_events
from custody.workspace import LogFiles, Workspace, not_absorbed

UNLISTED_SHARD_AGE_MS = 24 * 3_600_000
"""A younger shard that was never listed may belong to a job that goes on."""
_NO_IDS: npt.NDArray[np.int64] = np.empty(0, np.int64)
_COMPARED_MAX = 20_000
"""How many events that share a number are compared at once."""
_KEY_COLUMNS = ["event_id", "source_node", "source_ordinal"]
_SURVEY_COLUMNS = ("event_id", "event_time", "source_node", "source_ordinal")


def hold_conditions(workspace: Workspace, others: Iterable[Workspace] | None = None) -> dict[str, Condition]:
    """Return, by name, the holds on a writer's events: its own, and those of others that name no event ids.

    So a hold that was made before a writer had a catalog counts for that writer too. `others` are all writers of the
    repository, if the caller has them at hand.
    """
    conditions: dict[str, Condition] = {}
    # What a writer held that the archive took up, the archive holds: there it can be released.
    for other in not_absorbed(Workspace.all(workspace.settings, workspace.fs) if others is None else others):
        for name, hold in other.catalog.load().holds.items():
            # Ids are each writer's own: a hold that names ids means the events of its writer only.
            if other.writer != workspace.writer and not hold.condition.event_ids:
                conditions.setdefault(name, hold.condition)
    # The writer's own hold counts before one of the same name elsewhere.
    conditions.update((name, hold.condition) for name, hold in workspace.catalog.load().holds.items())
    return dict(sorted(conditions.items()))


class RewritePlan(msgspec.Struct, frozen=True, kw_only=True):
    """Live logs that become one log, or none; they are neighbours in the order of ids; `bytes` are those on disk."""

    writer: str
    paths: tuple[str, ...]
    events: int
    forgotten: int
    """How many of the events are erased."""
    bytes: int


@dataclass(frozen=True, slots=True)
class _Candidate:
    file: AddFile
    size: float
    """Uncompressed bytes; infinite for a log that is not joined with others."""
    forgotten: int


def plan_rewrites(workspace: Workspace) -> Iterator[RewritePlan]:
    """Yield the rewrites, by first event id. Logs that a tombstone may mean are read in few columns."""
    on_disk = groups_on_disk(workspace)  # before the catalog: a group that is committed in between is seen twice
    state = workspace.catalog.load()
    if state.seal is not None:
        return
    target = workspace.settings.eventlog.log_bytes_target
    holds = hold_conditions(workspace)
    waiting = sorted(on_disk - live_groups(state))
    run: list[_Candidate] = []
    for file in sorted(state.files.values(), key=lambda file: file.first_event_id):
        # Its events are also in journals or a staged unit: erased here, they would stay there.
        if on_disk.intersection(file.groups):
            yield from _rewrite_of(workspace, run)
            run = []
            continue
        candidate = _candidate(workspace, state, file, target, holds)
        if run and not _fits(run, candidate, waiting, target):
            yield from _rewrite_of(workspace, run)
            run = []
        run.append(candidate)
    yield from _rewrite_of(workspace, run)


def groups_on_disk(workspace: Workspace) -> frozenset[int]:
    """Return the groups that have journals or a staged unit on disk, live or not."""
    journals = {group.first_event_id for group in workspace.groups()}
    return frozenset(journals.union(*(manifest.groups for manifest in workspace.manifests())))


def tombstones_for(state: CatalogState, file: AddFile) -> list[AddTombstone]:
    """Return the tombstones that may mean an event of a log, in a fixed order."""
    bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    return [stone for _, stone in sorted(state.tombstones.items()) if may_match(stone, *bounds)]


def open_event_log(workspace: Workspace, file: AddFile) -> EventLog:
    """Return a live log."""
    path = workspace.log_path(file.path)
    return EventLog(workspace.fs, path, sha256=file.sha256, toc_sha256=file.toc_sha256)


def erasable(stones: Sequence[AddTombstone], holds: Sequence[Condition], table: pa.Table) -> pa.ChunkedArray | pa.Array:
    """Return which events of a table tombstones mean and no hold does: booleans, shape (rows,)."""
    hidden = pc.invert(visible(stones, table))
    return pc.and_not(hidden, matching_rows(holds, table)) if holds else hidden


def holds_for(holds: Mapping[str, Condition], file: AddFile) -> list[Condition]:
    """Return the conditions of holds that may mean an event of a log."""
    bounds = (file.first_event_id, file.last_event_id, file.first_event_time_ms, file.last_event_time_ms)
    return [condition for condition in holds.values() if may_match(condition, *bounds)]


def count_forgotten(
    workspace: Workspace, file: AddFile, stones: Sequence[AddTombstone], holds: Sequence[Condition] = ()
) -> int:
    """Return how many events of a log tombstones mean and holds do not; only the columns that these need are read.

    Raises:
        CorruptionError, NotFoundError: a block is damaged, or the log is gone.
    """
    if not stones:
        return 0
    log = open_event_log(workspace, file)
    columns = sorted({"event_id", *columns_needed([*stones, *holds])})
    tables = log.tables(range(len(log.toc.blocks)), columns)
    return sum(pc.sum(erasable(stones, holds, table)).as_py() or 0 for table in tables)


def _candidate(
    workspace: Workspace, state: CatalogState, file: AddFile, target: int, holds: Mapping[str, Condition]
) -> _Candidate:
    try:
        workspace.catalog.objects.files.require(file.path)
        forgotten = count_forgotten(workspace, file, tombstones_for(state, file), holds_for(holds, file))
    except StripeMissingError:
        return _Candidate(file, math.inf, 0)  # it stays as it is until its disk is back
    except (CorruptionError, NotFoundError):
        return _Candidate(file, math.inf, 1)  # the attempt to rewrite it reports the damage
    # A log of a newer custody is not joined: the columns that this one does not know would be lost.
    is_joined = file.size_bytes <= target and not is_newer(file.schema_version)
    size = _plain_bytes(workspace, file) if is_joined else math.inf
    # At most half of the target is small: so an event is rewritten a bounded number of times.
    return _Candidate(file, size if size <= target / 2 else math.inf, forgotten)


def _plain_bytes(workspace: Workspace, file: AddFile) -> float:
    """Return the uncompressed size of a log in its footer; one that cannot be read counts as large."""

    def get_range(start: int, length: int) -> bytes:
        view = workspace.fs.view(workspace.log_path(file.path))
        return bytes(view[start:][:length])

    try:
        # Of a log that the newest checkpoint lists, only the file has the footer.
        footer = footer_of(file, get_range)
    except (CorruptionError, StorageError):
        return math.inf
    return float(sum(footer.row_group(number).total_byte_size for number in range(footer.num_row_groups)))


def _fits(run: Sequence[_Candidate], candidate: _Candidate, waiting: Sequence[int], target: int) -> bool:
    first, last = run[-1].file, candidate.file
    return (
        sum(item.size for item in run) + candidate.size <= target
        and (first.table, first.partition) == (last.table, last.partition)
        # Invariant: id ranges of logs do not overlap, so no log reaches over a group that is yet to become live.
        and not any(first.first_event_id < group < last.first_event_id for group in waiting)
    )


def _rewrite_of(workspace: Workspace, run: Sequence[_Candidate]) -> Iterator[RewritePlan]:
    if len(run) > 1 or any(item.forgotten for item in run):
        yield RewritePlan(
            writer=workspace.writer,
            paths=tuple(item.file.path for item in run),
            events=sum(item.file.rows for item in run),
            forgotten=sum(item.forgotten for item in run),
            bytes=sum(item.file.size_bytes for item in run),
        )


def remove_folder(workspace: Workspace, folder: Path) -> None:
    """Remove the folder of a shard or a staged unit; one that is gone is no error.

    Durability: on return it is gone for good; on raise `leftover_shards` finds the rest later.
    """
    fs = workspace.fs
    if not fs.exists(folder):
        return
    # The name goes first: a folder with a shard's name is always whole, and a crash leaves one that says it is going.
    renamed = folder.with_name(f"{REMOVING_PREFIX}{folder.name}-{uuid.uuid4().hex}")
    fs.rename(folder, renamed)
    # Durable before the first removal: else a power loss could bring the old name back, on a folder without some files.
    fs.sync_directory(folder.parent)
    fs.remove_tree(renamed)
    fs.sync_directory(folder.parent)


def leftover_shards(workspace: Workspace, state: CatalogState) -> Iterator[Path]:
    """Yield the folders of shards that are listed no longer, and what interrupted removals and attempts left."""
    # A shard of a staged unit is not listed yet, and the rollover is about to list it.
    staged = {
        workspace.files(manifest.metadata(log)).shard for manifest in workspace.manifests() for log in manifest.logs
    }
    live = {workspace.shard_path(shard) for shard in state.shards.values()}
    now = workspace.clock.now_ms()
    removed: set[str] | None = None
    for container in workspace.settings.containers:
        folder = ContainerPaths(container, workspace.writer).index
        for name in workspace.fs.list(folder):
            path = folder / name
            if name.startswith(REMOVING_PREFIX):
                yield path
            elif path not in live | staged and (name.startswith(BUILDING_PREFIX) or parse_shard(name) is not None):
                # The history is read only when an unlisted shard is there.
                removed = _removed(workspace, state) if removed is None else removed
                # One that was listed once is of no use any more; one that never was may belong to a job that goes on.
                if name in removed or _is_old(workspace, path, now - UNLISTED_SHARD_AGE_MS):
                    yield path


def _is_old(workspace: Workspace, folder: Path, before_ms: int) -> bool:
    """Whether the files of a folder were last changed before a time; an empty folder may just have been made."""
    fs = workspace.fs
    changed = [fs.modified_ms(folder / name) for name in fs.list(folder)]
    return bool(changed) and max(changed) <= before_ms


def _removed(workspace: Workspace, state: CatalogState) -> set[str]:
    """Return the names of the shards that kept revisions removed."""
    if state.revision < 0:
        return set()
    actions = (action for transaction in workspace.catalog.timeline() for action in transaction.actions)
    return {action.remove_shard.name for action in actions if action.HasField("remove_shard")}


@dataclass(slots=True)
class RewriteSurvey:
    """The events of some logs that stay, and the keys of those that do not; times in ms, UTC."""

    rows: int = 0
    erased: int = 0
    first_event_id: int = -1
    last_event_id: int = -1
    times: tuple[int, int] = (0, 0)
    partition: str = ""
    bounds: dict[str, tuple[int, int]] = field(default_factory=dict)
    keys: list[SourceKeys] = field(default_factory=list)
    repeated: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Ids of events that are left out because the same event stays under a smaller id."""

    def add(self, rows: pa.Table) -> None:
        """Count events that stay; they follow those of the calls before."""
        if not rows.num_rows:
            return
        times = rows.column("event_time").cast(pa.int64())
        low, high = pc.min_max(times).as_py().values()
        if self.rows == 0:
            self.first_event_id = rows.column("event_id")[0].as_py()
            self.partition = str(np.datetime64(times[0].as_py(), "ms").astype("datetime64[D]"))
            self.times = (low, high)
        self.times = (min(self.times[0], low), max(self.times[1], high))
        self.last_event_id = rows.column("event_id")[-1].as_py()
        self.rows += rows.num_rows
        # One batch for `source_bounds`: a table of several chunks would give several.
        [batch] = rows.combine_chunks().to_batches()
        for node, first, last in source_bounds(batch):
            bounds = self.bounds.get(node, (first, last))
            self.bounds[node] = (min(bounds[0], first), max(bounds[1], last))

    @property
    def sources(self) -> list[StagedSource]:
        """The bounds of each source's own event numbers."""
        return [
            StagedSource(node=node, first_ordinal=low, last_ordinal=high)
            for node, (low, high) in sorted(self.bounds.items())
        ]


def survey_logs(
    workspace: Workspace,
    state: CatalogState,
    files: Sequence[AddFile],
    holds: Mapping[str, Condition],
    on_damage: OnDamage = refuse,
    *,
    find_repeated: bool = False,
) -> RewriteSurvey:
    """Find out what stays of some logs, which are neighbours in the order of their ids; held events stay.

    With `find_repeated`, an event that is there twice stays once: see `_repeated_ids`.

    Keys are kept of events that a user forgot. Those that a rule of the retention erased are not remembered: the list
    would grow for ever, and the rule erases an event that comes again.

    Raises:
        CorruptionError: a block is damaged, and `on_damage` does not pass it over.
    """
    survey, keys = _surveyed(workspace, state, files, holds, on_damage)
    repeated = _repeated_ids(workspace, files, keys) if find_repeated else survey.repeated
    if not len(repeated):
        return survey
    # Once more: bounds of ids, times and sources are those of what stays.
    return _surveyed(workspace, state, files, holds, on_damage, repeated)[0]


def _surveyed(
    workspace: Workspace,
    state: CatalogState,
    files: Sequence[AddFile],
    holds: Mapping[str, Condition],
    on_damage: OnDamage,
    repeated: npt.NDArray[np.int64] | None = None,
) -> tuple[RewriteSurvey, list[pa.Table]]:
    """Return the survey, and the keys of the events that stay, are given out, and are not held."""
    survey = RewriteSurvey() if repeated is None else RewriteSurvey(repeated=repeated)
    keys: list[pa.Table] = []
    for file in files:
        stones, held = tombstones_for(state, file), holds_for(holds, file)
        by_users = [stone for stone in stones if not stone.by_retention]
        # The first of two readings: what the new log says of itself needs few columns.
        columns = sorted({*_SURVEY_COLUMNS, *columns_needed([*stones, *held])})
        for table in _tables(workspace, file, columns, on_damage):
            # Invariant: both readings filter alike, else the metadata of the new log would not be that of its events.
            is_erased = erasable(stones, held, table)
            staying = _without(table.filter(pc.invert(is_erased)), survey.repeated)
            survey.add(staying)
            # A hidden event must not stand for one that is given out, and a held one stays whatever it is.
            free = staying.filter(visible(stones, staying)) if stones else staying
            keys.append((free.filter(pc.invert(matching_rows(held, free))) if held else free).select(_KEY_COLUMNS))
            erased = table.filter(is_erased)
            survey.erased += erased.num_rows
            survey.keys += source_keys(erased.filter(pc.invert(visible(by_users, erased))))
    return survey, keys


def _repeated_ids(workspace: Workspace, files: Sequence[AddFile], keys: Sequence[pa.Table]) -> npt.NDArray[np.int64]:
    """Return the ids of events of which an equal one of the same source and number has a smaller id.

    Equal means: in every field but the id, and the id that a node gives each copy that it sends. Two events of one
    number that differ in anything else both stay.
    """
    repeated: list[int] = []
    for candidates in _with_a_common_key(pa.concat_tables(keys)):
        repeated += _repeated_among(workspace, files, candidates)
    return np.sort(np.array(repeated, np.int64))


def _repeated_among(workspace: Workspace, files: Sequence[AddFile], candidates: npt.NDArray[np.int64]) -> list[int]:
    """Return which events of some ids, sorted, are equal to one with a smaller id among them."""
    repeated = []
    firsts: dict[tuple[str | None, int | None], list[Event]] = {}
    for file in files:
        held = _between(candidates, file)
        for event in to_events(open_event_log(workspace, file).get_many(held)) if held else ():
            plain = msgspec.structs.replace(event, event_id=UNASSIGNED, source_event_id=None)
            known = firsts.setdefault((event.source_node, event.source_ordinal), [])
            if plain in known:
                repeated.append(event.event_id)
            else:
                known.append(plain)
    return repeated


def _with_a_common_key(keys: pa.Table) -> Iterator[npt.NDArray[np.int64]]:
    """Yield the ids of events whose source and number another event has too, sorted; those of one number together."""
    keyed = keys.filter(pc.and_(keys["source_node"].is_valid(), keys["source_ordinal"].is_valid()))
    if not keyed.num_rows:
        return
    codes = keyed["source_node"].combine_chunks().dictionary_encode().indices.to_numpy()
    ordinals, ids = keyed["source_ordinal"].to_numpy(), keyed["event_id"].to_numpy()
    order = np.lexsort((ids, ordinals, codes))
    is_next = (np.diff(codes[order]) == 0) & (np.diff(ordinals[order]) == 0)
    # Both sides of each pair of equal neighbours.
    is_common = np.concatenate([[False], is_next]) | np.concatenate([is_next, [False]])
    begins = np.flatnonzero(~np.concatenate([[False], is_next])[is_common])
    common = ids[order][is_common]
    start = 0
    while start < len(common):
        # As many whole numbers as fit, at least one: their events are in memory together.
        last = int(np.searchsorted(begins, start + _COMPARED_MAX, side="right")) - 1
        stop = int(begins[last]) if last >= 0 and begins[last] > start else start + _COMPARED_MAX
        stop = len(common) if len(common) - start <= _COMPARED_MAX else stop
        yield np.sort(common[start:stop])
        start = stop


def _between(event_ids: npt.NDArray[np.int64], file: AddFile) -> list[int]:
    begin, end = np.searchsorted(event_ids, (file.first_event_id, file.last_event_id + 1)).tolist()
    return [int(event_id) for event_id in event_ids[begin:end]]


def _without(table: pa.Table, event_ids: npt.NDArray[np.int64]) -> pa.Table:
    if not len(event_ids):
        return table
    return table.filter(pc.invert(pc.is_in(table["event_id"], pa.array(event_ids, pa.int64()))))


def new_log_metadata(
    workspace: Workspace, files: Sequence[AddFile], survey: RewriteSurvey, attempt: uuid.UUID, revision: int
) -> LogMetadata:
    """Return the metadata of the new log, which is to become live at a revision."""
    return LogMetadata(
        writer=workspace.writer,
        database=workspace.database,
        table=files[0].table,
        partition=survey.partition,
        first_event_id=survey.first_event_id,
        last_event_id=survey.last_event_id,
        first_event_time_ms=survey.times[0],
        last_event_time_ms=survey.times[1],
        rows=survey.rows,
        groups=tuple(sorted({group for file in files for group in file.groups})),
        transaction=attempt,
        revision=revision,
    )


def rewrite_logs(
    workspace: Workspace,
    state: CatalogState,
    files: Sequence[AddFile],
    metadata: LogMetadata,
    holds: Mapping[str, Condition],
    on_damage: OnDamage = refuse,
    repeated: npt.NDArray[np.int64] = _NO_IDS,
) -> LogFiles:
    """Write the new log, its table of contents and its shard, without the `repeated` events; return their paths.

    Durability: on return they survive power loss; nothing lists them yet.

    Raises:
        FormatVersionError: a newer custody wrote a log, with columns that would be lost.
    """
    # Columns that this custody does not know would be lost.
    for file in files:
        require_keeping(file.schema_version, file.path)
    stripe = workspace.choose_stripe(metadata.first_event_id, sum(file.size_bytes for file in files))
    new_files = workspace.files(metadata, attempt_suffix(metadata.transaction), stripe)

    def events() -> Iterator[pa.Table]:
        return (
            _without(table, repeated)
            for file in files
            for table in _remaining(workspace, file, tombstones_for(state, file), holds_for(holds, file), on_damage)
        )

    write_new_log(workspace, new_files, events, metadata)
    return new_files


def write_new_log(
    workspace: Workspace, new_files: LogFiles, events: Callable[[], Iterable[pa.Table]], metadata: LogMetadata
) -> None:
    """Write a log that replaces others, its table of contents and its shard.

    Durability: on return they survive power loss; nothing lists them yet.
    """
    write_log(workspace.fs, new_files.log, events, metadata, workspace.log_options)
    log, index = EventLog(workspace.fs, new_files.log), workspace.settings.index
    # Built from the log that was just written, so that shard and log hold the same events.
    tables = log.tables(range(len(log.toc.blocks)))
    build_shard(
        workspace.fs,
        new_files.shard,
        tables,
        index.attributes,
        standard=index.fields,
        ranges=index.ranges,
        layout=index.layout,
        attribute_characters=workspace.settings.query.attribute_characters_max,
    )


def _remaining(
    workspace: Workspace,
    file: AddFile,
    stones: Sequence[AddTombstone],
    holds: Sequence[Condition],
    on_damage: OnDamage,
) -> Iterator[pa.Table]:
    for table in _tables(workspace, file, None, on_damage):
        yield table.filter(pc.invert(erasable(stones, holds, table))) if stones else table


def _tables(
    workspace: Workspace, file: AddFile, columns: Sequence[str] | None, on_damage: OnDamage
) -> Iterator[pa.Table]:
    log = open_event_log(workspace, file)
    yield from log.tables(range(len(log.toc.blocks)), columns, on_damage)
