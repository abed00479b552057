"""Durability bugs in the code itself; each is in place as long as its context lasts. `hasty` seals too early."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import msgspec

from custody.catalog import AddLoss, AddShard, Catalog, CatalogState, FederatedState, FileRepair, federation
from custody.catalog.file_repairs import file_repair, tell_repairs
from custody.catalog.transaction_pb2 import Absorb, Action, Seal
from custody.format.names import UNIT_MANIFEST, unit_part
from custody.journal import RETIRED, journal_writer, purpose_of
from custody.journal.journal_file import JournalEnd, end_record
from custody.maintenance import absorption, compaction, retirement
from custody.maintenance.repair import executor
from custody.read.reader import Snapshot
from custody.recovery import STEPS
from custody.repository import retention_api
from custody.retention import ExpiryChoice, deletion, planning
from custody.retention.deletion import due_marks
from custody.rollover import mending_shards, merge_parts
from custody.rollover.merge import attempt_folder, publish_folder
from custody.rollover.publish import waiting_units
from custody.vfs import FileSystem, WritableFile
from custody.workspace import Unit, UnitManifest, UnitReport, Workspace


def delete_before_commit() -> AbstractContextManager[object]:
    commit = type(STEPS["commit"])
    right = commit.run

    def wrong(self: Any, workspace: Workspace, unit: Unit) -> UnitReport:
        for path in [path for group in workspace.groups() for path in group.sealed]:
            workspace.fs.remove(path)
            workspace.fs.sync_directory(path.parent)
        return right(self, workspace, unit)

    return patch.object(commit, "run", wrong)


def ids_from_the_catalog_alone() -> AbstractContextManager[object]:
    stack = ExitStack()
    stack.enter_context(patch.object(journal_writer, "least_free_id", lambda *_: 0))
    stack.enter_context(patch.object(Snapshot, "next_event_id", PropertyMock(return_value=0)))
    return stack


def hasty(fs: FileSystem, path: Path, file: WritableFile, end: JournalEnd | None) -> Path:
    target = path.with_suffix(".sealed")
    fs.rename(path, target)
    fs.sync_directory(path.parent)
    if end is not None:
        file.write(end_record(end))
    file.close()
    return target


def no_checksum() -> AbstractContextManager[object]:
    return patch("zlib_ng.zlib_ng.crc32", lambda *_: 0)


def expire_before_the_mark() -> AbstractContextManager[object]:
    right = planning.mark_expired

    def wrong(choice: ExpiryChoice) -> dict[str, int]:
        for name, gone in choice.gone.items():
            at = choice.writers[name].workspace
            for path in gone:
                at.fs.remove(at.paths.home / path)
                at.fs.sync_directory((at.paths.home / path).parent)
        return right(choice)

    return patch.object(retention_api, "mark_expired", wrong)


def marks_forgotten_first() -> AbstractContextManager[object]:
    stack = ExitStack()
    names = retention_api._AFTER_THE_MARK
    stack.enter_context(patch.object(retention_api, "_AFTER_THE_MARK", ("retention_collect_garbage", *names)))
    stack.enter_context(patch.object(deletion, "_settled", due_marks))
    return stack


def commit_log_by_log() -> AbstractContextManager[object]:
    def wrong(workspace: Workspace) -> Iterator[UnitManifest]:
        for manifest in waiting_units(workspace):
            for log in manifest.logs:
                yield msgspec.structs.replace(manifest, logs=(log,))

    return patch("custody.rollover.rollover_steps.waiting_units", wrong)


def ranges_moved() -> AbstractContextManager[object]:
    def wrong(workspace: Workspace, manifest: UnitManifest, parts: Sequence[merge_parts.MergePart]) -> None:
        fs, folder = workspace.fs, workspace.paths.staged_unit(manifest.first_group)
        with attempt_folder(fs, folder) as attempt:
            for part in parts:
                source = workspace.paths.staging / unit_part(manifest.first_group, part.key)
                for name in fs.list(source):
                    if name != UNIT_MANIFEST:
                        fs.rename(source / name, attempt / name)
            publish_folder(fs, attempt, folder, manifest)

    return patch.object(merge_parts, "_publish", wrong)


def loss_noted_later() -> AbstractContextManager[object]:
    def wrong(workspace: Workspace, state: Any, files: Any, found: Any, held: Any, more: Any, *, on_damage: Any) -> Any:
        done = compaction.replace_logs(workspace, state, files, found, held, (), on_damage=on_damage)
        workspace.catalog.commit(more)
        return done

    return patch("custody.maintenance.repair.repair_logs.replace_logs", wrong)


def repairs_told_later() -> AbstractContextManager[object]:
    """The catalog is told of repairs when they are done."""
    told: list[FileRepair] = []
    right = executor._finish

    def later(catalog: Catalog, repairs: Sequence[FileRepair], who: str) -> bool:
        told[:] = repairs  # of this process: what one before it wanted to tell is gone with it
        return True

    def finish(workspace: Workspace, planned: Any) -> list[str]:
        tell_repairs(workspace.catalog, told, "repair")
        return right(workspace, planned)

    stack = ExitStack()
    stack.enter_context(patch.object(executor, "_finish", finish))
    stack.enter_context(patch.object(executor, "tell_repairs", later))
    return stack


def rebuilds_told_later() -> AbstractContextManager[object]:
    """The catalog is told of a shard when it is built."""

    @contextmanager
    def wrong(workspace: Workspace, shard: AddShard, who: str) -> Iterator[None]:
        reason = mending_shards._defect(workspace, shard)
        yield
        if reason is not None:
            tell_repairs(workspace.catalog, [file_repair(FileRepair.SHARD_REBUILT, shard.name, reason)], who)

    return patch.object(mending_shards, "told_if_damaged", wrong)


def nothing_is_noted() -> AbstractContextManager[object]:
    return patch("custody.maintenance.repair.repair_journals.loss_action", lambda *_: AddLoss(id=bytes(16)))


def absorbed_without_a_seal() -> AbstractContextManager[object]:
    """The claim alone retires a writer: who claims the name back goes on behind the archive's back."""

    def absorb_unsealed(into: Catalog, sealed: Catalog, actions: Any, **options: Any) -> CatalogState:
        state = sealed.load()
        entry = Absorb(
            writer=sealed.objects.writer,
            database=sealed.objects.database,
            catalog_id=state.catalog_id.bytes,
            revision=state.revision,
            digest=state.digest,
            first_event_id=options["first_event_id"],
        )
        return into.commit([*actions, Action(absorb=entry)], next_event_id=options["next_event_id"])

    plan, plan_one = absorption.plan_absorptions, absorption.absorption_of
    state_of = Workspace.state

    def as_if_sealed(workspace: Workspace) -> CatalogState:
        state = state_of(workspace)
        is_retired = purpose_of(workspace.incarnations.claims()) == RETIRED
        return replace(state, seal=Seal(reason="as if")) if is_retired else state

    def plan_unsealed(archive: Workspace, workspaces: Any) -> Any:
        with patch.object(Workspace, "state", as_if_sealed):
            return plan(archive, workspaces)

    def plan_one_unsealed(archive: Workspace, writer: str, base: int) -> Any:
        with patch.object(Workspace, "state", as_if_sealed):
            return plan_one(archive, writer, base)

    stack = ExitStack()
    stack.enter_context(patch.object(retirement, "seal", lambda catalog, _: catalog.load()))
    stack.enter_context(patch.object(absorption, "plan_absorptions", plan_unsealed))
    stack.enter_context(patch.object(absorption, "absorption_of", plan_one_unsealed))
    stack.enter_context(patch.object(absorption, "absorb", absorb_unsealed))
    return stack


def readers_that_do_not_honour_absorption() -> AbstractContextManager[object]:
    return patch.object(FederatedState, "absorbed", {})


def absorbed_log_by_log() -> AbstractContextManager[object]:
    right = federation.absorb

    def wrong(into: Catalog, sealed: Catalog, actions: Any, **options: Any) -> CatalogState:
        for action in actions:
            into.commit([action])
        return right(into, sealed, [], **options)

    return patch.object(absorption, "absorb", wrong)
