"""Faults for tests: chosen operations of any file system fail as the operating system lets them fail.

A fault names the operations that it meets, by their number among those that match its kind and path, and the errno
that they fail with. A write that fails may have taken a part; a disk that is full takes what still fits and then
refuses every write, until `free` gives room again. A failed sync makes nothing durable.
"""

from __future__ import annotations

import errno
import time
from builtins import list as list_of
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from custody.vfs.base import Primitives, Space, WritableFile, refusal
from custody.vfs.file_marks import Marks
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem

READS = frozenset({"read", "view", "size", "list"})
SYNCS = frozenset({"sync", "sync_file", "sync_directory", "sync_disk"})
WRITES = frozenset(
    {"create", "append", "write", "rename", "link", "remove", "add_directory", "remove_directory", "cut"}
)
EFFECTS = SYNCS | WRITES


@dataclass
class Fault:
    """A fault: the operations that fail, and how they fail."""

    kinds: frozenset[str] = EFFECTS
    """Names of primitives, or `write` and `sync` of a file."""
    path: str = "*"
    """Pattern that the path must match from its right, as Path.match does."""
    first: int = 1
    """The first operation that fails, counted from 1 among those that match."""
    count: int | None = 1
    """How many fail from there on; None for all."""
    errno: int = errno.EIO
    taken_bytes: int = 0
    """Of a write that fails, how many bytes were written all the same."""
    delay_seconds: float = 0.0
    """How long the operation takes longer than it should; with errno 0 it is done all the same."""
    met: int = field(default=0, init=False)
    """How many operations matched so far."""

    def strikes(self, kind: str, path: Path) -> bool:
        """Count an operation that matches; return whether it fails."""
        if kind not in self.kinds or not path.match(self.path):
            return False
        self.met += 1
        return self.met >= self.first and (self.count is None or self.met < self.first + self.count)


class _FaultyFile(WrappingFile):
    def __init__(self, inner: WritableFile, path: Path, fs: FaultyFileSystem) -> None:
        super().__init__(inner, path)
        self._fs = fs

    def write(self, data: bytes) -> int:
        taken, failure = self._fs.admit(self.path, len(data))
        if failure is None:
            return self.inner.write(data)
        if taken:
            self.inner.write(bytes(data)[:taken])
        raise refusal("write", self.path, failure)

    def sync(self) -> None:
        self._fs.meet("sync", self.path)
        self.inner.sync()


class FaultyFileSystem(WrappingFileSystem):
    """Any file system, with faults.

    Args:
        inner: where operations that do not fail go.
        faults: what fails; the first that strikes decides.
        free_bytes: room left on the disk for writes; None for as much as the inner one has.
    """

    def __init__(self, inner: Primitives, *faults: Fault, free_bytes: int | None = None) -> None:
        super().__init__(inner)
        self.faults = list(faults)
        self.free_bytes = free_bytes

    def free(self, count: int | None = None) -> None:
        """Give the disk room for `count` bytes; None for as much as the inner one has."""
        self.free_bytes = count

    def meet(self, kind: str, path: Path) -> None:
        """Raise StorageError when a fault strikes this operation."""
        fault = self._struck(kind, path)
        if fault is not None:
            raise refusal(kind.replace("_", " "), path, fault.errno)

    def admit(self, path: Path, length: int) -> tuple[int, int | None]:
        """Return how many bytes of a write are taken, and the errno that it fails with, None when it does not."""
        fault = self._struck("write", path)
        if fault is not None:
            return min(fault.taken_bytes, length), fault.errno
        if self.free_bytes is None:
            return length, None
        taken = min(self.free_bytes, length)
        self.free_bytes -= taken
        return taken, None if taken == length else errno.ENOSPC

    def create(self, path: Path) -> WritableFile:
        """Make a new file for appending, whose writes and syncs can fail."""
        self.meet("create", path)
        return _FaultyFile(self.inner.create(path), path, self)

    def append(self, path: Path) -> WritableFile:
        """Open a file that exists, for writes and syncs that can fail."""
        self.meet("append", path)
        return _FaultyFile(self.inner.append(path), path, self)

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        self.meet("read", path)
        return self.inner.read(path)

    def read_part(self, path: Path, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`."""
        self.meet("read", path)
        return self.inner.read_part(path, start, length)

    def view(self, path: Path) -> memoryview:
        """Return the whole content read-only."""
        self.meet("view", path)
        return self.inner.view(path)

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        self.meet("size", path)
        return self.inner.size(path)

    def marks(self, paths: Sequence[str]) -> Marks | None:
        """Return None: who relied on marks would not meet the faults of what it looks at."""
        return None

    def list(self, folder: Path) -> list_of[str]:
        """Return the sorted names in a folder."""
        self.meet("list", folder)
        return self.inner.list(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a folder."""
        self.meet("rename", source)
        self.inner.rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name unless it is taken; faults go by the second name."""
        self.meet("link", target)
        return self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file."""
        self.meet("remove", path)
        self.inner.remove(path)

    def add_directory(self, folder: Path) -> None:
        """Make one folder."""
        self.meet("add_directory", folder)
        self.inner.add_directory(folder)

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder."""
        self.meet("remove_directory", folder)
        self.inner.remove_directory(folder)

    def cut(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes."""
        self.meet("cut", path)
        self.inner.cut(path, length)

    def sync_file(self, path: Path) -> None:
        """Make a file's content durable."""
        self.meet("sync_file", path)
        self.inner.sync_file(path)

    def sync_directory(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        self.meet("sync_directory", folder)
        self.inner.sync_directory(folder)

    def sync_disk(self, folder: Path) -> bool:
        """Make everything durable on the disk of a folder."""
        self.meet("sync_disk", folder)
        return self.inner.sync_disk(folder)

    def space(self, folder: Path) -> Space | None:
        """Return the room that is left, when it is bounded."""
        if self.free_bytes is None:
            return self.inner.space(folder)
        return Space(self.free_bytes, self.free_bytes, False)

    def _struck(self, kind: str, path: Path) -> Fault | None:
        # Each fault counts what it matches, also behind the first that strikes.
        struck = [fault for fault in self.faults if fault.strikes(kind, path)]
        for fault in struck:
            time.sleep(fault.delay_seconds)
        return next((fault for fault in struck if fault.errno), None)
