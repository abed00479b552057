"""A file system around another one: the primitives go to the inner one, the composed operations are built here.

Subclasses change single primitives; the change then shows inside the composed operations as well.
"""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from custody.vfs.base import PartialFile, Primitives, Space, WritableFile
from custody.vfs.durable import DurableOperations
from custody.vfs.file_marks import Marks


class WrappingFile:
    """A file that hands every call on to another file."""

    def __init__(self, inner: WritableFile, path: Path) -> None:
        self.inner = inner
        self.path = path

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self.inner.closed

    def write(self, data: bytes) -> int:
        """Append all of `data`."""
        return self.inner.write(data)

    def flush(self) -> None:
        """Hand buffered bytes to the operating system."""
        self.inner.flush()

    def tell(self) -> int:
        """Return the number of bytes in the file so far."""
        return self.inner.tell()

    def sync(self) -> None:
        """Make all bytes written so far durable."""
        self.inner.sync()

    def close(self) -> None:
        """Release the file."""
        self.inner.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


# Invariant: only primitives are handed on. Composed operations of `inner` would pass by what a subclass changes.
class WrappingFileSystem(DurableOperations):
    """A file system that hands every primitive on to `inner`."""

    def __init__(self, inner: Primitives) -> None:
        self.inner = inner

    def create(self, path: Path) -> WritableFile:
        """Make a new file for appending."""
        return self.inner.create(path)

    def append(self, path: Path) -> WritableFile:
        """Open a file that exists for appending."""
        return self.inner.append(path)

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        return self.inner.read(path)

    def read_part(self, path: Path, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`."""
        return self.inner.read_part(path, start, length)

    def view(self, path: Path) -> memoryview:
        """Return the whole content read-only."""
        return self.inner.view(path)

    def partial(self, path: Path, size: int) -> PartialFile:
        """Open a file to be filled."""
        return self.inner.partial(path, size)

    def exists(self, path: Path) -> bool:
        """Whether a file or folder of that name exists."""
        return self.inner.exists(path)

    def is_directory(self, path: Path) -> bool:
        """Whether the name is a folder itself."""
        return self.inner.is_directory(path)

    def is_file(self, path: Path) -> bool | None:
        """Whether what has a name is a regular file."""
        return self.inner.is_file(path)

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        return self.inner.size(path)

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written."""
        return self.inner.modified_ms(path)

    def marks(self, paths: Sequence[str]) -> Marks | None:
        """Return marks of files and folders."""
        return self.inner.marks(paths)

    def keeps_times(self, path: Path) -> bool:
        """Whether marks of a path can be relied on."""
        return self.inner.keeps_times(path)

    def space(self, folder: Path) -> Space | None:
        """Return the room of the disk that holds a folder."""
        return self.inner.space(folder)

    def list(self, folder: Path) -> list_of[str]:
        """Return the sorted names in a folder."""
        return self.inner.list(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a folder."""
        self.inner.rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name unless it is taken."""
        return self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self.inner.remove(path)

    def add_directory(self, folder: Path) -> None:
        """Make one folder."""
        self.inner.add_directory(folder)

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder."""
        self.inner.remove_directory(folder)

    def cut(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes."""
        self.inner.cut(path, length)

    def sync_file(self, path: Path) -> None:
        """Make a file's content durable."""
        self.inner.sync_file(path)

    def sync_directory(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        self.inner.sync_directory(folder)

    def sync_disk(self, folder: Path) -> bool:
        """Make everything durable on the disk of a folder."""
        return self.inner.sync_disk(folder)

    def lock(self, path: Path) -> AbstractContextManager[None]:
        """Hold an exclusive lock until the context ends."""
        return self.inner.lock(path)

    def is_locked(self, path: Path) -> bool:
        """Whether a live process holds the lock."""
        return self.inner.is_locked(path)
