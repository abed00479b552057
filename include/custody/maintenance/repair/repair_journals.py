"""Repairs of what is not live yet: journals, writer states and staged units.

Journals are the only copy of their events until their logs are live. So nothing here drops a record that can be read,
and the catalog is told which ids are lost before anything is removed.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from custody.catalog import Action as CatalogAction
from custody.errors import ConflictError, CustodyError, NotFoundError
from custody.format.names import ContainerPaths, JournalName
from custody.journal import Group, decode_state, encode_state, groups, lock_path, read_end
from custody.lease import Attempt
from custody.maintenance.repair.actions import loss_action, quarantine_bytes
from custody.maintenance.rewriting import remove_folder
from custody.maintenance.verification.check_ids import lost_ranges, subtract_ranges
from custody.maintenance.verification.check_journals import read_journal, record_ranges
from custody.recovery import seal_dead_journals
from custody.rollover import STEPS
from custody.workspace import Step, Workspace, rollover_lease


def roll_over(workspace: Workspace, first_event_id: int) -> str:
    """Roll over a damaged group: its damaged bytes go to the quarantine, its other events become live.

    First the loss is noted in the catalog.

    Raises:
        LockedError: a live writer holds the group's open journal, or another attempt works on the writer's files.
    """
    group = _group(workspace, first_event_id)
    if group.open:
        seal_dead_journals(workspace)  # refused while the writer lives: it seals its journals itself
        group = _group(workspace, first_event_id)
    state = workspace.catalog.settle()
    noted = 0
    # The loss first, then the rollover: after a crash in between the next repair subtracts what is noted already.
    if not workspace.is_committed(state, first_event_id):
        gaps = subtract_ranges(_missing(workspace, group), lost_ranges(state))
        noted = sum(last - first + 1 for first, last in gaps)
        if gaps:
            where = str(group.sealed[0])
            loss = loss_action(gaps, noted, "", f"records of {where} were damaged", workspace.clock.now_ms())
            workspace.catalog.commit([CatalogAction(add_loss=loss)])
    with rollover_lease(workspace, Attempt.new("repair")) as fenced:
        for step in STEPS.values():
            _run(fenced, step)
    return f"rolled over; {noted} events lost"


def rename_journal(workspace: Workspace, path: Path) -> str:
    """Rename a journal to the group that its header names, with the next free number.

    Raises:
        NotFoundError: it is gone, or its header cannot be read.
        ConflictError: it is another writer's.
    """
    name = JournalName.parse(path.name)
    journal = read_journal(workspace, path) if workspace.fs.exists(path) else None
    if name is None or journal is None or journal.header is None:
        raise NotFoundError(f"{path}: is gone. Nothing is left to do.")
    if (journal.header.writer, journal.header.database) != (workspace.writer, workspace.database):
        raise ConflictError(f"{path}: is a journal of writer {journal.header.writer!r}. Move it to where it belongs.")
    first_event_id = journal.header.first_event_id
    # Under the writer's lock: else a writer that starts could seal the journal, or take the number, between the look
    # and the rename, which replaces what has the name.
    with workspace.fs.lock(lock_path(workspace.settings.containers, workspace.writer)):
        # The number must be free in both forms, open and sealed: sealing keeps it.
        number = name.number
        folder = path.parent
        while any(workspace.fs.exists(folder / str(JournalName(first_event_id, number, s))) for s in (True, False)):
            number += 1
        target = folder / str(JournalName(first_event_id, number, name.sealed))
        workspace.fs.rename(path, target)
        workspace.fs.sync_directory(folder)
    return f"named {target.name}"


def restore_state(workspace: Workspace, path: Path) -> str:
    """Write a container's STATE anew from those of the other containers; without any, the next start makes it.

    Raises:
        LockedError: the writer is alive.
        ConflictError: several containers are missing, so that this one cannot be told from the others.
    """
    fs, roots = workspace.fs, workspace.settings.containers
    with fs.lock(lock_path(roots, workspace.writer)):
        others = [ContainerPaths(root, workspace.writer).state for root in roots]
        states = [decode_state(fs.read(other), other) for other in others if other != path and fs.exists(other)]
        identities = {identity for state in states for identity in state.containers}
        missing = sorted(identities.difference(state.container for state in states))
        # One missing identity must be this container's; of several nobody can tell which one is.
        if len(missing) > 1:
            raise ConflictError(
                f"{path}: one of the containers {', '.join(missing)}. Mount the others, then try again."
            )
        text = f"{path}: a damaged writer state."
        # Before anything is overwritten, so that a crash loses nothing.
        quarantine_bytes(workspace, fs.read(path), code="state-damage", message=text, path=str(path), offset=0)
        if missing:
            # The state that reserved most: an id that was given out must not be given out again.
            newest = max(states, key=lambda state: (state.reserved, state.floor))
            sealed = _sealed_below(workspace, path, missing[0])
            mended = msgspec.structs.replace(newest, container=missing[0], sealed=sealed)
            fs.write_durably(path, encode_state(mended))
            return "written anew"
        fs.remove(path)
        fs.sync_directory(path.parent)
        return "moved to the quarantine; the next start makes it anew"


def _sealed_below(workspace: Workspace, path: Path, identity: str) -> int | msgspec.UnsetType:
    """Return below which id a container's journals are sealed, from what lies on its own disk; unset if nobody knows.

    Other disks know of a later moment than one that was brought back from an earlier moment, so they are not asked.
    """
    witnesses = workspace.catalog.witnesses
    witness = None if witnesses is None else witnesses.on_disk(path.parent)
    if witness is None or identity not in witness.containers:
        return msgspec.UNSET
    # A crash between the state and its witness leaves a seal that the witness lacks; its journal is still there.
    here = groups(workspace.fs, [path.parents[1]], workspace.writer)
    ends = [read_end(workspace.fs, journal) for group in here for journal in group.sealed]
    ids = [end.last_event_id + 1 for end in ends if end is not None and end.last_event_id is not None]
    return max(witness.containers[identity], *ids) if ids else witness.containers[identity]


def redo_unit(workspace: Workspace, first_group: int) -> str:
    """Remove a damaged staged unit; the rollover makes it again from its journals, which stay until its logs are live.

    Raises:
        NotFoundError: its journals are gone; nothing was removed.
    """
    folder = workspace.paths.staged_unit(first_group)
    try:
        first_ids = set(workspace.manifest(first_group).groups)
    except CustodyError:
        # The manifest is what is damaged: the folder's name still tells the first group.
        first_ids = {first_group}
    there = {group.first_event_id for group in workspace.groups() if group.is_sealed}
    state = workspace.catalog.settle()
    # The staged unit is the last copy of a group that has neither journals nor live logs.
    if not all(group in there or workspace.is_committed(state, group) for group in first_ids):
        raise NotFoundError(f"{folder}: its journals are gone. Take what can be read of it by hand.")
    remove_folder(workspace, folder)
    return "removed; the rollover makes it again"


def _run(workspace: Workspace, step: Step) -> None:
    for unit in list(step.waiting(workspace)):
        step.run(workspace, unit)


def _group(workspace: Workspace, first_event_id: int) -> Group:
    for group in workspace.groups():
        if group.first_event_id == first_event_id:
            return group
    raise NotFoundError(f"group {first_event_id}: is gone. Nothing is left to do.")


def _missing(workspace: Workspace, group: Group) -> list[tuple[int, int]]:
    """Return the ids between a group's first and last one that no record holds.

    The end records tell the last one; when one of them is damaged, the group that follows does.
    """
    held = [(first, first + count - 1) for first, count in record_ranges(workspace, group)]
    ends = [read_end(workspace.fs, path) for path in group.sealed]
    last = max([last for _, last in held] + [end.last_event_id or 0 for end in ends if end is not None], default=-1)
    if any(end is None for end in ends):
        later = [item.first_event_id for item in workspace.groups() if item.first_event_id > group.first_event_id]
        later += [f.first_event_id for f in workspace.catalog.load().files.values()]
        behind = [first for first in later if first > group.first_event_id]
        last = min(behind) - 1 if behind else last
    return subtract_ranges([(group.first_event_id, last)], held) if last >= group.first_event_id else []
