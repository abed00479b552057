"""What a disk may hold after a crash: the modes, and the choice of what survives.

A process that is killed (ALL_KEPT) leaves everything as it is: nothing is lost and nothing became durable. After
power loss (the other modes) what survived is durable.
"""

from __future__ import annotations

from enum import Enum
from random import Random

from custody.vfs.nodes import FileNode, FolderNode, NameChange, Node

_BLOCK_BYTES = (512, 4096)


class InjectedCrash(BaseException):
    """The process ends here; not an Exception, so that no handler takes it for a failure that can be handled."""


class CrashMode(Enum):
    """Which unsynced changes survive."""

    ALL_KEPT = "all kept"
    """The process was killed: the page cache survives, all the same nothing of it is durable."""
    SYNCED_ONLY = "synced only"
    """Power loss: everything unsynced is lost."""
    RANDOM_FILES = "random files"
    """Power loss: each file's unsynced bytes and each unsynced change of a name survive or not."""
    RANDOM_BLOCKS = "random blocks"
    """Power loss: as before, and each unsynced block of a file for itself; gaps are zeros, files may be shorter."""


def survivors(root: FolderNode, mode: CrashMode, seed: int) -> FolderNode:
    """Return a tree that may be found after a crash; the given one is left as it is, equal seeds give equal trees."""
    return _Survivors(mode, Random(seed)).folder(root)  # noqa: S311 - a choice that can be repeated, no secret


class _Survivors:
    """Copies a tree, each node once, however many names it has."""

    def __init__(self, mode: CrashMode, random: Random) -> None:
        self._mode = mode
        self._random = random
        self._block_bytes = random.choice(_BLOCK_BYTES)
        self._copies: dict[Node, Node] = {}
        self._moves: dict[object, bool] = {}

    def of(self, node: Node) -> Node:
        known = self._copies.get(node)
        if known is not None:
            return known
        return self.folder(node) if isinstance(node, FolderNode) else self._file(node)

    def folder(self, node: FolderNode) -> FolderNode:
        made = FolderNode()
        self._copies[node] = made
        if self._mode is CrashMode.ALL_KEPT:
            made.names = {name: self.of(child) for name, child in node.names.items()}
            made.durable = {name: self.of(child) for name, child in node.durable.items()}
            made.changes = [
                NameChange(change.move, change.removed, change.added, change.node and self.of(change.node))
                for change in node.changes
            ]
        else:
            made.names = {name: self.of(child) for name, child in self._names(node).items()}
            made.sync()
        return made

    def _file(self, node: FileNode) -> FileNode:
        made = FileNode()
        self._copies[node] = made
        done = self._random.randint(0, len(node.interrupted))
        seen = bytes(node.data) + node.interrupted[:done]
        if self._mode is CrashMode.ALL_KEPT:
            made.data, made.durable = bytearray(seen), node.durable
        else:
            made.data = bytearray(self._bytes(node.durable, seen))
            made.sync()
        return made

    def _bytes(self, durable: bytes, seen: bytes) -> bytes:
        if self._mode is CrashMode.SYNCED_ONLY or durable == seen:
            return durable
        if self._mode is CrashMode.RANDOM_FILES:
            return seen if self._coin() else durable
        return self._blocks(durable, seen)

    def _blocks(self, durable: bytes, seen: bytes) -> bytes:
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
