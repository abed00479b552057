"""Whether interrupted work left anything, by names of files alone. The leftover sensor's question.

What a step writes it writes under a lease, and says when its work is done: a lease that ended otherwise stands for all
that its attempt may have left in folders that are too large to be looked through each minute.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from custody.config import Settings
from custody.format.names import BUILDING_PREFIX, COMPACT_LEASE, REMOVING_PREFIX, RETENTION_LEASE, ContainerPaths
from custody.lease import is_dead, lease_status
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, PosixFileSystem
from custody.workspace import ROLLOVER_LEASE, Workspace, lease_folder

_UNDER_WAY = (BUILDING_PREFIX, REMOVING_PREFIX)


class Leftovers(msgspec.Struct, frozen=True, kw_only=True):
    """Where interrupted work left something: paths of files, folders, or leases that did not end well."""

    paths: tuple[str, ...]

    @property
    def is_any(self) -> bool:
        """Whether step `recover` has something to do."""
        return bool(self.paths)


def leftovers(settings: Settings, fs: FileSystem | None = None) -> Leftovers:
    """Return what interrupted work left in a repository, of all writers. Only folders are listed, no file is opened.

    The one exception is a lease that did not end: its file names the process that has to be looked for.
    """
    fs = fs or PosixFileSystem()
    return Leftovers(paths=tuple(path for workspace in Workspace.all(settings, fs) for path in _of_writer(workspace)))


def _of_writer(workspace: Workspace) -> Iterator[str]:
    settings, fs, writer = workspace.settings, workspace.fs, workspace.writer
    if not workspace.is_held():
        yield from (str(path) for group in workspace.groups() for path in group.open)
        for root in settings.containers:
            folder = ContainerPaths(root, writer).journals
            yield from (str(folder / name) for name in fs.list(folder) if name.endswith(TEMPORARY_SUFFIX))
    now, dead_seconds = workspace.clock.now_ms(), settings.lease.dead_seconds
    held = False
    for name in (ROLLOVER_LEASE, COMPACT_LEASE, RETENTION_LEASE):
        found = lease_status(fs, lease_folder(settings, writer, name))
        if found is None:
            continue
        if found.is_open:
            dead = is_dead(fs, found, now, dead_seconds)
            held = held or not dead
            if dead:
                yield str(found.path)
        elif found.failed and name == ROLLOVER_LEASE:
            yield str(found.path)
    if not held:
        folders = [workspace.paths.staging, *(ContainerPaths(root, writer).index for root in settings.containers)]
        for folder in folders:
            yield from (str(folder / name) for name in fs.list(folder) if name.startswith(_UNDER_WAY))
