"""Repairs of a catalog: afterwards it can be read, and says what of it was lost.

An answer may give out more than before when transactions that forgot or expired something are lost. Such a repair is
refused unless it is accepted explicitly.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from custody import recovery
from custody.catalog import Action as CatalogAction
from custody.catalog import (
    Draft,
    Note,
    RepairPlan,
    SecondCopyStore,
    copied_entries,
    groups_of_logs,
    plan_repair,
    repair,
    restore_copies,
    scan_logs,
    shard_of,
)
from custody.catalog.second_copies import copied_entry
from custody.errors import ConflictError, NotFoundError
from custody.format.names import TIME_DIGITS
from custody.lease import Attempt
from custody.maintenance.repair.actions import loss_action
from custody.maintenance.verification.check_catalog import lost_copies
from custody.maintenance.verification.check_ids import missing_ids
from custody.workspace import Workspace, rollover_lease


def mend_chain(workspace: Workspace, *, accept_loss: bool) -> str:
    """End the catalog where it can be read, apply again what of the rest still applies, and write a checkpoint.

    Logs that the pipeline has yet to publish are left to it: one of them alone would make its whole group live.

    Raises:
        ConflictError: answers may give out more afterwards, and `accept_loss` is not set.
    """
    require_accepted(plan_chain_repair(workspace).more, accept_loss=accept_loss)
    containers = [str(path) for path in workspace.settings.repository.containers]
    plan, state = repair(workspace.catalog, workspace.clock, containers, unpublished_logs(workspace))
    if not plan.is_needed:
        return "nothing is left to do"
    counts = f"{len(plan.lost)} revisions lost, {len(plan.actions)} changes kept"
    again = f", {len(plan.restored)} of them from their second copies" if plan.restored else ""
    more = f"; accepted: {'; '.join(plan.more)}" if plan.more else ""
    return f"revision {state.revision}; {counts}{again}{more}"


def plan_chain_repair(workspace: Workspace) -> RepairPlan:
    """Return the plan of `mend_chain`."""
    return plan_repair(workspace.catalog, unpublished_logs(workspace))


def require_accepted(more: Sequence[str], *, accept_loss: bool) -> None:
    """Raise ConflictError when answers may give out more afterwards and this is not accepted."""
    if more and not accept_loss:
        raise ConflictError(
            f"what was forgotten or expired may be given out again: {'; '.join(more)}. "
            "Put the damaged objects back from a backup, or accept it with --accept-loss."
        )


def forget_again(workspace: Workspace, names: list[str]) -> str:
    """Add to the catalog the tombstones and marks that it lost and of which only the second copies know."""
    catalog = workspace.catalog
    state = catalog.settle()
    copies = SecondCopyStore(catalog.objects).read()
    # Looked up again: another process may have told the catalog since the plan.
    lost = [copies.by_id[name] for name in lost_copies(workspace, state, copies) if name in names]
    again = restore_copies(Draft(state), lost)
    if again.more:
        raise ConflictError("; ".join(again.more))
    if not again.actions:
        return "nothing is left to do"
    note = CatalogAction(note=Note(kind=Note.REPAIRED, text=f"{len(again.restored)} were told again from their copies"))
    after = catalog.commit([note, *again.actions])
    catalog.accept(after)
    return f"revision {after.revision}: {len(again.restored)} tombstones and marks"


def write_copies(workspace: Workspace) -> str:
    """Write missing and damaged second copies anew from the catalog; damaged ones are moved aside."""
    catalog = workspace.catalog
    state, forgotten = catalog.settle(), SecondCopyStore(catalog.objects)
    copies = forgotten.read()
    copied = copied_entries(state)
    other = [
        copy.key
        for name, copy in copies.by_id.items()
        if copy.action.HasField("add_tombstone") and name in copied and copied_entry(copy.action) != copied[name]
    ]
    damaged = [*copies.unreadable, *other]
    target = f"{catalog.objects.home}transactions-damaged-{workspace.clock.now_ms():0{TIME_DIGITS}d}/"
    # Out of the way first: a copy is only written where its name is free.
    forgotten.set_aside(damaged, target)
    written = forgotten.complete(state)
    # `since` promises that later copies are complete: it is written after them.
    if copies.since is None:
        forgotten.settle_since(state)
    return f"{written} written, {len(damaged)} moved to {target}" if damaged else f"{written} written"


def unpublished_logs(workspace: Workspace) -> set[str]:
    """Return the paths of uncommitted logs: those whose groups have journals or a staged unit on disk."""
    # A log whose group still has journals is left to the pipeline: listed alone, it would make the whole group live,
    # and the sweep would remove journals whose other events no log holds yet.
    on_disk = {group.first_event_id for group in workspace.groups()}
    for manifest in workspace.manifests():
        on_disk.update(manifest.groups)
    objects = workspace.catalog.objects
    return {path for path, groups in groups_of_logs(objects) if on_disk.intersection(groups)} if on_disk else set()


def set_object_aside(workspace: Workspace, where: str) -> str:
    """Move an object that does not belong to the catalog out of it."""
    objects = workspace.catalog.objects
    keys = [key for key in objects.store.keys(objects.prefix) if objects.store.locate(key) == where]
    if not keys:
        raise NotFoundError(f"{where}: is gone. Nothing is left to do.")
    target = f"{objects.home}transactions-damaged-{workspace.clock.now_ms():0{TIME_DIGITS}d}/"
    objects.store.move(keys[0], target + keys[0].removeprefix(objects.prefix))
    return f"moved to {target}"


def note_history(workspace: Workspace, revisions: list[int]) -> str:
    """Note in the catalog that old transactions are unreadable; their objects stay as they are."""
    named = ", ".join(map(str, revisions))
    note = Note(kind=Note.REPAIRED, text=f"the transactions {named} are damaged or missing", lost_revisions=revisions)
    # Settled first, as whoever repairs may be the first to read what a process committed that died before it synced.
    workspace.catalog.settle()
    return f"revision {workspace.catalog.commit([CatalogAction(note=note)]).revision}"


def write_new_checkpoint(workspace: Workspace) -> str:
    """Write a checkpoint of the newest revision, its table of statistics and the hint."""
    # A checkpoint must not outlive the transaction that it stands for.
    workspace.catalog.settle()
    return workspace.catalog.write_checkpoint().key


def list_again(workspace: Workspace, paths: list[str]) -> str:
    """List logs of lost transactions again, from their footers, with shards that the index step builds."""
    state = workspace.catalog.settle()
    ready = {path for path in paths if path not in state.files} - unpublished_logs(workspace)
    scanned = scan_logs(workspace.catalog.objects, leave_out=set(state.files))
    files = [file for file in scanned.files if file.path in ready]
    if not files:
        return "nothing is left to do"
    containers = [str(path) for path in workspace.settings.repository.containers]
    text = f"{len(files)} logs behind the end of the catalog were listed again from their footers"
    actions = [CatalogAction(note=Note(kind=Note.REPAIRED, text=text))]
    actions += [CatalogAction(add_file=file) for file in files]
    shards = [shard_of(file, containers) for file in files]
    actions += [CatalogAction(add_shard=shard) for shard in shards if shard.name not in state.shards]
    # The commit raises the next id behind them: none of these ids may be given out again.
    last = max(file.last_event_id for file in files)
    after = workspace.catalog.commit(actions, next_event_id=last + 1)
    # Of what was seen and is lost this is all that is left, beside tombstones and marks, which have second copies.
    workspace.catalog.accept(after)
    return f"revision {after.revision}: {len(files)} logs"


def write_witness(workspace: Workspace, path: Path) -> str:
    """Write a witness that cannot be read anew, from the others and the catalog as it is."""
    witnesses = workspace.catalog.witnesses
    workspace.fs.remove(path)
    if witnesses is None or path not in witnesses.paths:
        return "removed: the next batch of the sink writes it again"
    witnesses.note(witnesses.seen())
    return "written from the other witnesses"


def accept_earlier(workspace: Workspace) -> str:
    """Let the states that are there count as the newest ones; ids that were given out are never given out again."""
    with rollover_lease(workspace, Attempt.new("repair")) as fenced:
        accepted = recovery.accept_earlier(fenced)
    return "nothing is left to do" if accepted is None else "the earlier state counts from here on"


def note_ids(workspace: Workspace) -> str:
    """Note in the catalog that ids which nothing holds and nothing explains are lost.

    Raises:
        StorageError: a container is missing, which may hold them.
    """
    workspace.require_containers()  # a missing container may hold the ids
    state = workspace.catalog.settle()
    gaps = list(missing_ids(workspace, state))
    if not gaps:
        return "nothing is left to do"
    events = sum(last - first + 1 for first, last in gaps)
    loss = loss_action(gaps, events, "", "nothing holds these ids; their loss was accepted", workspace.clock.now_ms())
    return f"revision {workspace.catalog.commit([CatalogAction(add_loss=loss)]).revision}: {events} ids"
