"""A file system in memory that can crash, for tests: it keeps what the process sees and what the disk holds.

Each primitive with an effect is one operation, counted from 1. The operation whose number is `crash_at` is not done
(of a write any beginning may be) and raises InjectedCrash, as does every later one: the process is dead. `crashed`
then gives a disk that may be found, as a new file system.

A file keeps the bytes that the process sees, those that are durable and the changes in between; a folder the same of
its names. The crash mode decides what of them survives. A process that is killed (ALL_KEPT) leaves everything as it
is: nothing is lost and nothing became durable. After power loss (the other modes) what survived is durable.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias

from custody.errors import LockedError
from custody.vfs.base import Space, refusal
from custody.vfs.durable import DurableOperations
from custody.vfs.file_marks import Marks


@dataclass(eq=False)
class FileNode:
    """A file's bytes, as the process sees them and as they are durable."""

    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    interrupted: bytes = b""
    """A write that the crash cut short: any beginning of it may have been done."""

    def sync(self) -> None:
        """Make the bytes durable."""
        self.durable = bytes(self.data)


@dataclass(eq=False)
class NameChange:
    """One change of a folder's names that is not durable. A move between folders is the same `move` in both."""

    move: object
    removed: str | None = None
    added: str | None = None
    node: Node | None = None


@dataclass(eq=False)
class FolderNode:
    """A folder's names, as the process sees them and as they are durable."""

    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    changes: list[NameChange] = field(default_factory=list)

    def add(self, name: str, node: Node, move: object = None) -> None:
        """Give a name to a node; whatever had the name loses it."""
        self.names[name] = node
        self.changes.append(NameChange(move or object(), added=name, node=node))

    def drop(self, name: str, move: object = None) -> None:
        """Take a name away."""
        del self.names[name]
        self.changes.append(NameChange(move or object(), removed=name))

    def sync(self) -> None:
        """Make the names durable."""
        self.durable = dict(self.names)
        self.changes.clear()


Node: TypeAlias = FileNode | FolderNode


class Tree:
    """A tree of nodes, found by absolute path; raises StorageError as a system would."""

    def __init__(self, root: FolderNode) -> None:
        self.root = root

    def find(self, path: Path) -> Node | None:
        """Return the node of a name, None when there is none."""
        node: Node = self.root
        for name in path.parts[1:]:
            if not isinstance(node, FolderNode) or name not in node.names:
                return None
            node = node.names[name]
        return node

    def folder(self, action: str, path: Path) -> FolderNode:
        """Return a folder."""
        node = self.find(path)
        if not isinstance(node, FolderNode):
            raise refusal(action, path, errno.ENOENT if node is None else errno.ENOTDIR)
        return node

    def parent(self, action: str, path: Path) -> FolderNode:
        """Return the folder that a name belongs to."""
        node = self.find(path.parent)
        if not isinstance(node, FolderNode):
            raise refusal(action, path, errno.ENOENT if node is None else errno.ENOTDIR)
        return node

    def file(self, action: str, path: Path) -> FileNode:
        """Return a file."""
        node = self.find(path)
        if not isinstance(node, FileNode):
            raise refusal(action, path, errno.ENOENT if node is None else errno.EISDIR)
        return node

    def check_replaceable(self, node: Node, target: Path) -> None:
        """Raise unless what is renamed may take the target's place: a file a file's, a folder an empty folder's."""
        replaced = self.find(target)
        if replaced is None:
            return
        if isinstance(replaced, FileNode):
            if isinstance(node, FolderNode):
                raise refusal("replace", target, errno.ENOTDIR)
        elif isinstance(node, FileNode):
            raise refusal("replace", target, errno.EISDIR)
        elif replaced.names:
            raise refusal("replace", target, errno.ENOTEMPTY)


# The sector of a disk and the usual block of a file system: each survives or is lost as a whole.
_BLOCK_BYTES = (512, 4096)


class InjectedCrash(BaseException):
    """The process ends here; not an Exception, so that no handler takes it for a failure to handle."""


class CrashMode(Enum):
    """The kind of a crash: it decides which unsynced changes survive."""

    ALL_KEPT = "all kept"
    """The process was killed: the page cache survives, all the same nothing of it is durable."""
    SYNCED_ONLY = "synced only"
    """Power loss: everything unsynced is lost."""
    RANDOM_FILES = "random files"
    """Power loss: each file's unsynced bytes and each unsynced change of a name survive or not."""
    RANDOM_BLOCKS = "random blocks"
    """Power loss: as before, and each unsynced block of a file for itself; gaps are zeros, files may be shorter."""


