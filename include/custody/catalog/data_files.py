"""The files that a catalog lists, by their paths in it: event logs, tables of contents, and what lies in the trash.

This is the only place that knows where such a file lies. `place` gives a store and a key in it; whoever needs a file of
the local disk takes `path`.
"""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from custody.errors import StorageError
from custody.store import ObjectInfo, ObjectStore


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file of a catalog lies: an object of a store."""

    store: ObjectStore
    key: str

    def __str__(self) -> str:
        return self.store.locate(self.key)


class DataFiles:
    """The files below one database's folder, by their paths relative to it.

    Every method raises StorageError when a store refuses, and NotFoundError as an `ObjectStore` does.
    """

    def __init__(self, store: ObjectStore, home: str) -> None:
        self._store = store
        self._home = home

    def place(self, path: str) -> Place:
        """Return where a file lies."""
        return Place(self._store, self._home + path)

    def locate(self, path: str) -> str:
        """Return where a file lies, or should lie, for messages; nothing is looked at."""
        return str(self.place(path))

    def where(self, path: str) -> Path:
        """Return the path under which a file lies, or should lie; nothing is looked at."""
        return Path(self.locate(path))

    def path(self, path: str) -> Path:
        """Return the path of a file that is about to be read or written on this machine.

        Raises:
            StorageError: it lies in an object store.
        """
        place = self.place(path)
        if place.store.is_remote:
            raise StorageError(f"{place}: event logs can only be read and written in a folder so far.")
        return Path(str(place))

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        return self.head(path) is not None

    def head(self, path: str) -> ObjectInfo | None:
        """Return size and time of a file, under its path in the catalog; None when there is none."""
        place = self.place(path)
        info = place.store.head(place.key)
        return None if info is None else replace(info, key=path)

    def get(self, path: str) -> bytes:
        """Return the whole content."""
        place = self.place(path)
        return place.store.get(place.key)

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of the content, as `ObjectStore.get_range` does."""
        place = self.place(path)
        return place.store.get_range(place.key, start, length)

    def list(self, folder: str) -> Iterator[ObjectInfo]:
        """Yield the files below a folder such as `data/`, with their paths as keys, sorted by them."""
        for info in self._store.list(self._home + folder):
            yield replace(info, key=info.key.removeprefix(self._home))

    def parts(self) -> list_of[tuple[str, Path]]:
        """Return the folders below which files lie, each behind what their paths in the catalog begin with."""
        return [("", Path(self._store.locate(self._home.removesuffix("/"))))]

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file only if its path is free; return whether it was. Durability: as `ObjectStore.put_if_absent`."""
        place = self.place(path)
        return place.store.put_if_absent(place.key, data)

    def move(self, source: str, target: str) -> None:
        """Give a file another path, replacing one that has it. A crash may leave it under both."""
        old, new = self.place(source), self.place(target)
        old.store.move(old.key, new.key)

    def delete(self, path: str) -> None:
        """Remove a file, durably; an absent one is fine."""
        place = self.place(path)
        place.store.delete(place.key)

    def drop_folder(self, folder: str) -> None:
        """Remove an empty folder, where a store has folders."""
        place = self.place(folder)
        place.store.drop_folder(place.key)
