"""Removing what is no longer needed: journals of groups that are done, then the staged unit that they became.

A group is done when it is live, or when its staged unit says that no event of it is whole: what was damaged is in the
quarantine before the unit is published.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from custody.catalog import CatalogState
from custody.format.names import REMOVING_PREFIX
from custody.rollover.manifest import UnitManifest
from custody.rollover.report import UnitReport
from custody.rollover.workspace import Workspace


def swept_groups(workspace: Workspace) -> Iterator[tuple[int, ...]]:
    """Yield the groups that are done, those of a staged unit together."""
    state = workspace.catalog.load()
    staged: set[int] = set()
    for manifest in workspace.manifests():
        staged.update(manifest.groups)
        if _is_done(workspace, state, manifest):
            yield manifest.groups
    for group in workspace.groups():
        first = group.first_event_id
        if group.is_sealed and first not in staged and workspace.is_committed(state, first):
            yield (first,)


def sweep_unit(workspace: Workspace, unit: str, groups: Sequence[int]) -> UnitReport:
    """Remove the journals of groups that are done, their staged unit, and what an interrupted removal left.

    Of what is staged, only the units of these groups are read: there are as many sweeps as units.
    """
    fs = workspace.fs
    state = workspace.catalog.settle()
    staged = workspace.manifests(groups)
    empty = [group for manifest in staged if not manifest.logs for group in manifest.groups]
    done = {group for group in groups if group in empty or workspace.is_committed(state, group)}
    journals = [path for group in workspace.groups(done) for path in group.sealed]
    size = sum(fs.size(path) for path in journals)
    for path in journals:
        fs.remove(path)
    for folder in {path.parent for path in journals}:
        fs.sync_directory(folder)
    for manifest in staged:
        if done.intersection(manifest.groups) and _is_done(workspace, state, manifest):
            size += sum(log.file_bytes for log in manifest.logs)
            _retire(workspace, workspace.paths.staged_unit(manifest.first_group))
    for folder in workspace.leftovers():
        fs.remove_tree(folder)
    return UnitReport(unit=unit, bytes=size, note=f"{len(journals)} journals removed")


def _is_done(workspace: Workspace, state: CatalogState, manifest: UnitManifest) -> bool:
    return not manifest.logs or any(workspace.is_committed(state, group) for group in manifest.groups)


def _retire(workspace: Workspace, folder: Path) -> None:
    """Take a unit's name away, so that no folder with a unit's name is ever a part of one."""
    workspace.fs.rename(folder, folder.with_name(f"{REMOVING_PREFIX}{folder.name}-{uuid.uuid4().hex}"))
    workspace.fs.sync_directory(folder.parent)
