"""Index shards that no catalog lists any more. They hold words of the events, so they go at once.

Nobody needs an old shard: who searches in it in this moment is told that it is gone, and reads the log instead, which
stays. The folder loses its name before its files go, so that a folder with a shard's name is always a whole shard.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

from custody.catalog import CatalogState
from custody.format.names import BUILDING_PREFIX, REMOVING_PREFIX, ContainerPaths, parse_shard
from custody.rollover import Workspace

YOUNG_MS = 24 * 3_600_000
"""A shard that nothing listed yet may be of a job that goes on, until it is as old as this."""


def retire(workspace: Workspace, folder: Path) -> None:
    """Remove a shard's folder; one that is gone is no error.

    Durability: on return it is gone for good, or a later call for `leftover_shards` finds the rest.
    """
    fs = workspace.fs
    if not fs.exists(folder):
        return
    gone = folder.with_name(f"{REMOVING_PREFIX}{folder.name}-{uuid.uuid4().hex}")
    fs.rename(folder, gone)
    fs.sync_directory(folder.parent)
    fs.remove_tree(gone)
    fs.sync_directory(folder.parent)


def leftover_shards(workspace: Workspace, state: CatalogState) -> Iterator[Path]:
    """Yield the folders of shards that were listed once and are not now, and what removals and attempts left."""
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
                removed = _removed(workspace, state) if removed is None else removed
                if name in removed or _is_old(workspace, path, now - YOUNG_MS):
                    yield path


def _is_old(workspace: Workspace, folder: Path, before_ms: int) -> bool:
    """Whether the files of a folder were last changed before a time; one without files may just have been made."""
    fs = workspace.fs
    changed = [fs.modified_ms(folder / name) for name in fs.list(folder)]
    return bool(changed) and max(changed) <= before_ms


def _removed(workspace: Workspace, state: CatalogState) -> set[str]:
    """Return the names of the shards that kept revisions removed."""
    if state.revision < 0:
        return set()
    actions = (action for transaction in workspace.catalog.timeline() for action in transaction.actions)
    return {action.remove_shard.name for action in actions if action.HasField("remove_shard")}
