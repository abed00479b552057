"""Persistent maps: a change makes a new map, at a cost that follows the change and not the size.

A map has a base, which many maps share and nobody changes, and a small layer of changes over it. A new map copies the
layer only; when the layer outgrows the square root of the base, both are merged into a new base. So a commit on
100,000 files costs what a commit on a hundred costs, and reading stays the reading of a dict (figures:
docs/design/013).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from custody.catalog.transaction_pb2 import AddFile
from custody.catalog.wellformed import read_file_entry

V = TypeVar("V")
# A small base is not merged in every commit: copying so few changes costs little.
_LAYER_MIN = 256


class Removed:
    """A mark in a layer: its key of the base was removed."""


REMOVED: Final = Removed()


class PersistentMap(Mapping[str, V], Generic[V]):
    """A map from text; equal to a dict with the same items."""

    __slots__ = ("_base", "_layer", "_length")

    def __init__(self, base: dict[str, V] | None = None) -> None:
        self._base: dict[str, V] = {} if base is None else base
        self._layer: dict[str, V | Removed] = {}
        # Invariant: `_length` counts the live keys of base and layer together; counting them anew would walk the base.
        self._length = len(self._base)

    def changed(self, changes: Mapping[str, V | Removed]) -> PersistentMap[V]:
        """Return the map after changes: a value for a key that is set, REMOVED for one that is removed."""
        if not changes:
            return self
        changed = self._empty()
        changed._length = self._length + sum(
            (value is not REMOVED) - (key in self) for key, value in changes.items()
        )  # True counts 1
        changed._base = self._base
        changed._layer = {**self._layer, **changes}
        # Near the square root both costs meet: copying the layer in each commit, and the base once in so many.
        if len(changed._layer) > max(_LAYER_MIN, 2 * int(len(self._base) ** 0.5)):
            changed._merge()
        return changed

    def _empty(self) -> PersistentMap[V]:
        return PersistentMap()

    def _merge(self) -> None:
        # A new dict: other maps, held by readers of earlier states, share the old one.
        merged = dict(self._base)
        for key, value in self._layer.items():
            if isinstance(value, Removed):
                merged.pop(key, None)
            else:
                merged[key] = value
        self._base, self._layer = merged, {}

    def __getitem__(self, key: str) -> V:
        # The layer hides the base. Values are messages, never None, so None means that the layer has no say.
        value = self._layer.get(key)
        if value is None:
            return self._base[key]
        if isinstance(value, Removed):
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        value = self._layer.get(key)  # type: ignore[call-overload]
        return key in self._base if value is None else value is not REMOVED

    def __iter__(self) -> Iterator[str]:
        layer = self._layer
        yield from (key for key in self._base if key not in layer)
        yield from (key for key, value in layer.items() if value is not REMOVED)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self)!r})"

    __hash__ = None  # type: ignore[assignment]


class _Base(dict[str, AddFile | bytes]):
    """Files by path, each decoded when it is first looked at, and where to find an event id among them."""

    __slots__ = ("by_group", "by_id", "where")

    def __init__(self, *items: object) -> None:
        super().__init__(*items)
        self.where = ""
        """Of the checkpoint that the messages are from, for errors."""
        self.by_id: tuple[list[str], npt.NDArray[np.uint64], npt.NDArray[np.uint64]] | None = None
        self.by_group: dict[int, list[str]] | None = None


class FileMap(PersistentMap[AddFile]):
    """Live files by path; built from undecoded messages, so that opening a large catalog decodes none."""

    __slots__ = ()

    def __init__(self, base: Mapping[str, AddFile | bytes] | None = None) -> None:
        super().__init__(_Base(base or {}))  # type: ignore[arg-type]

    @classmethod
    def undecoded(cls, paths: list[str], messages: list[bytes], where: str = "") -> FileMap:
        """Return the files of the checkpoint at `where`; a message that is no entry raises when it is looked at."""
        files = cls()
        base = _Base(zip(paths, messages, strict=True))
        base.where = where
        files._base = base  # type: ignore[assignment]
        files._length = len(files._base)
        return files

    def changed(self, changes: Mapping[str, AddFile | Removed]) -> FileMap:
        """Return the files after changes, as PersistentMap does."""
        files = super().changed(changes)
        assert isinstance(files, FileMap)  # noqa: S101 - `_empty` makes one
        return files

    def _empty(self) -> FileMap:
        return FileMap()

    def _merge(self) -> None:
        where = self._where
        super()._merge()
        base = _Base(self._base)
        base.where = where
        self._base = base  # type: ignore[assignment]

    @property
    def _where(self) -> str:
        return self._base.where if isinstance(self._base, _Base) else ""

    def __getitem__(self, key: str) -> AddFile:
        value: AddFile | bytes = super().__getitem__(key)
        return self._decoded(key) if isinstance(value, bytes) else value

    def encoded(self, path: str) -> bytes:
        """Return the message of a file as a checkpoint keeps it: without the footer."""
        value: AddFile | bytes = super().__getitem__(path)
        if isinstance(value, bytes):
            return value
        # The footer of a file is in its transaction and its table of statistics; a checkpoint stays small without it.
        if value.footer:
            slim = AddFile()
            slim.CopyFrom(value)
            slim.ClearField("footer")
            value = slim
        return value.SerializeToString(deterministic=True)

    def changed_since(self, digests: Mapping[str, bytes | None]) -> list[str]:
        """Return the paths of which another SHA-256 is known than these say; entries not looked at are not decoded."""
        entries = ((path, super(FileMap, self).__getitem__(path)) for path in digests if path in self)
        return [path for path, file in entries if isinstance(file, AddFile) and file.sha256 != (digests[path] or b"")]

    def file_of(self, event_id: int) -> AddFile | None:
        """Return the file whose id range holds an event; the newest one first."""
        return next(self.overlapping(event_id, event_id), None)

    def overlapping(self, first: int, last: int) -> Iterator[AddFile]:
        """Yield the files whose id ranges have an id in common with a range; the newest ones first."""
        for value in self._layer.values():
            if isinstance(value, AddFile) and value.first_event_id <= last and first <= value.last_event_id:
                yield value
        paths, firsts, reach = self._by_id()
        # Downwards from the last file that begins in time: once no file up to here reaches `first`, none before does.
        position = int(np.searchsorted(firsts, np.uint64(last), side="right")) - 1
        while position >= 0 and reach[position] >= first:
            path = paths[position]
            if path not in self._layer and self[path].last_event_id >= first:
                yield self[path]
            position -= 1

    def of_group(self, group: int) -> list[AddFile]:
        """Return the files that hold events of a journal group."""
        layer = self._layer
        held = [self[path] for path in self._by_group().get(group, ()) if path not in layer]
        return held + [file for file in layer.values() if isinstance(file, AddFile) and group in file.groups]

    def groups(self) -> set[int]:
        """Return the journal groups of which the files hold events."""
        held = set(self._by_group())
        for path in self._layer:
            if path in self._base:  # hidden: another file may hold the rest of its groups
                held.difference_update([group for group in self._decoded(path).groups if not self.of_group(group)])
        return held.union(*(file.groups for file in self._layer.values() if isinstance(file, AddFile)))

    def _by_group(self) -> dict[int, list[str]]:
        """Return the base's paths by journal group."""
        base = self._base
        assert isinstance(base, _Base)  # noqa: S101 - made so by every constructor
        # Once for each base, as with ids: every step asks for the groups that are live, and a sweep for each journal.
        if base.by_group is None:
            by_group: dict[int, list[str]] = {}
            for path in list(base):
                for group in self._decoded(path).groups:
                    by_group.setdefault(group, []).append(path)
            base.by_group = by_group
        return base.by_group

    def _by_id(self) -> tuple[list[str], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]:
        """Return the base's paths by first id, their first ids, and how far any file up to each one reaches."""
        base = self._base
        assert isinstance(base, _Base)  # noqa: S101 - made so by every constructor
        # Sorted once for each base and shared by all maps on it; the layer is small enough to be scanned.
        if base.by_id is None:
            files = sorted((self._decoded(path) for path in list(base)), key=lambda file: file.first_event_id)
            firsts = np.array([file.first_event_id for file in files], np.uint64)
            lasts = np.array([file.last_event_id for file in files], np.uint64)
            base.by_id = ([file.path for file in files], firsts, np.maximum.accumulate(lasts))
        return base.by_id

    def _decoded(self, path: str) -> AddFile:
        value: AddFile | bytes = self._base[path]
        if isinstance(value, bytes):
            value = read_file_entry(path, value, self._where)
            # The one write into a shared base. It is safe: it replaces bytes by their own meaning, and two threads
            # store equal values.
            self._base[path] = value
        return value
