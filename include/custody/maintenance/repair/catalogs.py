"""Repairs of a catalog, so that it can be read and says what of it was lost."""

from __future__ import annotations

from custody.catalog import Action as CatalogAction
from custody.catalog import Note, plan_repair, repair, scan, shard_of
from custody.errors import NotFoundError
from custody.format.names import TIME_DIGITS
from custody.maintenance.repair.actions import loss
from custody.maintenance.verification.ids import missing_ids
from custody.rollover import Workspace


def mend_chain(workspace: Workspace) -> str:
    """Let the catalog end where it can be read, with what of the rest still applies, and write a checkpoint.

    Logs that the pipeline has yet to publish are left to it: one of them alone would make its whole group live.
    """
    containers = [str(path) for path in workspace.settings.repository.containers]
    plan, state = repair(workspace.catalog, workspace.clock, containers, coming_logs(workspace))
    if not plan.is_needed:
        return "nothing is left to do"
    return f"revision {state.revision}; {len(plan.lost)} revisions lost, {len(plan.actions)} changes kept"


def is_mendable(workspace: Workspace) -> bool:
    """Whether `mend_chain` has something to do."""
    return plan_repair(workspace.catalog, coming_logs(workspace)).is_needed


def coming_logs(workspace: Workspace) -> set[str]:
    """Return the paths of logs whose groups have journals or a staged unit on disk: nothing committed them yet."""
    on_disk = {group.first_event_id for group in workspace.groups()}
    for manifest in workspace.manifests():
        on_disk.update(manifest.groups)
    objects = workspace.catalog.objects
    return {file.path for file in scan(objects).files if on_disk.intersection(file.groups)} if on_disk else set()


def set_object_aside(workspace: Workspace, where: str) -> str:
    """Move an object that does not belong to the catalog out of it."""
    objects = workspace.catalog.objects
    found = [key for key in objects.store.keys(objects.prefix) if objects.store.locate(key) == where]
    if not found:
        raise NotFoundError(f"{where}: is gone. Nothing is left to do.")
    target = f"{objects.home}transactions-damaged-{workspace.clock.now_ms():0{TIME_DIGITS}d}/"
    objects.store.move(found[0], target + found[0].removeprefix(objects.prefix))
    return f"moved to {target}"


def note_history(workspace: Workspace, revisions: list[int]) -> str:
    """Say in the catalog that old transactions cannot be read any more; their objects stay as they are."""
    named = ", ".join(map(str, revisions))
    note = Note(kind=Note.REPAIRED, text=f"the transactions {named} are damaged or missing", lost_revisions=revisions)
    workspace.catalog.settle()
    return f"revision {workspace.catalog.commit([CatalogAction(note=note)]).revision}"


def write_checkpoint(workspace: Workspace) -> str:
    """Write a checkpoint of the newest revision, its table of statistics and the hint."""
    workspace.catalog.settle()
    return workspace.catalog.write_checkpoint().key


def list_again(workspace: Workspace, paths: list[str]) -> str:
    """List logs whose transactions are lost, from their footers, with shards that the index step builds."""
    state = workspace.catalog.settle()
    ready = {path for path in paths if path not in state.files} - coming_logs(workspace)
    scanned = scan(workspace.catalog.objects, hashes=True, leave_out=set(state.files))
    files = [file for file in scanned.files if file.path in ready]
    if not files:
        return "nothing is left to do"
    containers = [str(path) for path in workspace.settings.repository.containers]
    text = f"{len(files)} logs behind the end of the catalog were listed again from their footers"
    actions = [CatalogAction(note=Note(kind=Note.REPAIRED, text=text))]
    actions += [CatalogAction(add_file=file) for file in files]
    shards = [shard_of(file, containers) for file in files]
    actions += [CatalogAction(add_shard=shard) for shard in shards if shard.name not in state.shards]
    last = max(file.last_event_id for file in files)
    return f"revision {workspace.catalog.commit(actions, next_event_id=last + 1).revision}: {len(files)} logs"


def note_ids(workspace: Workspace) -> str:
    """Say in the catalog that ids which nothing holds and nothing explains are lost.

    Raises:
        StorageError: a container is missing, which may hold them.
    """
    workspace.require_containers()
    state = workspace.catalog.settle()
    gaps = list(missing_ids(workspace, state))
    if not gaps:
        return "nothing is left to do"
    events = sum(last - first + 1 for first, last in gaps)
    made = loss(gaps, events, "", "nothing holds these ids; their loss was accepted", workspace.clock.now_ms())
    return f"revision {workspace.catalog.commit([CatalogAction(add_loss=made)]).revision}: {events} ids"