def survivors(root: FolderNode, mode: CrashMode, seed: int) -> FolderNode:
    """Return a tree that may be found after a crash; the argument stays as it is, equal seeds give equal trees."""
    return _Survivors(mode, Random(seed)).folder(root)  # noqa: S311 - a choice that can be repeated, no secret


class _Survivors:
    """Copies a tree, each node once, however many names it has."""

    def __init__(self, mode: CrashMode, random: Random) -> None:
        self._mode = mode
        self._random = random
        self._block_bytes = random.choice(_BLOCK_BYTES)
        self._copies: dict[Node, Node] = {}
        # A rename between two folders survives in both of them or in neither, as on file systems with a journal.
        self._moves: dict[object, bool] = {}

    def of(self, node: Node) -> Node:
        copy = self._copies.get(node)
        if copy is not None:
            return copy
        return self.folder(node) if isinstance(node, FolderNode) else self._file(node)

    def folder(self, node: FolderNode) -> FolderNode:
        copy = FolderNode()
        self._copies[node] = copy
        if self._mode is CrashMode.ALL_KEPT:
            copy.names = {name: self.of(child) for name, child in node.names.items()}
            # What was not durable stays so: a power loss after the kill may still take it.
            copy.durable = {name: self.of(child) for name, child in node.durable.items()}
            copy.changes = [
                NameChange(change.move, change.removed, change.added, change.node and self.of(change.node))
                for change in node.changes
            ]
        else:
            copy.names = {name: self.of(child) for name, child in self._names(node).items()}
            copy.sync()
        return copy

    def _file(self, node: FileNode) -> FileNode:
        copy = FileNode()
        self._copies[node] = copy
        done = self._random.randint(0, len(node.interrupted))
        seen = bytes(node.data) + node.interrupted[:done]
        if self._mode is CrashMode.ALL_KEPT:
            copy.data, copy.durable = bytearray(seen), node.durable
        else:
            copy.data = bytearray(self._bytes(node.durable, seen))
            copy.sync()
        return copy

    def _bytes(self, durable: bytes, seen: bytes) -> bytes:
        if self._mode is CrashMode.SYNCED_ONLY or durable == seen:
            return durable
        if self._mode is CrashMode.RANDOM_FILES:
            return seen if self._coin() else durable
        return self._blocks(durable, seen)

    def _blocks(self, durable: bytes, seen: bytes) -> bytes:
        # The length survives or not apart from the blocks: a file may have its new length with zeros in place of lost
        # blocks.
        length = len(seen)
        if self._coin():
            length = self._random.randint(min(len(durable), length), max(len(durable), length))
        result = bytearray(durable[:length].ljust(length, b"\0"))
        for start in range(0, length, self._block_bytes):
            stop = min(start + self._block_bytes, length)
            if result[start:stop] != seen[start:stop] and self._coin():
                result[start:stop] = seen[start:stop].ljust(stop - start, b"\0")
        return bytes(result)

    def _names(self, node: FolderNode) -> dict[str, Node]:
        names = dict(node.durable)
        for change in filter(self._survives, node.changes):
            if change.removed is not None:
                names.pop(change.removed, None)
            if change.added is not None and change.node is not None:
                names[change.added] = change.node
        return names

    def _survives(self, change: NameChange) -> bool:
        if self._mode is CrashMode.SYNCED_ONLY:
            return False
        if change.move not in self._moves:
            self._moves[change.move] = self._coin()
        return self._moves[change.move]

    def _coin(self) -> bool:
        return self._random.random() < 0.5


class Operation(NamedTuple):
    """One effect: what was done and to which path."""

    kind: str
    path: Path


