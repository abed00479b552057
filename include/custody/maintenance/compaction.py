"""Compaction: small logs become one, forgotten events are erased, tombstones without effect and old shards go.

Its units are listed from disk, and each can be done again with the same result. `replace_logs` is also how a repair
puts a new log in the place of a damaged one.

| unit | reads | writes |
|---|---|---|
| some live logs | these logs, the tombstones | one log, its shard, one transaction that replaces the old ones |
| none | catalog, index folders | one transaction without the tombstones that have no effect any more; old shards go |
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from custody.catalog import (
    Action,
    AddFile,
    AddShard,
    AddTombstone,
    CatalogState,
    CommitConflictError,
    Condition,
    RemoveFile,
    RemoveShard,
    RemoveTombstone,
    RespectHolds,
    is_remnant,
    merged_remnant,
)
from custody.errors import ConflictError, CorruptionError, CustodyError, NotFoundError, StripeMissingError
from custody.eventlog import OnDamage, refuse
from custody.format.names import stored_shard, trash_path
from custody.maintenance.rewriting import (
    RewriteSurvey,
    count_forgotten,
    groups_on_disk,
    hold_conditions,
    leftover_shards,
    new_log_metadata,
    plan_rewrites,
    remove_folder,
    rewrite_logs,
    survey_logs,
    tombstones_for,
)
from custody.model import is_newer
from custody.rollover import add_file, add_shard
from custody.workspace import LogFiles, Workspace, file_uri


class CompactionUnit(msgspec.Struct, frozen=True):
    """Live logs of a writer that become one; without logs, its tombstones and leftover shards."""

    writer: str
    paths: tuple[str, ...] = ()


class CompactionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a unit: live logs before and after, erased and repeated events, bytes of logs before and after."""

    writer: str
    logs_before: int = 0
    logs_after: int = 0
    erased: int = 0
    repeated: int = 0
    """Events that were stored twice, equal in everything, and are there once now."""
    bytes_before: int = 0
    bytes_after: int = 0
    files: tuple[str, ...] = ()
    """URIs of the new log and its shard."""
    tombstones_removed: int = 0
    revision: int | None = None
    note: str | None = None
    error: str | None = None


def waiting_compactions(workspace: Workspace) -> Iterator[CompactionUnit]:
    """Yield one writer's units; the one without logs only when it has something to do now."""
    for rewrite in plan_rewrites(workspace):
        yield CompactionUnit(workspace.writer, rewrite.paths)
    if _settling(workspace)[0] or any(leftover_shards(workspace, workspace.catalog.load())):
        yield CompactionUnit(workspace.writer)


def compact_unit(workspace: Workspace, unit: CompactionUnit) -> CompactionReport:
    """Do one unit.

    Durability: on return the new files and the transaction survive power loss.

    Raises:
        ConflictError: another process replaced a log or removed a tombstone in the meantime; nothing was changed.
        CorruptionError: a log is damaged; it stays as it is.
        StorageError: a container of the writer is missing; it may hold journals of groups between these logs.
    """
    # A missing container may hold journals of groups between these logs: joining would reach over them.
    workspace.require_containers()
    return _rewrite(workspace, unit.paths) if unit.paths else _settle(workspace)


def compact(workspace: Workspace) -> Iterator[CompactionReport]:
    """Do all units of a writer, the logs first; an error is in the report of its unit."""
    for unit in [CompactionUnit(workspace.writer, rewrite.paths) for rewrite in plan_rewrites(workspace)]:
        yield _tried(workspace, unit)
    # Listed again after the logs were written: only now may tombstones be without effect.
    for unit in [unit for unit in waiting_compactions(workspace) if not unit.paths]:
        yield _tried(workspace, unit)


def _tried(workspace: Workspace, unit: CompactionUnit) -> CompactionReport:
    try:
        return compact_unit(workspace, unit)
    except CustodyError as error:
        return CompactionReport(writer=unit.writer, error=str(error))


