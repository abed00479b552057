"""The file system interface: every write, rename and removal of the library goes through a `FileSystem`.

What a power failure may take is part of the contract. Bytes are durable after `WritableFile.sync`; a name (created,
renamed, linked or removed) is durable after `sync_directory` of its folder, and only if its folder's own name is. A
process that dies loses nothing by it, but what was not durable then is not durable now: nobody may take a name that
another process left for a durable one. The composed operations are built from the primitives, the same way on every
file system (`custody.vfs.durable`), so that a test can fail or crash between any two of them.

A refusal of the operating system becomes a StorageError, which says what was attempted, on which path, what to do.
"""

from __future__ import annotations

import errno
import os
from builtins import list as list_of
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from custody.errors import StorageError
from custody.vfs.file_marks import Marks


@dataclass(frozen=True, slots=True)
class Space:
    """The room of a disk, in bytes; `free_bytes` is what this user may still write."""

    total_bytes: int
    free_bytes: int
    is_read_only: bool


_BLOCK_BYTES = 4096
_INODE_BYTES = 16 << 10
"""Of a disk for each inode that it has, where its maker did not say otherwise (mke2fs)."""


def bytes_on_disk(size: int) -> int:
    """Return how much of a disk a file of this size takes: its blocks, and no less than the share of an inode.

    A quota that counts so bounds the number of small files as well.
    """
    return max(-(-size // _BLOCK_BYTES) * _BLOCK_BYTES, _INODE_BYTES)


class Entry(NamedTuple):
    """A name in a folder and what it names. Sizes in bytes, times in ms since the epoch, of files only."""

    name: str
    is_folder: bool
    """Whether it is a folder itself, not a link to one."""
    size_bytes: int = 0
    modified_ms: int = 0
    is_readable: bool = True
    """Whether the file, or what a link leads to, could be looked at."""


class WritableFile(Protocol):
    """A file that grows at its end. Also a sink for pyarrow, which calls write, flush, tell and closed."""

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        ...

    def write(self, data: bytes) -> int:
        """Append all of `data`; return its length. Not durable before `sync`."""
        ...

    def flush(self) -> None:
        """Hand buffered bytes to the operating system; not durable."""
        ...

    def tell(self) -> int:
        """Return the number of bytes in the file so far."""
        ...

    def sync(self) -> None:
        """Make all bytes written so far durable.

        Durability: on return they survive power loss. On raise it is unknown which did, and a second try
        proves nothing: the caller must stop using the file.
        """
        ...

    def close(self) -> None:
        """Release the file; does not sync."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class PartialFile(Protocol):
    """A file of a fixed length that is filled in any order: a cache, whose content nobody may believe unchecked."""

    view: memoryview
    """The whole length, as it is now; what nobody filled reads as zeros."""

    def fill(self, start: int, data: bytes) -> None:
        """Write bytes at a place; `view` shows them, also in other processes that opened the file. Not durable."""
        ...


class Primitives(Protocol):
    """The effects of single system calls. Every method raises StorageError with the path."""

    def create(self, path: Path) -> WritableFile:
        """Make a new file for appending; raises if the name exists."""
        ...

    def append(self, path: Path) -> WritableFile:
        """Open a file that exists, to append to what it holds; `tell` counts from its beginning."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        ...

    def read_part(self, path: Path, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`: fewer where the file ends before. Also of files that shrink."""
        ...

    def view(self, path: Path) -> memoryview:
        """Return the whole content read-only; where possible, only the parts that are accessed are read.

        For files that never change under their name: if one shrinks, access to what was cut may end the process.
        """
        ...

    def partial(self, path: Path, size: int) -> PartialFile:
        """Open a file of `size` bytes to be filled; one that is not there, or has another length, is made anew.

        Nothing of it is durable: after a crash any part may hold what was never written. One that is removed stays
        usable for who opened it.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file or folder of that name exists."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Whether the name is a folder itself, not a link to one."""
        ...

    def is_file(self, path: Path) -> bool | None:
        """Whether a name is that of a regular file, or of a link to one; None where nothing has it.

        Raises where a parent is a file, or may not be searched.
        """
        ...

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written, in ms since the epoch."""
        ...

    def marks(self, paths: Sequence[str]) -> Marks | None:
        """Return marks of files and folders, by which a later look tells whether they changed; None on other disks.

        Content that was changed by a mapping has no mark.
        """
        ...

    def keeps_times(self, path: Path) -> bool:
        """Whether marks of a path can be relied on: its times come from this machine's clock, whoever changes it."""
        ...

    def space(self, folder: Path) -> Space | None:
        """Return the room of the disk that holds a folder, None where nobody can tell."""
        ...

    def list(self, folder: Path) -> list[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        ...

    def folders(self, folder: Path) -> set[str]:
        """Return those names in a folder that are folders themselves, not links to one; an absent folder is empty."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move atomically within a file system, replacing a file; durable after sync_directory of both folders."""
        ...

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; return False, with nothing changed, when that name is taken."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; an absent one is fine, so that deletion can be repeated."""
        ...

    def add_directory(self, folder: Path) -> None:
        """Make one folder in a folder that exists; one that is there already is fine."""
        ...

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder; an absent one is fine."""
        ...

    def cut(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes; durable after sync_file."""
        ...

    def sync_file(self, path: Path) -> None:
        """Make the content of a file durable that somebody else wrote."""
        ...

    def sync_directory(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        ...

    def sync_disk(self, folder: Path) -> bool:
        """Make everything durable that was written on the disk of a folder, by whomever: bytes and names.

        For many files at once. Waits for what others wrote, too. Returns False, with nothing promised, where the disk
        does not say that it does this; sync each file and folder then. On raise some of it is lost, nobody knows what:
        what was written must be written anew, under new names.
        """
        ...

    def lock(self, path: Path) -> AbstractContextManager[None]:
        """Hold an exclusive lock until the context ends; raises LockedError when another holder lives on."""
        ...

    def is_locked(self, path: Path) -> bool:
        """Whether a live process holds the lock; the check disturbs nobody."""
        ...


class FilesBelow(Protocol):
    """Reads below one folder, and makes new names there, by relative paths as texts, `a/b`, which the caller checked.

    Raises as `Primitives`, and what is made is no more durable than there.
    """

    def read(self, name: str) -> bytes:
        """Return the whole content of a file."""
        ...

    def list(self, name: str) -> list_of[str]:
        """Return the sorted names in a folder; an absent folder is empty. A `/` at the end of its name is fine."""
        ...

    def folders(self, name: str) -> set[str]:
        """Return those names in a folder that are folders themselves, not links to one; an absent folder is empty."""
        ...

    def entries(self, name: str) -> list_of[Entry]:
        """Return what is in a folder, sorted by name, each looked at once; an absent folder is empty.

        What goes away meanwhile is left out.
        """
        ...

    def is_absent(self, name: str) -> bool:
        """Whether nothing has this name; False also where nobody can tell."""
        ...

    def add_directory(self, name: str) -> None:
        """Make one folder in a folder that exists; one that is there already is fine."""
        ...

    def create_with(self, name: str, data: bytes | memoryview) -> None:
        """Make a new file with some bytes; raises if the name exists. On raise a part of it may be there."""
        ...


class FileSystem(Primitives, Protocol):
    """Durable effects on one file system: the primitives, and the operations composed from them."""

    def below(self, folder: Path) -> FilesBelow:
        """Return what reads and makes files below a folder without a path object for each, as the primitives do."""
        ...

    def make_directory(self, folder: Path) -> None:
        """Make a folder and its missing parents, durably, also when another process has just made it."""
        ...

    def remove_tree(self, folder: Path) -> None:
        """Remove a folder with all in it; an absent one is fine."""
        ...

    def truncate(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes, durably."""
        ...

    def write_durably(self, path: Path, data: bytes) -> None:
        """Write a file so that after a crash the name holds the old content or all of the new.

        Durability: on return the new content survives power loss.
        """
        ...

    def write_all_durably(self, folder: Path, groups: Sequence[Mapping[str, bytes]]) -> None:
        """Write files of one folder with few syncs, each as `write_durably` does; `groups` map names to contents.

        Durability: on return all survive power loss. After a crash or on raise some may be there, each whole, and one
        of a group only if all those of the groups before it are.
        """
        ...

    def publish_if_absent(self, path: Path, data: bytes) -> bool:
        """Write a file only if its name is free; return False, with nothing changed, when it is taken.

        Of several callers that race for one name exactly one gets True.
        Durability: on return what holds the name survives power loss, whoever wrote it. On raise it is unknown
        whether the name was won.
        """
        ...


_HINTS = {
    errno.ENOSPC: " Free space on this disk, then run the command again.",
    errno.EACCES: " Check the owner and the mode of the folder.",
    errno.EROFS: " The disk is mounted read-only.",
}


def storage_error(action: str, path: Path, error: OSError) -> StorageError:
    """Return an error that says what was attempted, on which path, and what the system answered, with its errno."""
    failure = StorageError(f"cannot {action} {path}: {error.strerror or error}.{_HINTS.get(error.errno or 0, '')}")
    # Handlers tell a full or read-only disk from a broken one by it.
    failure.errno = error.errno
    return failure


def refusal(action: str, path: Path, number: int) -> StorageError:
    """Return the error that a system would give with this errno."""
    return storage_error(action, path, OSError(number, os.strerror(number)))


def reported(action: str, path: Path) -> AbstractContextManager[None]:
    """Turn an OSError of the block into a StorageError."""
    return _Reported(action, path)


# No generator: each write and each sync of an append goes through it, which then takes a tenth of the time.
class _Reported(AbstractContextManager[None]):
    __slots__ = ("_action", "_path")

    def __init__(self, action: str, path: Path) -> None:
        self._action = action
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A StorageError is an OSError too, and names its own path already.
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(self._action, self._path, error) from error