class MemoryFile:
    """An append-only file in memory."""

    def __init__(self, fs: MemoryFileSystem, path: Path, node: FileNode) -> None:
        self._fs = fs
        self._path = path
        self._node = node
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._closed

    def write(self, data: bytes) -> int:
        """Append all of `data`; a crash may leave any beginning of it."""
        taken = bytes(data)
        with self._fs.operation("write", self._path, self._node, taken):
            self._check_open()
            self._node.data += taken
        return len(taken)

    def flush(self) -> None:
        """Do nothing: writes are not buffered here."""

    def tell(self) -> int:
        """Return the number of bytes in the file so far."""
        return len(self._node.data)

    def sync(self) -> None:
        """Make all bytes written so far durable."""
        with self._fs.operation("sync", self._path):
            self._check_open()
            self._node.sync()

    def close(self) -> None:
        """Release the file; a second call does nothing."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise refusal("write", self._path, errno.EBADF)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class MemoryPartialFile:
    """A file in memory that is filled in any order."""

    def __init__(self, fs: MemoryFileSystem, path: Path, node: FileNode) -> None:
        self._fs = fs
        self._path = path
        self._node = node
        self._shown = bytearray(node.data)
        self.view = memoryview(self._shown).toreadonly()

    def fill(self, start: int, data: bytes) -> None:
        """Write bytes at a place."""
        with self._fs.operation("fill", self._path):
            for content in (self._node.data, self._shown):
                content[start : start + len(data)] = data


class MemoryFileSystem(DurableOperations):
    """One disk in memory. Paths are absolute; the folder `/` exists and is durable.

    Args:
        crash_at: the number of the operation that ends the process; 0 for none.
    """

    def __init__(self, crash_at: int = 0, root: FolderNode | None = None) -> None:
        self.crash_at = crash_at
        self.operations: list[Operation] = []
        """All that was done, and last the operation at which the process ended."""
        self._tree = Tree(root or FolderNode())
        self._held: set[Path] = set()
        self._dead = False
        self._mutex = threading.RLock()

    def crashed(self, mode: CrashMode, seed: int = 0) -> MemoryFileSystem:
        """Return a disk that may be found after the process ended now; can be asked again for other disks."""
        with self._mutex:
            return MemoryFileSystem(root=survivors(self._tree.root, mode, seed))

    def files(self) -> dict[Path, bytes | None]:
        """Return everything that the process sees: content by path, None for a folder."""
        contents: dict[Path, bytes | None] = {}

        def visit(path: Path, node: Node) -> None:
            contents[path] = None if isinstance(node, FolderNode) else bytes(node.data)
            if isinstance(node, FolderNode):
                for name in sorted(node.names):
                    visit(path / name, node.names[name])

        visit(Path("/"), self._tree.root)
        return contents

    @contextmanager
    def operation(self, kind: str, path: Path, node: FileNode | None = None, data: bytes = b"") -> Iterator[None]:
        """Count an operation and let it be done, or crash; `data` is what a write would append to `node`."""
        with self._mutex:
            if not self._dead:
                self.operations.append(Operation(kind, path))
                if len(self.operations) == self.crash_at:
                    self._dead = True
                    if node is not None:
                        node.interrupted = data
            # Also every later operation: handlers that run on the way out of a dead process must leave no trace.
            if self._dead:
                raise InjectedCrash(f"operation {len(self.operations)}: {kind} {path}")
            yield

    def create(self, path: Path) -> MemoryFile:
        """Make a new file for appending; raises if the name exists."""
        with self.operation("create", path):
            folder = self._tree.parent("create", path)
            if path.name in folder.names:
                raise refusal("create", path, errno.EEXIST)
            node = FileNode()
            folder.add(path.name, node)
            return MemoryFile(self, path, node)

    def append(self, path: Path) -> MemoryFile:
        """Open a file that exists, to append to what it holds; no operation by itself."""
        with self._mutex:
            return MemoryFile(self, path, self._tree.file("open", path))

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        with self._mutex:
            return bytes(self._tree.file("read", path).data)

    def read_part(self, path: Path, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`."""
        with self._mutex:
            return bytes(self._tree.file("read", path).data[start : start + length])

    def view(self, path: Path) -> memoryview:
        """Return the whole content as it is now."""
        return memoryview(self.read(path))

    def partial(self, path: Path, size: int) -> MemoryPartialFile:
        """Open a file to be filled; one of another length gives way to a new one."""
        with self.operation("partial", path):
            node = self._tree.find(path)
            if not isinstance(node, FileNode) or len(node.data) != size:
                node = FileNode(bytearray(size))
                self._tree.parent("create", path).add(path.name, node)
            return MemoryPartialFile(self, path, node)

    def exists(self, path: Path) -> bool:
        """Whether a file or folder of that name exists."""
        with self._mutex:
            return self._tree.find(path) is not None

    def is_directory(self, path: Path) -> bool:
        """Whether the name is a folder."""
        with self._mutex:
            return isinstance(self._tree.find(path), FolderNode)

    def is_file(self, path: Path) -> bool | None:
        """Whether what has a name is a file; None where nothing has it."""
        with self._mutex:
            if any(isinstance(self._tree.find(above), FileNode) for above in path.parents):
                raise refusal("look at", path, errno.ENOTDIR)
            node = self._tree.find(path)
            return None if node is None else isinstance(node, FileNode)

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        with self._mutex:
            return len(self._tree.file("look at", path).data)

    def modified_ms(self, path: Path) -> int:
        """Return 0: a disk in memory has no clock, all of it is old."""
        if not self.is_directory(path):
            self.size(path)
        return 0

    def marks(self, paths: Sequence[str]) -> Marks | None:
        """Return None: nothing here has a time."""
        return None

    def keeps_times(self, path: Path) -> bool:
        """Return False."""
        return False

    def space(self, folder: Path) -> Space | None:
        """Return None: memory has no bounds that it knows of."""
        return None

    def list(self, folder: Path) -> list[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        with self._mutex:
            if self._tree.find(folder) is None:
                return []
            return sorted(self._tree.folder("list", folder).names)

    def rename(self, source: Path, target: Path) -> None:
        """Move atomically; a folder's target must be absent or empty."""
        with self.operation("rename", source):
            node = self._tree.find(source)
            if node is None:
                raise refusal("rename", source, errno.ENOENT)
            old, new = self._tree.parent("rename", source), self._tree.parent("rename", target)
            if self._tree.find(target) is node:
                # Nothing changes on the disk then, so no change of names is recorded.
                return  # two names of one file: the system leaves both
            self._tree.check_replaceable(node, target)
            move = object()
            old.drop(source.name, move)
            new.add(target.name, node, move)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; return False, with nothing changed, when that name is taken."""
        with self.operation("link", target):
            node, folder = self._tree.file("link", source), self._tree.parent("link", target)
            if target.name in folder.names:
                return False
            folder.add(target.name, node)
            return True

    def remove(self, path: Path) -> None:
        """Remove a file; an absent one is fine."""
        with self.operation("remove", path):
            if self._tree.find(path) is not None:
                self._tree.file("remove", path)
                self._tree.parent("remove", path).drop(path.name)

    def add_directory(self, folder: Path) -> None:
        """Make one folder; one that is there already is fine."""
        with self.operation("add_directory", folder):
            parent = self._tree.parent("make the folder", folder)
            if folder.name not in parent.names:
                parent.add(folder.name, FolderNode())
            elif not isinstance(parent.names[folder.name], FolderNode):
                raise refusal("make the folder", folder, errno.EEXIST)

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder; an absent one is fine."""
        with self.operation("remove_directory", folder):
            if self._tree.find(folder) is not None:
                if self._tree.folder("remove the folder", folder).names:
                    raise refusal("remove the folder", folder, errno.ENOTEMPTY)
                self._tree.parent("remove the folder", folder).drop(folder.name)

    def cut(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes; durable after sync_file."""
        with self.operation("cut", path):
            data = self._tree.file("truncate", path).data
            data[:] = data[:length].ljust(length, b"\0")

    def sync_file(self, path: Path) -> None:
        """Make the content of a file that somebody else wrote durable."""
        with self.operation("sync_file", path):
            self._tree.file("sync", path).sync()

    def sync_directory(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        with self.operation("sync_directory", folder):
            self._tree.folder("sync", folder).sync()

    def sync_disk(self, folder: Path) -> bool:
        """Make everything durable."""
        with self.operation("sync_disk", folder):
            self._tree.folder("sync", folder)  # as a real disk, which is asked by a folder that exists

            def below(node: FolderNode) -> None:
                for child in [*node.names.values()]:
                    if isinstance(child, FolderNode):
                        below(child)
                    else:
                        child.sync()
                node.sync()

            below(self._tree.root)
        return True

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Hold `path` locked; the file stays behind when the context ends. A crash releases."""
        with self.operation("lock", path):
            folder = self._tree.parent("open the lock", path)
            if path in self._held:
                raise LockedError(f"{path} is held. Wait until its holder ends, or use another writer name.")
            if path.name not in folder.names:
                folder.add(path.name, FileNode())
            self._held.add(path)
        try:
            yield
        finally:
            self._held.discard(path)

    def is_locked(self, path: Path) -> bool:
        """Whether somebody holds `path` locked."""
        return path in self._held
