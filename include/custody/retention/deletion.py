"""Deletion of marked files, once the grace for their readers is over. Each part can be repeated after any crash.

Earlier revisions of the catalog still list the files. So the floor is raised first: a query for such a revision is
refused with the earliest one that is kept, and never meets a missing file. A checkpoint at the floor and a later one
are there before the floor moves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from pathlib import Path

from custody import iceberg
from custody.catalog import (
    Action,
    AddMark,
    Catalog,
    Note,
    RemoveMark,
    drop_revisions,
    left_below_floor,
    plan_prune,
    raise_floor,
    readable_checkpoints,
)
from custody.catalog.data_files import DataFiles
from custody.errors import StripeMissingError
from custody.format.names import ContainerPaths, parse_trash
from custody.maintenance import remove_folder
from custody.retention.disk_usage import allocated_bytes, allocated_folder_bytes
from custody.store import ObjectInfo
from custody.workspace import Workspace

GROUPS_KEPT_MS = 7 * 86_400_000
"""How long a mark remembers its journal groups: longer than any rollover can be delayed."""
# One newer checkpoint that was read back is enough to lose one; each more would cost a pass before bytes are freed.
_LATER_CHECKPOINTS = 1


def due_marks(workspace: Workspace) -> list[AddMark]:
    """Return the marks whose files may be deleted now, oldest first."""
    # Readers that began before the mark may still be in these files.
    before = workspace.clock.now_ms() - workspace.settings.retention.grace_ms
    state = workspace.catalog.load()
    due = [mark for mark in state.marks.values() if (mark.paths or mark.shards) and mark.created_ms <= before]
    return sorted(due, key=lambda mark: (mark.created_ms, mark.id))


def delete_logs(workspace: Workspace) -> tuple[int, int]:
    """Delete the logs and tables of contents of due marks; return how many files, and their bytes.

    Durability: on return the floor and the deletions survive power loss.
    """
    marks = due_marks(workspace)
    if not marks:
        return 0, 0
    catalog = workspace.catalog
    catalog.settle()  # the mark may come from a process that died before it was durable
    # The floor first: no revision that can still be asked for may list a file that is gone.
    keep_from(catalog, _revision_of(catalog, marks))
    # Then the published table: no snapshot of it may name a file that is gone.
    iceberg.republish(workspace)
    # Invariant: a live file is never deleted, whatever a mark says.
    live = {path for file in catalog.load().files.values() for path in (file.path, file.toc_path)}
    store, marked = catalog.objects.files, {path for mark in marks for path in mark.paths} - live
    # What lies on a stripe that is away waits: its mark is settled when the files are gone.
    files = [info for path in sorted(marked) if (info := _present(store, path)) is not None]
    for info in store.list("trash/", present_only=True):  # the garbage collection may have been faster
        trashed = parse_trash(info.key)
        files += [info] if trashed is not None and trashed[1] in marked else []
    for info in files:
        store.delete(info.key)
    for folder in sorted({info.key.rpartition("/")[0] for info in files}):
        store.drop_folder(f"{folder}/")
    return len(files), sum(allocated_bytes(info.size_bytes) for info in files)


def _present(files: DataFiles, path: str) -> ObjectInfo | None:
    try:
        return files.head(path)
    except StripeMissingError:
        return None


def delete_shards(workspace: Workspace) -> tuple[int, int]:
    """Delete the shards of due marks; return how many, and their bytes.

    Durability: on return they are gone for good; on raise `leftover_shards` finds the rest later.
    """
    live = {workspace.shard_path(shard) for shard in workspace.catalog.settle().shards.values()}
    folders = [folder for mark in due_marks(workspace) for folder in _folders(workspace, mark)]
    # As with logs: what is live stays, whatever a mark says.
    present = [folder for folder in folders if workspace.fs.exists(folder) and folder not in live]
    size = sum(allocated_folder_bytes(workspace.fs, folder) for folder in present)
    names = {shard.name for mark in due_marks(workspace) for shard in mark.shards}
    for name in sorted(names - {folder.name for folder in live}):
        workspace.shard_objects.remove(name)
    for folder in present:
        remove_folder(workspace, folder)
    return len(present), size


def settle_marks(workspace: Workspace) -> int:
    """Shorten the marks whose files are deleted, and drop those that are no longer needed; return how many.

    Durability: on return the transaction survives power loss.
    """
    actions: list[Action] = []
    for mark in _settled(workspace):
        # Before the mark is shortened: it is the only list of the files that have to be gone.
        _settle_deletion(workspace, mark)
        actions.append(Action(remove_mark=RemoveMark(id=mark.id)))
        if mark.groups and not _is_forgotten(workspace, mark):
            shortened = AddMark(id=mark.id, groups=mark.groups, events=mark.events, created_ms=mark.created_ms)
            actions.append(Action(add_mark=shortened))
    if actions:
        workspace.catalog.commit(actions)
    return sum(action.HasField("remove_mark") for action in actions)


def has_settled(workspace: Workspace) -> bool:
    """Whether a mark can be shortened or dropped."""
    return any(_settled(workspace))


def keep_from(catalog: Catalog, revision: int, more: Sequence[Action] = (), why: str = "retention") -> None:
    """Raise the floor to this revision or a later one, with a readable checkpoint at it and another one later.

    Durability: on return the floor survives power loss, and so does `more`, of the same transaction.

    Raises:
        CommitConflictError: `more` does not apply; the floor is as it was.
    """
    if catalog.load().floor >= revision:
        return
    # The newest first: those behind one that is too early are too early as well, and are not read.
    at = list(takewhile(lambda checkpoint: checkpoint >= revision, readable_checkpoints(catalog)))
    if not at:
        catalog.write_checkpoint()
        at = [catalog.load().revision]
    if len(at) <= _LATER_CHECKPOINTS:
        # A later checkpoint needs a later revision: a note makes one.
        if catalog.load().revision == at[-1]:
            catalog.commit([Action(note=Note(text=f"{why}: revisions before {at[-1]} are pruned"))])
        catalog.write_checkpoint()
    raise_floor(catalog, plan_prune(catalog, at[-1], _LATER_CHECKPOINTS), more)


def delete_revisions(catalog: Catalog) -> int:
    """Delete the revisions before the floor; return how many objects.

    Durability: on return the deletions survive power loss.
    """
    plan = left_below_floor(catalog)
    drop_revisions(catalog, plan)
    return len(plan.keys)


def _revision_of(catalog: Catalog, marks: Iterable[AddMark]) -> int:
    """Return the last revision that made one of some marks; 0 when the floor is behind it already."""
    mark_ids = {mark.id for mark in marks}
    revision = 0
    for transaction in catalog.timeline():
        if any(action.HasField("add_mark") and action.add_mark.id in mark_ids for action in transaction.actions):
            revision = transaction.revision
    return revision


def _settled(workspace: Workspace) -> list[AddMark]:
    """Return the marks whose files are all gone, and that can be shortened or dropped."""
    state, files = workspace.catalog.load(), workspace.catalog.objects.files
    due = {mark.id for mark in due_marks(workspace)}
    settled = []
    for _, mark in sorted(state.marks.items()):
        is_short = not (mark.paths or mark.shards)
        if is_short and not _is_forgotten(workspace, mark):
            continue
        if not is_short and mark.id not in due:
            continue
        # Looked for on disk, as the process that deleted them may have died halfway.
        try:
            is_left = any(files.exists(path) for path in mark.paths)
        except StripeMissingError:
            is_left = True  # out of reach, not gone
        if not is_left and not any(workspace.fs.exists(folder) for folder in _folders(workspace, mark)):
            settled.append(mark)
    return settled


def _settle_deletion(workspace: Workspace, mark: AddMark) -> None:
    """Make the deletion of a mark's files durable: the process that deleted them may have died before it was."""
    for path in mark.paths:
        workspace.catalog.objects.files.require(path)
    folders = {workspace.log_place(path).parent for path in mark.paths}
    folders |= {folder.parent for folder in _folders(workspace, mark)}
    for folder in sorted(folders):
        # A day without logs has no folder: then it is the removal of the folder's name that has to be durable.
        while not workspace.fs.exists(folder):
            folder = folder.parent
        workspace.fs.sync_directory(folder)


def _is_forgotten(workspace: Workspace, mark: AddMark) -> bool:
    return mark.created_ms <= workspace.clock.now_ms() - GROUPS_KEPT_MS


def _folders(workspace: Workspace, mark: AddMark) -> list[Path]:
    return [
        ContainerPaths(workspace.settings.root / shard.container, workspace.writer).index / shard.name
        for shard in mark.shards
    ]
