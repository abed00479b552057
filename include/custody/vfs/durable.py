"""Durable file operations: write by a temporary file and a rename, publish if absent, remove a tree.

Built from the primitives of a file system alone, so that every file system inherits them.
"""

from __future__ import annotations

import errno
import uuid
from abc import ABC, abstractmethod
from builtins import list as list_of
from collections.abc import Mapping, Sequence
from pathlib import Path

from custody.errors import StorageError
from custody.vfs.base import FilesBelow, WritableFile
from custody.vfs.below import BelowByPaths

_ONE_SYNC_FILES = 32
"""From so many new files on the whole disk is synced instead of each: it waits for what others wrote, too."""

# Part of the formats on disk: nobody reads what has it, and a start or recovery removes what a crash left.
TEMPORARY_SUFFIX = ".partial"


def temporary(path: Path) -> Path:
    """Return a name beside `path` that no other attempt uses; what has it is not whole and is never looked at."""
    return path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")


class DurableOperations(ABC):
    """Durable operations over the primitives of a subclass; each can be interrupted between any two of them."""

    @abstractmethod
    def create(self, path: Path) -> WritableFile:
        """Make a new file for appending."""

    @abstractmethod
    def exists(self, path: Path) -> bool:
        """Whether a file or folder of that name exists."""

    @abstractmethod
    def is_directory(self, path: Path) -> bool:
        """Whether the name is a folder itself."""

    @abstractmethod
    def is_file(self, path: Path) -> bool | None:
        """Whether what has a name is a regular file."""

    @abstractmethod
    def size(self, path: Path) -> int:
        """Return the length of a file in bytes."""

    @abstractmethod
    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written, in ms since the epoch."""

    @abstractmethod
    def read(self, path: Path) -> bytes:
        """Return the whole content."""

    @abstractmethod
    def list(self, folder: Path) -> list_of[str]:
        """Return the names in a folder."""

    def folders(self, folder: Path) -> set[str]:
        """Return those names in a folder that are folders themselves."""
        return {name for name in self.list(folder) if self.is_directory(folder / name)}

    def below(self, folder: Path) -> FilesBelow:
        """Return what reads and makes files below a folder by texts."""
        return BelowByPaths(self, folder)

    @abstractmethod
    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a folder."""

    @abstractmethod
    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name unless it is taken."""

    @abstractmethod
    def remove(self, path: Path) -> None:
        """Remove a file."""

    @abstractmethod
    def add_directory(self, folder: Path) -> None:
        """Make one folder."""

    @abstractmethod
    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder."""

    @abstractmethod
    def cut(self, path: Path, length: int) -> None:
        """Cut a file."""

    @abstractmethod
    def sync_file(self, path: Path) -> None:
        """Make a file's content durable."""

    @abstractmethod
    def sync_directory(self, folder: Path) -> None:
        """Make the names in a folder durable."""

    @abstractmethod
    def sync_disk(self, folder: Path) -> bool:
        """Make everything on the disk of a folder durable; False where that cannot be relied on."""

    def make_directory(self, folder: Path) -> None:
        """Make a folder and its missing parents, durably.

        A folder that exists may be the work of a process that died before it synced the name: whoever needs the
        folder syncs the name too. Above that nothing is left to do, because its maker made its parents durable first.
        """
        if self.exists(folder):
            self._sync_name_of_found(folder)
            return
        self.make_directory(folder.parent)
        # Two processes may get here at once: a folder that exists is fine, and each of them syncs its name.
        self.add_directory(folder)
        self.sync_directory(folder.parent)

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder with all in it; an absent one is fine."""
        # Not durable by itself: whoever needs the removal to survive a power loss syncs the parent. Can be repeated
        # from any point, as absent names are fine.
        for name in self.list(folder):
            path = folder / name
            if self.is_directory(path):
                self.remove_tree(path)
            else:
                self.remove(path)
        self.remove_directory(folder)

    def truncate(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes, durably."""
        self.cut(path, length)
        self.sync_file(path)

    def write_durably(self, path: Path, data: bytes) -> None:
        """Write beside the target, sync, rename over it, sync the folder."""
        self.write_all_durably(path.parent, [{path.name: data}])

    def write_all_durably(self, folder: Path, groups: Sequence[Mapping[str, bytes]]) -> None:
        """Write all beside the targets, sync, then rename group by group, each behind a sync of the folder."""
        partials = {name: temporary(folder / name) for group in groups for name in group}
        one_sync = len(partials) >= _ONE_SYNC_FILES
        # A reader sees the old content or the new one, never a part: a name moves only when the bytes are durable.
        try:
            for group in groups:
                for name, data in group.items():
                    with self.create(partials[name]) as file:
                        file.write(data)
                        if not one_sync:
                            file.sync()
            if one_sync and not self.sync_disk(folder):
                for partial in partials.values():
                    self.sync_file(partial)
            for group in groups:
                for name in group:
                    self.rename(partials[name], folder / name)
                self.sync_directory(folder)
        except BaseException:
            # At once: on a full disk the rest would take the room that the next try needs. What has its name is gone
            # from here.
            for partial in partials.values():
                self.remove(partial)
            raise

    def publish_if_absent(self, path: Path, data: bytes) -> bool:
        """Write beside the target, sync, link under the target's name, which fails when the name is taken."""
        # A link, not a rename: of several callers exactly one gets the name.
        partial = self._write_temporary(path, data)
        try:
            published = self.link(partial, path)
        finally:
            # A crash before this leaves a second name of the same file, with the suffix that nobody looks at.
            self.remove(partial)
        # Also for the loser: it goes on to build on the winner's file, whose own sync may never come.
        self.sync_directory(path.parent)
        return published

    def _sync_name_of_found(self, folder: Path) -> None:
        try:
            self.sync_directory(folder.parent)
        except StorageError as error:
            # A folder whose parent may not be opened was not made by us but given to us: a mount point, a home.
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise

    def _write_temporary(self, path: Path, data: bytes) -> Path:
        partial = temporary(path)
        try:
            with self.create(partial) as file:
                file.write(data)
                file.sync()
        except BaseException:
            # At once: on a full disk the rest would take the room that the next try needs.
            self.remove(partial)
            raise
        return partial
