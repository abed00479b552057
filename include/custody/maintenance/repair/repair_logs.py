"""Repairs of live logs and their shards.

From best to last resort, a log is restored from a copy elsewhere, written again from its staged unit or its journals,
rewritten with its whole blocks, or, only on request, given up. A restored log is the very file that the catalog lists;
a rewritten one replaces it by a transaction that says what was lost. The damaged file stays where it is as long as an
earlier revision lists it; its damaged bytes go to the quarantine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from custody.catalog import Action as CatalogAction
from custody.catalog import AddFile, CatalogState, FileRepair, RemoveFile, RemoveShard
from custody.catalog.file_repairs import file_repair, repair_note
from custody.errors import CorruptionError, CustodyError, NotFoundError
from custody.eventlog import Damage, EventLog
from custody.format.names import trash_path
from custody.journal import Group
from custody.maintenance.compaction import remove_shards, replace_logs, shards_covering
from custody.maintenance.repair.actions import loss_action, quarantine_bytes
from custody.maintenance.rewriting import hold_conditions, open_event_log, survey_logs
from custody.maintenance.verification.check_logs import sha256_of
from custody.rollover import rebuild_shard, remove_filter_files
from custody.rollover.merge import merge_unit
from custody.rollover.publish import compress_log, find_staged
from custody.workspace import Workspace

REPAIR = "repair"
"""Who mends, as the catalog is told: the command `custody repair`."""


def live_file(workspace: Workspace, path: str) -> tuple[CatalogState, AddFile]:
    """Return the newest state, all of it durable, and a live file of it; raises NotFoundError when it is not live."""
    state = workspace.catalog.settle()
    # Not an error of the repair: a compaction or a retention was faster.
    if path not in state.files:
        raise NotFoundError(f"{path}: is not live any more. Nothing is left to do.")
    return state, state.files[path]


def source_of(workspace: Workspace, state: CatalogState, file: AddFile) -> str | None:
    """Return the source of a whole copy of a log: `elsewhere <path>`, `staged`, `journals`; None if there is none."""
    elsewhere = next(_copies(workspace, file), None)
    if elsewhere is not None:
        return f"elsewhere {elsewhere}"
    if file.path == _path_of_staged(workspace, file):
        return "staged"
    return "journals" if _journals(workspace, state, file) else None


def restore(workspace: Workspace, path: str, copy: str = "") -> str:
    """Restore the very file that the catalog lists, from a user's `copy` if there is one; return its source.

    Durability: on return it survives power loss. Another log's bytes in its place go to the trash under that log's
    name, where the restoration of that log finds them.

    Raises:
        NotFoundError: there is no copy, or the log is not live.
    """
    state, file = live_file(workspace, path)
    if copy:
        return _restore_from(workspace, state, file, Path(copy))
    source = source_of(workspace, state, file)
    if source is None:
        raise NotFoundError(f"{workspace.log_place(path)}: no copy, staged unit or journals are left.")
    if source.startswith("elsewhere "):
        # Another log's bytes in its place go to the trash under that log's name: a crash in between loses neither.
        _make_room(workspace, state, file)
        workspace.catalog.objects.files.move(source.removeprefix("elsewhere "), path)
        return source
    # The same events and settings give the same bytes; with other settings the next round lists the log anew.
    if source == "journals":
        merge_unit(workspace, path, _journals(workspace, state, file))
    compress_log(workspace, path, file.first_event_id, is_listed=True)
    if sha256_of(workspace, path) != file.sha256:
        return f"{source}; with the settings of today its bytes are others: it needs to be listed anew"
    return source


def _restore_from(workspace: Workspace, state: CatalogState, file: AddFile, copy: Path) -> str:
    data = workspace.fs.read(copy)
    if hashlib.sha256(data).digest() != file.sha256:
        raise CorruptionError(f"{copy}: expected the SHA-256 {file.sha256.hex()} of {file.path}, got another one.")
    _make_room(workspace, state, file)
    path = workspace.log_path(file.path)
    workspace.fs.make_directory(path.parent)
    workspace.fs.write_durably(path, data)
    return f"copied from {copy}"


def rewrite(workspace: Workspace, path: str, reason: str) -> str:
    """Rewrite a log with its whole blocks; return what was lost. `reason` is what was found, for the catalog.

    Durability: on return the new log, the transaction and the damaged bytes in the quarantine survive power loss.

    Raises:
        NotFoundError: the log is not live.
        CorruptionError: no block of it can be found.
    """
    state, file = live_file(workspace, path)
    damages: list[Damage] = []
    # A rewrite erases like a compaction does, so the holds count here too.
    holds = hold_conditions(workspace)
    survey = survey_logs(workspace, state, [file], holds, on_damage=damages.append)
    damaged = {damage.block: damage for damage in damages}
    log = open_event_log(workspace, file)
    events = sum(_keep_block(workspace, file, log, damage) for damage in damaged.values())
    ranges = [(damage.first_event_id or 0, damage.last_event_id or 0) for damage in damaged.values()]
    losses: list[CatalogAction] = []
    if damaged:
        blocks = ", ".join(str(number) for number in damaged)
        loss = loss_action(ranges, events, path, f"blocks {blocks} were damaged", workspace.clock.now_ms())
        losses.append(CatalogAction(add_loss=loss))
    offsets = [int(log.toc.blocks[number]["offset"]) for number in damaged if number is not None]
    kind = FileRepair.LOG_REWRITTEN if survey.rows else FileRepair.LOG_GIVEN_UP
    # In the transaction that replaces the log: else that would look like a compaction.
    losses.append(_told(workspace, kind, file, reason, offsets=offsets, lost=ranges, events=events))
    if not survey.rows:
        return _remove(workspace, state, file, losses)
    # The loss is noted in the transaction that replaces the log: never one without the other.
    report = replace_logs(
        workspace, state, [file], survey, holds, losses, on_damage=lambda damage: _expect(damage, damaged)
    )
    return f"revision {report.revision}: {survey.rows} events in a new log, {events} lost"


def give_up(workspace: Workspace, path: str, reason: str) -> str:
    """Remove an unreadable log from the catalog, and note its loss there; `reason` is what was found."""
    state, file = live_file(workspace, path)
    ranges = [(file.first_event_id, file.last_event_id)]
    accepted = "the log is gone, or none of its blocks can be found; its loss was accepted"
    loss = loss_action(ranges, file.rows, path, accepted, workspace.clock.now_ms())
    told = _told(workspace, FileRepair.LOG_GIVEN_UP, file, reason, lost=ranges, events=file.rows)
    return _remove(workspace, state, file, [CatalogAction(add_loss=loss), told])


def rewrite_toc(workspace: Workspace, path: str) -> str:
    """Write the table of contents of a log from the log itself.

    Raises:
        CorruptionError: the log's own table is another one than the catalog lists.
    """
    _, file = live_file(workspace, path)
    log = EventLog(workspace.fs, workspace.log_path(path), sha256=file.sha256, toc_sha256=file.toc_sha256)
    data = log.toc.encode()
    if hashlib.sha256(data).digest() != file.toc_sha256:
        raise CorruptionError(f"{log.path}: expected the table of contents that the catalog lists, got another one.")
    workspace.fs.write_durably(workspace.log_path(file.toc_path), data)
    return f"{len(data)} bytes written"


def rebuild_index_shard(workspace: Workspace, name: str) -> str:
    """Rebuild a shard from its logs."""
    state = workspace.catalog.settle()
    if name not in state.shards:
        raise NotFoundError(f"shard {name}: is not live any more. Nothing is left to do.")
    built = rebuild_shard(workspace, state.shards[name])
    return f"{built.documents} events"


def drop_filters(workspace: Workspace, path: Path) -> str:
    """Remove a file of filters; the shards that it told of are asked until the next one is written."""
    remove_filter_files(workspace, path.parent, [path.name])
    return "removed"


def _told(
    workspace: Workspace,
    kind: FileRepair.Kind,
    file: AddFile,
    reason: str,
    *,
    offsets: Sequence[int] = (),
    lost: Sequence[tuple[int, int]],
    events: int,
) -> CatalogAction:
    """Return the note of a repair that the same transaction does."""
    found = digest_found(workspace, file.path)
    repair = file_repair(
        kind,
        file.path,
        reason,
        expected_sha256=file.sha256,
        found_sha256=found,
        offsets=offsets,
        lost=lost,
        events=events,
    )
    return repair_note([repair], REPAIR)


def digest_found(workspace: Workspace, path: str) -> bytes:
    """Return the digest of what lies in the place of a file of the database's folder; empty if nothing does."""
    return sha256_of(workspace, path) if workspace.catalog.objects.files.exists(path) else b""


