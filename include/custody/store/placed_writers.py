"""Writers whose part of a repository lies in a store of their own, such as another bucket.

A key begins with the name of its writer, or with a name that no writer can have. The repository's own store has a
record for each writer that lies elsewhere (docs/formats/placed-writer.md), so that every machine that knows the
repository's store finds all of its writers. The keys of a writer are the same wherever it lies.

Invariant: a writer lies in one store. It is placed before anything of it is stored, and stays there.
"""

from __future__ import annotations

import heapq
from builtins import list as list_of
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import msgspec

from custody.errors import ConfigurationError, ConflictError, CorruptionError, NotFoundError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.store.base import ObjectData, ObjectInfo, ObjectStore, UnfinishedUpload
from custody.store.conditional_put import put_object

PLACES = "PLACES"
"""Below it lies a record for each writer that lies elsewhere; part of the format, no writer can have this name."""
# Of each repository's store what its records say: they are put once and never change.
_LOOKED: dict[str, dict[str, str]] = {}


class PlacedWriter(msgspec.Struct, frozen=True, kw_only=True):
    """The record of a writer that lies in a store of its own."""

    version: int = 1
    writer: str
    store: str
    """The URL of the store, as `repository.store` has it."""


_RECORD = msgspec.json.Decoder(PlacedWriter)


