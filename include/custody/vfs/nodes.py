"""The nodes of a file system in memory: each knows what the process sees of it and what is durable.

A folder keeps the names that the process sees, the names that are durable, and the changes in between; a file the
same of its bytes.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from custody.vfs.failure import refusal


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
        """Give a name to a node, in place of what has it."""
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
    """Finds nodes by their absolute path; raises StorageError as a system would."""

    def __init__(self, root: FolderNode) -> None:
        self.root = root

    def find(self, path: Path) -> Node | None:
        """Return what has a name, None when nothing has."""
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
        found = self.find(target)
        if found is None:
            return
        if isinstance(found, FileNode):
            if isinstance(node, FolderNode):
                raise refusal("replace", target, errno.ENOTDIR)
        elif isinstance(node, FileNode):
            raise refusal("replace", target, errno.EISDIR)
        elif found.names:
            raise refusal("replace", target, errno.ENOTEMPTY)