def _rewrite(workspace: Workspace, paths: Sequence[str]) -> CompactionReport:
    on_disk = groups_on_disk(workspace)
    state = workspace.catalog.settle()
    files = [state.files[path] for path in paths if path in state.files]
    # Another process replaced them since the plan: nothing is left to do, which is no error.
    if len(files) < len(paths):
        return CompactionReport(writer=workspace.writer, note="replaced already")
    # Checked again, as another process may have planned the unit: erased events would stay in the journals.
    if any(on_disk.intersection(file.groups) for file in files):
        return CompactionReport(writer=workspace.writer, note="its journals are not swept yet")
    if any(is_newer(file.schema_version) for file in files):
        return CompactionReport(writer=workspace.writer, note="left to the newer custody whose columns would be lost")
    holds = hold_conditions(workspace)
    survey = survey_logs(workspace, state, files, holds, find_repeated=True)
    # A hold may have come since the plan: one log, written anew as it is, would gain nothing.
    if len(files) == 1 and not survey.erased and not len(survey.repeated):
        return CompactionReport(writer=workspace.writer, note="nothing to erase")
    return replace_logs(workspace, state, files, survey, holds)


def replace_logs(
    workspace: Workspace,
    state: CatalogState,
    files: Sequence[AddFile],
    survey: RewriteSurvey,
    holds: Mapping[str, Condition],
    more: Sequence[Action] = (),
    on_damage: OnDamage = refuse,
) -> CompactionReport:
    """Replace live logs by one new log, or by none, in one transaction; `survey` says which events stay.

    `holds` and `on_damage` are those of the survey; `more` goes into the same transaction.

    Durability: on return the new files and the transaction survive power loss.

    Raises:
        ConflictError: another process replaced one of the logs in the meantime; nothing was changed.
    """
    paths = [file.path for file in files]
    shards = shards_covering(state, paths)
    # Names the new files too, so that two attempts never write under one name.
    attempt = uuid.uuid4()
    actions = [Action(remove_file=RemoveFile(path=path)) for path in paths]
    actions += [Action(remove_shard=RemoveShard(name=shard.name)) for shard in shards]
    new_files: LogFiles | None = None
    size = 0
    if survey.rows:
        metadata = new_log_metadata(workspace, files, survey, attempt, state.revision + 1)
        # Files first, then the transaction: a crash in between leaves the old logs live, and files that nothing lists.
        new_files = rewrite_logs(
            workspace, state, files, metadata, holds, on_damage=on_damage, repeated=survey.repeated
        )
        incarnations = {file.incarnation for file in files}
        # Logs of several incarnations become one that names none: a sweep then compares the events themselves.
        incarnation = incarnations.pop() if len(incarnations) == 1 else b""
        file = add_file(workspace, new_files, metadata, survey.sources, incarnation)
        size = file.size_bytes
        actions += [Action(add_file=file), Action(add_shard=add_shard(workspace, new_files, metadata))]
    actions += [*_remnant(workspace, state, files, survey), *more]
    if survey.erased or len(survey.repeated):
        # The transaction does not apply when a hold was made that the survey did not know.
        actions.append(Action(respect_holds=RespectHolds(names=sorted(state.holds))))
    try:
        after = workspace.catalog.commit(actions, attempt=attempt)
    # Of a refused commit only: after another error the transaction may be there all the same and list these files.
    except CommitConflictError:
        if new_files is not None:
            _discard(workspace, new_files)
        raise
    # Last: until the transaction is durable, searches need the old shards.
    remove_shards(workspace, shards)
    return CompactionReport(
        writer=workspace.writer,
        logs_before=len(files),
        logs_after=int(new_files is not None),
        erased=survey.erased,
        repeated=len(survey.repeated),
        bytes_before=sum(file.size_bytes for file in files),
        bytes_after=size,
        files=() if new_files is None else _uris(workspace, new_files),
        revision=after.revision,
    )


def _uris(workspace: Workspace, files: LogFiles) -> tuple[str, ...]:
    log = workspace.catalog.objects.files.locate(files.relative_log)
    return (file_uri(log), file_uri(files.shard))


def remove_shards(workspace: Workspace, shards: Iterable[AddShard]) -> None:
    """Remove shards that no state lists any more, here and in an object store; raises as `remove_folder`."""
    for shard in shards:
        # The object first: of a folder that stays, a later look finds what is left.
        workspace.shard_objects.remove(shard.name)
        remove_folder(workspace, workspace.shard_path(shard))