class PlacedWriters:
    """A repository's store, with the stores of those of its writers that lie elsewhere; an `ObjectStore`.

    Args:
        store: the repository's own.
        location: its URL.
        open_at: opens a store by its URL.
    """

    def __init__(self, store: ObjectStore, location: str, open_at: Callable[[str], ObjectStore]) -> None:
        self._store = store
        self._location = location
        self._open_at = open_at
        self._opened: dict[str, ObjectStore] = {}
        self.is_remote = store.is_remote
        self.keeps_times = store.keeps_times
        self.can_put_if_absent = store.can_put_if_absent

    @property
    def placed(self) -> dict[str, str]:
        """The URLs of the writers that lie elsewhere, as of the last look; the first one looks."""
        if self._location not in _LOOKED:
            self.folders("")
        return dict(_LOOKED[self._location])

    def place(self, writer: str, location: str) -> bool:
        """Let a writer lie in another store from its first event on; return False where it lies there already.

        Durability: on return the record survives.

        Raises:
            ConflictError: something of the writer is stored already, or it was placed in another store.
        """
        is_new = self.placed.get(writer) != location
        document = PlacedWriter(writer=writer, store=location)
        self._refuse_if_stored(writer)
        if not put_object(self._store, _key(writer), with_checksum(msgspec.json.encode(document))):
            there = self._record(writer).store
            if there != location:
                raise ConflictError(f"writer {writer}: lies in {there} since it was placed there; it stays there.")
        self.folders("")
        return is_new

    def part_of(self, key: str) -> ObjectStore:
        """Return the store in which an object lies."""
        return self._of(key)

    def locate(self, key: str) -> str:
        """Return the URL of an object."""
        return self._of(key).locate(key)

    def get(self, key: str) -> bytes:
        """Return the whole content."""
        return self._of(key).get(key)

    def get_many(self, keys: Sequence[str]) -> list_of[bytes]:
        """Return the contents of the leading keys that exist; all of one writer go together."""
        stores = {id(store): store for store in map(self._of, keys)}
        if len(stores) == 1:
            return next(iter(stores.values())).get_many(keys)
        contents: list_of[bytes] = []
        for key in keys:
            found = self._of(key).get_many([key])
            if not found:
                break
            contents += found
        return contents

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of the content."""
        return self._of(key).get_range(key, start, length)

    def head(self, key: str) -> ObjectInfo | None:
        """Return size and time of an object."""
        return self._of(key).head(key)

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix."""
        if prefix:
            return self._of(prefix).list(prefix, after=after)
        parts = [store.list("", after=after) for store in self._all()]
        return heapq.merge(*parts, key=lambda info: info.key)

    def keys(self, prefix: str, *, after: str = "", ending: str = "") -> Iterator[str]:
        """Yield the keys below a prefix."""
        if prefix:
            return self._of(prefix).keys(prefix, after=after, ending=ending)
        return heapq.merge(*(store.keys("", after=after, ending=ending) for store in self._all()))

    def folders(self, prefix: str) -> list_of[str]:
        """Return the names below a prefix; below none the writers are among them, wherever they lie."""
        if prefix:
            return self._of(prefix).folders(prefix)
        names = self._store.folders("")
        looked = _LOOKED.setdefault(self._location, {})
        if PLACES in names:
            for key in self._store.keys(f"{PLACES}/"):
                writer = key.rpartition("/")[2].removesuffix(".json")
                if writer not in looked:
                    looked[writer] = self._record(writer).store
        return sorted({*names, *looked} - {PLACES})

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        """Write an object only if its key is free."""
        return self._of(key).put_if_absent(key, data)

    def put(self, key: str, data: ObjectData) -> None:
        """Write an object."""
        self._of(key).put(key, data)

    def move(self, source: str, target: str) -> None:
        """Give an object another key, of the same writer."""
        old, new = self._of(source), self._of(target)
        if old is not new:
            raise ConflictError(f"{old.locate(source)}: expected to be moved within its store, not to {target}.")
        old.move(source, target)

    def delete(self, key: str) -> None:
        """Remove an object."""
        self._of(key).delete(key)

    def unfinished(self, prefix: str) -> list_of[UnfinishedUpload]:
        """Return the uploads below a writer that nobody completed yet."""
        return self._of(prefix).unfinished(prefix)

    def abort(self, upload: UnfinishedUpload) -> None:
        """Free the parts of an upload."""
        self._of(upload.key).abort(upload)

    def drop_folder(self, prefix: str) -> None:
        """Remove an empty folder, where a store has folders."""
        self._of(prefix).drop_folder(prefix)

    def exclusive(self, key: str) -> AbstractContextManager[None]:
        """Keep other processes out, where a store can."""
        return self._of(key).exclusive(key)

    def settle(self, key: str) -> None:
        """Make an object durable that somebody else wrote."""
        self._of(key).settle(key)

    def _of(self, key: str) -> ObjectStore:
        if self._location not in _LOOKED:
            self.folders("")
        writer = key.partition("/")[0]
        location = _LOOKED[self._location].get(writer)
        if location is None:
            return self._store
        store = self._opened.get(location)
        if store is None:
            store = self._opened[location] = self._open_at(location)
        return store

    def _all(self) -> list_of[ObjectStore]:
        return [self._store, *{store: self._of(f"{writer}/") for writer, store in self.placed.items()}.values()]

    def _record(self, writer: str) -> PlacedWriter:
        where = self._store.locate(_key(writer))
        try:
            data = self._store.get(_key(writer))
        except NotFoundError as error:
            raise CorruptionError(f"{where}: expected the record of a placed writer, got none.") from error
        try:
            record = _RECORD.decode(data)
        except msgspec.DecodeError as error:
            raise CorruptionError(f"{where}: expected the record of a placed writer, got {error}.") from error
        if not has_right_checksum(data) or record.writer != writer:
            raise CorruptionError(
                f"{where}: expected the record of writer {writer} with its checksum, got other bytes. "
                "Bring it back from the bucket's versions."
            )
        if record.version != 1:
            raise ConfigurationError(f"{where}: expected a record of version 1, got {record.version}. Update custody.")
        return record

    def _refuse_if_stored(self, writer: str) -> None:
        if next(iter(self._store.keys(f"{writer}/")), None) is not None:
            raise ConflictError(
                f"writer {writer}: has objects in {self._store.locate(writer)} already, and stays there. "
                "Choose another name, or retire it and let an archive take it up."
            )


def _key(writer: str) -> str:
    return f"{PLACES}/{writer}.json"
