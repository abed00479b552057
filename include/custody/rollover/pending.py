"""Work that waits in a repository, counted cheaply: by names of files, and of journals no more than their heads.

The sensor of the DAG asks for it every few seconds, so nothing here decodes events.
"""

from __future__ import annotations

import msgspec

from custody.config import Settings
from custody.rollover.sweeping import groups_to_do
from custody.vfs import FileSystem, PosixFileSystem
from custody.workspace.workspace import Workspace


class Pending(msgspec.Struct, frozen=True, kw_only=True):
    """Work that lies on disk, counted over all writers."""

    sealed_groups: int
    abandoned_journals: int
    live_journals: int
    staged_units: int
    groups_not_handed_over: int = 0
    """Groups that would be lost with this machine's disks, open ones included; 0 where none are handed over."""

    @property
    def is_any(self) -> bool:
        """Whether a run has something to do. Journals of a live writer have to be sealed by it first."""
        return bool(self.sealed_groups or self.abandoned_journals or self.staged_units)


def pending(settings: Settings, fs: FileSystem | None = None) -> Pending:
    """Return what waits in a repository."""
    fs = fs or PosixFileSystem()
    sealed = abandoned = live = staged = not_handed_over = 0
    for workspace in Workspace.all(settings, fs):
        groups = workspace.groups()
        sealed += sum(1 for _ in groups_to_do(workspace, groups))
        journals = sum(len(group.open) for group in groups)
        # The open journals of a dead writer are work for a run. Those of a live one wait until it seals them.
        if journals and workspace.is_held():
            live += journals
        else:
            abandoned += journals
        staged += len(workspace.staged())
        if workspace.hands_over:
            # Imported here: most repositories do without.
            from custody.rollover.handing_over import groups_to_hand_over

            not_handed_over += len(groups_to_hand_over(workspace))
    return Pending(
        sealed_groups=sealed,
        abandoned_journals=abandoned,
        live_journals=live,
        staged_units=staged,
        groups_not_handed_over=not_handed_over,
    )