def _remove(workspace: Workspace, state: CatalogState, file: AddFile, noted: list[CatalogAction]) -> str:
    """Remove a log and its shard from the catalog, without a successor.

    Its groups are live no longer: should their journals come back, they are rolled over again.
    """
    shards = shards_covering(state, [file.path])
    actions = [CatalogAction(remove_file=RemoveFile(path=file.path))]
    actions += [CatalogAction(remove_shard=RemoveShard(name=shard.name)) for shard in shards]
    # The log and its loss in one transaction; the shards go afterwards, as searches need them until then.
    after = workspace.catalog.commit([*actions, *noted])
    remove_shards(workspace, shards)
    return f"revision {after.revision}: listed no more, {file.rows} events lost"


def _keep_block(workspace: Workspace, file: AddFile, log: EventLog, damage: Damage) -> int:
    """Put the bytes of a damaged block into the quarantine; return how many events it held."""
    block = log.toc.blocks[damage.block]
    start = int(block["offset"])
    data = bytes(log.data[start : start + int(block["length"])])
    where = str(workspace.log_place(file.path))
    quarantine_bytes(workspace, data, code="log-damage", message=str(damage), path=where, offset=start)
    return int(block["rows"])


def _expect(damage: Damage, damage_by_block: dict[int | None, Damage]) -> None:
    # The survey counted the losses: a block that broke since would be lost without being noted.
    if damage.block not in damage_by_block:
        raise CorruptionError(f"{damage} It was whole a moment ago: look at the disk.")


