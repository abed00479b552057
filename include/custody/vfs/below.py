"""Files below one folder by their names as texts, on any file system.

A real disk takes texts as they are (`custody.vfs.posix`): to make a `Path` and its text takes ten microseconds, twice
what opening and reading a small file takes.
"""

from __future__ import annotations

import errno
from builtins import list as list_of
from pathlib import Path
from typing import Protocol

from custody.errors import StorageError
from custody.vfs.base import Entry, FilesBelow, WritableFile


class _WholeFileSystem(Protocol):
    def read(self, path: Path) -> bytes: ...

    def list(self, folder: Path) -> list_of[str]: ...

    def folders(self, folder: Path) -> set[str]: ...

    def is_file(self, path: Path) -> bool | None: ...

    def size(self, path: Path) -> int: ...

    def modified_ms(self, path: Path) -> int: ...

    def add_directory(self, folder: Path) -> None: ...

    def create(self, path: Path) -> WritableFile: ...


class BelowByPaths(FilesBelow):
    """Asks a file system for each name by its path: for file systems that are no disk, or change what a disk does."""

    def __init__(self, fs: _WholeFileSystem, folder: Path) -> None:
        self._fs = fs
        self._folder = str(folder)

    def read(self, name: str) -> bytes:
        """Return the whole content of a file."""
        return self._fs.read(self._path(name))

    def list(self, name: str) -> list_of[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        return self._fs.list(self._path(name))

    def folders(self, name: str) -> set[str]:
        """Return those names in a folder that are folders themselves; an absent folder is empty."""
        return self._fs.folders(self._path(name))

    def entries(self, name: str) -> list_of[Entry]:
        """Return what is in a folder, sorted by name; an absent folder is empty."""
        folder = self._path(name)
        folders = self._fs.folders(folder)
        found = (
            Entry(each, is_folder=True) if each in folders else self._file(folder, each)
            for each in self._fs.list(folder)
        )
        return [entry for entry in found if entry is not None]

    def _file(self, folder: Path, name: str) -> Entry | None:
        path = folder / name
        try:
            return Entry(name, False, self._fs.size(path), self._fs.modified_ms(path))
        except StorageError as error:
            return None if error.errno == errno.ENOENT else Entry(name, False, is_readable=False)

    def is_absent(self, name: str) -> bool:
        """Whether nothing has this name; False also where nobody can tell."""
        try:
            return self._fs.is_file(self._path(name)) is None
        except StorageError:
            return False

    def add_directory(self, name: str) -> None:
        """Make one folder in a folder that exists; one that is there already is fine."""
        self._fs.add_directory(self._path(name))

    def create_with(self, name: str, data: bytes | memoryview) -> None:
        """Make a new file with some bytes; raises if the name exists."""
        with self._fs.create(self._path(name)) as file:
            file.write(bytes(data))

    def _path(self, name: str) -> Path:
        return Path(f"{self._folder}/{name}")
