"""The default backend: files below a folder of this machine, on a local disk or a mounted one."""

from __future__ import annotations

import hashlib
import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote_from_bytes

from custody.errors import StorageError
from custody.ngsi_sink.target import not_a_file
from custody.vfs import FileSystem

_FILES_BETWEEN_CHECKS = 256
_FILES_A_FOLDER = 4
"""At least so many new files a folder above their own ones, which is synced by itself; else one by one is as good."""

_LOOKS_A_PIECE, _LOOK_SECONDS_MAX = 256, 50e-6
"""A look at a local disk takes a few microseconds: a thread that is handed a name takes as long to be told."""

_IS_PLAIN = re.compile(r"[^/.][^/]*(?:/[^/.][^/]*)*").fullmatch
"""Whether a relative path is its own text as a `Path`, which leaves out what names nothing."""


class LocalFiles:
    """Files below a folder."""

    # A write of this machine ends with its process; no server goes on with it.
    outlives_writers = False

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        # A root that is relative has no URI, and that of `/` ends in a slash.
        self._root_uri = root.as_uri() if root.is_absolute() and root.name else None

    def size(self, path: str) -> int | None:
        """Return the bytes of a file, None where there is none."""
        file = self._file(path)
        is_file = self._fs.is_file(file)
        if is_file is None:
            return None
        if not is_file:  # a folder has a size, too, and opening a pipe waits for ever
            raise not_a_file(self.uri(path))
        return self._fs.size(file)

    def digest(self, path: str, offset: int, length: int) -> str:
        """Return the SHA-256 of a piece of a file, in hexadecimal."""
        return hashlib.sha256(self._fs.view(self._file(path))[offset : offset + length]).hexdigest()

    def settle(self, path: str) -> None:
        """Make the bytes durable: their writer may have died before its sync."""
        file = self._file(path)
        self._fs.sync_file(file)
        self._fs.sync_directory(file.parent)

    def create(self, path: str, data: memoryview) -> None:
        """Create a file and the folders above it.

        Durability: on return name and bytes survive power loss.
        """
        file = self._file(path)
        self._fs.make_directory(file.parent)
        with self._fs.create(file) as writer:
            writer.write(bytes(data))
            writer.sync()
        self._fs.sync_directory(file.parent)

    def absent(self, paths: Iterable[str]) -> set[str]:
        """Return paths of which it is certain that nothing has them; where that takes long, not of all."""
        below, found = self._fs.below(self._root), set[str]()
        looks = iter(paths)
        while piece := list(itertools.islice(looks, _LOOKS_A_PIECE)):
            begun = time.perf_counter()
            found.update(path for path in piece if below.is_absent(path.lstrip("/")))
            # A folder of another machine: several at a time are quicker there.
            if time.perf_counter() - begun > _LOOK_SECONDS_MAX * len(piece):
                break
        return found

    def create_together(self, files: Mapping[str, memoryview], check: Callable[[], None]) -> set[str]:
        """Create many files, in folders of their own or not, with one sync for all; return those that are done.

        Not among them is what was refused, or what the disk cannot sync at once. It may be there in part, as after a
        crash, and is to be done by itself.

        Durability: on return names and bytes of those that are returned survive power loss.
        """
        # By texts: four objects of paths a file take half as long as to make it.
        names = {path: path.lstrip("/") for path in files}
        folder_of = {path: name.rpartition("/")[0] for path, name in names.items()}
        by_parent: dict[str, list[str]] = {}
        for folder in dict.fromkeys(folder_of.values()):
            by_parent.setdefault(folder.rpartition("/")[0], []).append(folder)
        if len(by_parent) * _FILES_A_FOLDER > len(files):
            return set()
        check()
        below, refused = self._fs.below(self._root), set[str]()
        # Before the files: who finds a file after a crash takes the names of the folders above it for durable.
        for parent, folders in by_parent.items():
            try:
                self._fs.make_directory(self._file(parent))
                for folder in folders:
                    below.add_directory(folder)
                self._fs.sync_directory(self._file(parent))
            except StorageError:
                refused.update(folders)
        made: list[str] = []
        for number, (path, name) in enumerate(names.items()):
            if number % _FILES_BETWEEN_CHECKS == _FILES_BETWEEN_CHECKS - 1:
                check()
            if folder_of[path] in refused:
                continue
            try:
                below.create_with(name, files[path])
            except StorageError:
                continue
            made.append(path)
        return set(made) if made and self._all_synced(made) else set()

    def _all_synced(self, made: Sequence[str]) -> bool:
        """Sync the disk of files that were just made."""
        try:
            return self._fs.sync_disk(self._file(made[0]).parent)
        except StorageError:
            # What memory still shows of them may not be on the disk, and a second sync would not say so.
            for path in made:
                self._fs.remove(self._file(path))
            return False

    def append(self, path: str, data: memoryview) -> None:
        """Add bytes at the end of a file.

        Durability: on return the bytes and the name survive power loss.
        """
        file = self._file(path)
        with self._fs.append(file) as writer:
            writer.write(bytes(data))
            writer.sync()
        # A writer that died may have left the file without a durable name.
        self._fs.sync_directory(file.parent)

    def cut(self, path: str, length: int) -> None:
        """Cut a file, durably."""
        self._fs.truncate(self._file(path), length)

    def uri(self, path: str) -> str:
        """Return `file:///…`."""
        name = path.lstrip("/")
        if self._root_uri is None or not _IS_PLAIN(name):
            return self._file(path).as_uri()
        return f"{self._root_uri}/{quote_from_bytes(os.fsencode(name))}"

    def walk(self, folder: str) -> Iterator[str]:
        """Yield the paths of all files below a folder."""
        for name in self._fs.list(self._file(folder)):
            path = f"{folder}/{name}"
            if self._fs.is_directory(self._file(path)):
                yield from self.walk(path)
            else:
                yield path

    def read(self, path: str) -> bytes:
        """Return a file."""
        return self._fs.read(self._file(path))

    def remove(self, folder: str) -> None:
        """Remove a folder with all that is in it."""
        if self._fs.exists(self._file(folder)):
            self._fs.remove_tree(self._file(folder))

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _file(self, path: str) -> Path:
        return self._root / path.lstrip("/")
