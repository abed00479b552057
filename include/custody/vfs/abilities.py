"""Abilities of a file system that a repository needs: hard links, locks, the sync of a folder."""

from __future__ import annotations

from pathlib import Path

from custody.vfs.base import FileSystem
from custody.vfs.durable import temporary

_PROBE = ".custody-abilities"


def require_abilities(fs: FileSystem, folder: Path) -> None:
    """Try in a folder what a repository does there; nothing stays behind.

    Raises:
        StorageError: the file system refuses one of the calls; the message names the ability that it lacks.
    """
    probe = temporary(folder / _PROBE)
    second = temporary(folder / _PROBE)
    try:
        fs.create(probe).close()
        # A second name publishes an object only if its name is free.
        fs.link(probe, second)
        with fs.lock(probe):
            pass
        fs.sync_directory(folder)
    finally:
        fs.remove(probe)
        fs.remove(second)
