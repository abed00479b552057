"""Open shards, kept open within a bound, and searching one of them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from pathlib import Path

from whoosh import query

from custody.errors import NotFoundError
from custody.index import manifest
from custody.index.manifest import Description
from custody.index.reader.shard import EventIds, OpenShard
from custody.vfs import FileSystem

SHARDS_MAX = 128
"""Shards that are open at a time; each keeps up to eight files mapped."""


class Shards:
    """The shards of one file system, the last used open; may be used by several threads."""

    def __init__(self, fs: FileSystem, open_max: int = SHARDS_MAX) -> None:
        self._fs = fs
        self._open_max = open_max
        self._open: OrderedDict[Path, OpenShard] = OrderedDict()
        self._lock = threading.Lock()

    def open(self, path: Path) -> OpenShard:
        """Return a shard, open when it was used lately.

        Raises:
            NotFoundError: the shard's folder is gone.
            CorruptionError, FormatVersionError: it is none, or a damaged one.
        """
        with self._lock:
            found = self._open.get(path)
            if found is not None:
                self._open.move_to_end(path)
                return found
        opened = OpenShard(self._fs, path)
        with self._lock:
            self._open[path] = opened
            while len(self._open) > self._open_max:
                self._open.popitem(last=False)
        return opened

    def is_open(self, path: Path) -> bool:
        """Whether a shard is open."""
        return path in self._open

    def forget(self, path: Path) -> None:
        """Let go of a shard, which was damaged or made anew."""
        with self._lock:
            self._open.pop(path, None)


def describe_shard(fs: FileSystem, path: Path) -> Description:
    """Return what a shard says of itself; only the begin of one file is read.

    Raises:
        NotFoundError: the shard's folder is gone.
        CorruptionError, FormatVersionError: it is none, or a damaged one.
    """
    if not fs.exists(path / manifest.NAME):
        raise NotFoundError(f"index shard {path} is gone. Make it again: custody run index")
    return manifest.described(fs.view(path / manifest.NAME), path / manifest.NAME)


def search_shard(fs: FileSystem, path: Path, question: query.Query) -> EventIds:
    """Return the ids of all events of a shard that match, newest first.

    Raises:
        NotFoundError: the shard's folder is gone.
        CorruptionError: it is no index, or a damaged one.
        InvalidInputError: a kind of query that custody does not know.
    """
    return OpenShard(fs, path).search(question)
