"""Removing what is no longer needed: journals of groups that are done, then the staged unit that they became.

A group is done when it is live, or when its staged unit says that no event of it is whole: what was damaged is in the
quarantine before the unit is published. Of a group that is done only those journals go whose events the logs hold: see
`evidence`.
"""

from __future__ import annotations

import errno
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path

from custody.catalog import CatalogState
from custody.errors import StorageError
from custody.format.names import REMOVING_PREFIX
from custody.journal import Group
from custody.rollover.evidence import holds_events, proof_of
from custody.rollover.manifest import UnitManifest
from custody.rollover.report import UnitReport
from custody.rollover.workspace import Proof, Workspace


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
        if group.is_sealed and first not in staged and any(_removable(workspace, state, group, is_empty=False)):
            yield (first,)


def to_be_done(workspace: Workspace, groups: Sequence[Group]) -> Iterator[Group]:
    """Yield the sealed groups that a pass has something to do for: live ones whose journals have to stay are none."""
    state = workspace.catalog.load() if groups else None
    for group in groups:
        if group.is_sealed and state is not None:
            is_live = workspace.is_committed(state, group.first_event_id)
            if not is_live or any(_removable(workspace, state, group, is_empty=False)):
                yield group


def sweep_unit(workspace: Workspace, unit: str, groups: Sequence[int]) -> UnitReport:
    """Remove the journals of groups that are done, their staged unit, and what an interrupted removal left.

    Of what is staged, only the units of these groups are read: there are as many sweeps as units.
    """
    fs = workspace.fs
    state = workspace.catalog.settle()
    staged = workspace.manifests(groups)
    empty = {group for manifest in staged if not manifest.logs for group in manifest.groups}
    done = {group for group in groups if group in empty or workspace.is_committed(state, group)}
    found = workspace.groups(done)
    journals = [
        path for item in found for path in _removable(workspace, state, item, is_empty=item.first_event_id in empty)
    ]
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
    kept = sum(len(group.sealed) for group in found) - len(journals)
    note = f"{len(journals)} journals removed" + (f", {kept} kept: no live log has their events" if kept else "")
    return UnitReport(unit=unit, bytes=size, note=note)


def _removable(workspace: Workspace, state: CatalogState, group: Group, *, is_empty: bool) -> Iterator[Path]:
    """Yield the sealed journals of a group whose events are live, or that have none in a unit without events."""
    is_live = workspace.is_committed(state, group.first_event_id)
    for path in group.sealed:
        try:
            if (is_live and proof_of(workspace, state, group.first_event_id, path) is Proof.HELD) or (
                is_empty and not is_live and not holds_events(workspace, path)
            ):
                yield path
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise  # else another attempt has just removed it


def _is_done(workspace: Workspace, state: CatalogState, manifest: UnitManifest) -> bool:
    return not manifest.logs or any(workspace.is_committed(state, group) for group in manifest.groups)


def _retire(workspace: Workspace, folder: Path) -> None:
    """Take a unit's name away, so that no folder with a unit's name is ever a part of one."""
    workspace.fs.rename(folder, folder.with_name(f"{REMOVING_PREFIX}{folder.name}-{uuid.uuid4().hex}"))
    workspace.fs.sync_directory(folder.parent)