def shards_covering(state: CatalogState, paths: Sequence[str]) -> list[AddShard]:
    """Return the shards that index these logs, and no others."""
    shards = [shard for shard in state.shards.values() if set(shard.log_paths).intersection(paths)]
    for shard in shards:
        if not set(shard.log_paths) <= set(paths):
            raise ConflictError(
                f"shard {shard.name}: expected one of the logs {', '.join(paths)}, got one of others too."
            )
    return shards


def _remnant(
    workspace: Workspace, state: CatalogState, files: Sequence[AddFile], survey: RewriteSurvey
) -> list[Action]:
    """Return the tombstone that outlives erased events: no ingest and no late rollover may bring them back."""
    groups: set[int] = set()
    if not survey.rows:
        replaced = {file.path for file in files}
        # A group is live as long as one log names it: the remnant has to name those that no log names any more.
        elsewhere = {group for path, file in state.files.items() if path not in replaced for group in file.groups}
        groups = {group for file in files for group in file.groups} - elsewhere
    if not (survey.keys or groups):
        return []
    stone = AddTombstone(erased=survey.keys, erased_groups=sorted(groups))
    return [Action(add_tombstone=merged_remnant([stone], workspace.clock.now_ms()))]


def _discard(workspace: Workspace, new_files: LogFiles) -> None:
    """Remove the files of an attempt that lost.

    Objects of a store go to the trash: this process may have been stopped for long, and what has the name by now may be
    listed. The garbage collection brings such a one back.
    """
    for path in (new_files.log, new_files.toc):
        workspace.fs.remove(path)
    # Both names at once: nothing lists them, so their order does not matter.
    workspace.fs.sync_directory(new_files.log.parent)
    objects, now = workspace.catalog.objects.files, workspace.clock.now_ms()
    for relative in (new_files.relative_log, new_files.relative_toc, stored_shard(new_files.shard_name)):
        if objects.is_published(relative):
            objects.move(relative, trash_path(relative, now))
    remove_folder(workspace, new_files.shard)


def _settle(workspace: Workspace) -> CompactionReport:
    actions, removed = _settling(workspace)
    revision = workspace.catalog.commit(actions).revision if actions else None
    # Settled first: a shard goes only when the transaction that replaced it is durable.
    leftovers = list(leftover_shards(workspace, workspace.catalog.settle()))
    for folder in leftovers:
        remove_folder(workspace, folder)
    note = f"{len(leftovers)} old shards removed" if leftovers else None
    return CompactionReport(writer=workspace.writer, tombstones_removed=removed, revision=revision, note=note)


def _settling(workspace: Workspace) -> tuple[list[Action], int]:
    """Return the actions that remove tombstones without effect, and how many those are.

    The remnants of several compactions become one tombstone.
    """
    on_disk = groups_on_disk(workspace)  # before the catalog: a group that is committed in between is seen twice
    state = workspace.catalog.load()
    if state.seal is not None:
        return [], 0
    stones = [stone for _, stone in sorted(state.tombstones.items())]
    obsolete = [stone for stone in stones if not is_remnant(stone) and _is_done(workspace, state, on_disk, stone)]
    remnants = [stone for stone in stones if is_remnant(stone)]
    actions = [Action(remove_tombstone=RemoveTombstone(id=stone.id)) for stone in obsolete]
    # Remnants stay for good: without joining, each compaction would add one.
    if len(remnants) > 1:
        actions += [Action(remove_tombstone=RemoveTombstone(id=stone.id)) for stone in remnants]
        actions.append(Action(add_tombstone=merged_remnant(remnants, workspace.clock.now_ms())))
    return actions, len(obsolete)


def _is_done(workspace: Workspace, state: CatalogState, on_disk: frozenset[int], stone: AddTombstone) -> bool:
    """Whether no event that a tombstone means is on disk, and none can come: it ends before a certain id."""
    # Without an end it means later events too; a group from before its end may still bring an event that it means.
    if not stone.before_event_id or any(group < stone.before_event_id for group in on_disk):
        return False
    means = [file for file in state.files.values() if stone in tombstones_for(state, file)]
    try:
        return not any(count_forgotten(workspace, file, [stone]) for file in means)
    except (CorruptionError, NotFoundError, StripeMissingError):
        return False  # nobody knows what the damaged part holds, or the stripe that is away
