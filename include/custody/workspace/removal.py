"""Removal of what no transaction lists, so that no other attempt at the same work loses by it.

What is removed loses its name first, and keeps a name of its own until it is gone: recovery finds it after a crash. So
a file or folder with a regular name is always whole.
"""

from __future__ import annotations

import errno
import uuid
from pathlib import Path

from custody.errors import StorageError, SupersededError
from custody.format.names import REMOVING_PREFIX
from custody.lease import FencedFileSystem
from custody.vfs import FileSystem
from custody.workspace.workspace import Workspace

# Of the uuid at the end of a removal name. Part of the format: names on disk are read back by it.
_HEX_DIGITS = 32


def removal_name(path: Path) -> Path:
    """Return the name that a file or folder has while it is removed."""
    return path.with_name(f"{REMOVING_PREFIX}{path.name}-{uuid.uuid4().hex}")


def name_before_removal(name: str) -> str:
    """Return the name that something had before its removal began."""
    return name.removeprefix(REMOVING_PREFIX)[: -_HEX_DIGITS - 1]


def discard(workspace: Workspace, path: Path) -> None:
    """Remove a file or a folder that no transaction lists; one that is gone is no error.

    It loses its name first. Then the lease is checked again. If it is still current, no other attempt has begun since,
    and none can come to list what has lost its name. If not, another attempt may have listed it: it gets its name back.

    Durability: on return it is gone for good, or recovery finds the rest.

    Raises:
        SupersededError: another attempt took over.
    """
    # A name of its own for each removal: two attempts that remove the same path never share one.
    aside = removal_name(path)
    try:
        workspace.fs.rename(path, aside)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            return
        raise
    try:
        workspace.check()
    except SupersededError:
        put_back(workspace, aside, path)
        raise
    # The loss of the name is durable before any content goes: after a crash, no half of it has a regular name.
    workspace.fs.sync_directory(path.parent)
    remove(workspace.fs, aside)
    workspace.fs.sync_directory(path.parent)


def put_back(workspace: Workspace, aside: Path, path: Path) -> None:
    """Give what lost its name the name again, unless something else has it.

    Durability: on return the name survives power loss.
    """
    # Not through the fence: the lease is lost, and this effect undoes one that came too late.
    fs = workspace.fs.plain if isinstance(workspace.fs, FencedFileSystem) else workspace.fs
    if fs.is_directory(aside):
        try:
            fs.rename(aside, path)
        except StorageError as error:
            # The name belongs to a newer folder: that one counts, and what lies aside is left to recovery.
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
    else:
        # A link fails where the name is taken, whereas a rename would replace the other attempt's file.
        fs.link(aside, path)
    fs.sync_directory(path.parent)


def remove(fs: FileSystem, path: Path) -> None:
    """Remove a file, or a folder with everything in it."""
    if fs.is_directory(path):
        fs.remove_tree(path)
    else:
        fs.remove(path)