def _copies(workspace: Workspace, file: AddFile) -> Iterator[str]:
    """Yield other files of the database that hold a log's bytes: in the trash, or under another log's name."""
    for folder in ("trash/", "data/"):
        for info in workspace.catalog.objects.files.list(folder, present_only=True):
            # The size first: hashing every log of a large repository would take too long.
            if info.key == file.path or not info.key.endswith(".parquet") or info.size_bytes != file.size_bytes:
                continue
            if sha256_of(workspace, info.key) == file.sha256:
                yield info.key


def _make_room(workspace: Workspace, state: CatalogState, file: AddFile) -> None:
    """Move what lies in a log's place: another log's bytes to the trash, anything else to the quarantine."""
    files = workspace.catalog.objects.files
    if not files.exists(file.path):
        return
    path = workspace.log_path(file.path)
    digest = sha256_of(workspace, file.path)
    # By digest: two live logs never have equal bytes, as their ids differ.
    other = next((item.path for item in state.files.values() if item.sha256 == digest), None)
    if other is not None and other != file.path:
        files.move(file.path, trash_path(other, workspace.clock.now_ms()))
        return
    text = f"{path}: other bytes in the place of a live log."
    quarantine_bytes(workspace, workspace.fs.read(path), code="log-damage", message=text, path=str(path), offset=0)


def _path_of_staged(workspace: Workspace, file: AddFile) -> str | None:
    try:
        return find_staged(workspace, file.first_event_id).files(workspace).relative_log
    except CustodyError:
        return None


def _journals(workspace: Workspace, state: CatalogState, file: AddFile) -> list[Group]:
    """Return the groups of a log's unit when the journals of all of them are still on disk, else none."""
    # A unit is merged as a whole: without the journals of one of its groups other bytes would come out.
    first_ids = set(file.groups)
    try:
        for transaction in workspace.catalog.timeline():
            added = [action.add_file for action in transaction.actions if action.HasField("add_file")]
            if any(item.path == file.path for item in added):
                first_ids.update(group for item in added for group in item.groups)
    except CustodyError:
        for item in state.files.values():
            if first_ids.intersection(item.groups):
                first_ids.update(item.groups)
    groups = [group for group in workspace.groups() if group.first_event_id in first_ids and group.is_sealed]
    return groups if first_ids and {group.first_event_id for group in groups} == first_ids else []
