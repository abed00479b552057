"""The files that a catalog lists, by their paths in it: event logs, tables of contents, and what lies in the trash.

This is the only place that knows where such a file lies: in the repository's store, or on a stripe, whose name its path
begins with. `place` gives a store and a key in it; whoever needs a file of the local disk takes `path`. A file of an
object store is read by its local copy, and is written as one until it is published.

Invariant: a file of a stripe that is not there is never taken for absent. Every look checks the stripe's mark before,
and checks it again before it believes that a file is gone.
"""

from __future__ import annotations

import hashlib
import math
import time
from builtins import list as list_of
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from custody.catalog.stripes import Stripe, Stripes
from custody.errors import NotFoundError, StorageError, StripeMissingError
from custody.format.names import TOC_SUFFIX, split_stripe, stripe_prefix
from custody.store import ObjectInfo, ObjectStore, carried

if TYPE_CHECKING:
    from custody.store.local_copies import LocalCopies
    from custody.store.ranged_file import RangedFile


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file of a catalog lies: an object of a store, and the stripe whose store that is."""

    store: ObjectStore
    key: str
    stripe: Stripe | None = None

    def __str__(self) -> str:
        return self.store.locate(self.key)

    def check(self) -> None:
        """Raise StripeMissingError if the file lies on a stripe that is not there."""
        if self.stripe is not None:
            self.stripe.check()


# More are forgotten: a server runs for years.
_PATHS_MAX = 1 << 16
_SEEN_SECONDS = 60.0
_NEVER: tuple[float, frozenset[str]] = (-math.inf, frozenset())
# Each thread waits for the store most of the time.
_PARALLEL = 16


class DataFiles:
    """The files below one database's folder and on its stripes, by their paths relative to it.

    Every method but `locate` and `where` raises StripeMissingError when the stripe that a path names is not there,
    StorageError when a store refuses, and NotFoundError as an `ObjectStore` does.
    """

    def __init__(self, store: ObjectStore, home: str, stripes: Stripes | None = None) -> None:
        self._store = store
        self._home = home
        self._paths: dict[str, Path] = {}
        self._seen: dict[str, tuple[float, frozenset[str]]] = {}
        """The names in folders of an object store, and when they were listed, by the monotonic clock."""
        self.stripes = stripes
        """None for a catalog whose files all lie in the store."""
        self.copies: LocalCopies | None = None
        """The local copies of an object store's files; None where the store is a folder, or nothing is read or written
        on this machine."""
        self.beside_suffix = TOC_SUFFIX
        """Of the file beside each Parquet file, which says what is in it."""
        self.digest_of: Callable[[str], bytes | None] = lambda path: None
        """What the catalog says of a file: its digest, None where it does not know the file."""

    def place(self, path: str) -> Place:
        """Return where a file lies; whether its stripe is there is not looked at."""
        name, rest = split_stripe(path)
        if not name:
            return Place(self._store, self._home + path)
        if self.stripes is None:
            raise StripeMissingError(f"{path}: lies on a stripe, and this catalog was opened without any.")
        stripe = self.stripes.get(name)
        return Place(stripe.files, self._home + rest, stripe)

    def locate(self, path: str) -> str:
        """Return where a file lies, or should lie, for messages; nothing is looked at."""
        try:
            return str(self.place(path))
        except StripeMissingError:
            return self._store.locate(self._home + path)  # nobody knows the folder, but the name of the stripe is in it

    def where(self, path: str) -> Path:
        """Return the path on this machine under which a file lies, or should lie; nothing is looked at."""
        if self.copies is not None:
            return self.copies.place(self._home + path)
        # Asked for each log of each answer, and to make a path takes long. Where a file lies does not change.
        place = self._paths.get(path)
        if place is None:
            if len(self._paths) >= _PATHS_MAX:
                self._paths.clear()
            place = self._paths[path] = Path(self.locate(path))
        return place

    def path(self, path: str) -> Path:
        """Return the path of a file that is about to be read on this machine; of an object store, that of its copy.

        A log is fetched with its table of contents, a file of a table with its index.

        Raises:
            StripeMissingError: its stripe is not there.
            StorageError: the store refuses, or there is no place for copies of it.
        """
        place = self._checked(path)
        if self.copies is not None:
            self._fetch_beside(self.copies, path)
            return self.copies.fetch(place.key, self.digest_of(path))
        if place.store.is_remote:
            raise StorageError(f"{place}: files of an object store are read by their copies, and there are none here.")
        return Path(str(place))

    def is_copied(self, path: str) -> bool:
        """Whether there is a copy of a whole file of an object store on this machine; it may be damaged."""
        return self.copies is not None and self.copies.has(self._home + path)

    def ranged(self, path: str, size: int, *, with_beside: bool = True) -> RangedFile | None:
        """Return a file of `size` bytes to be read by ranges; None where the whole of it is on this machine.

        What lies beside it is fetched whole, unless the caller reads that by ranges, and checked by the catalog's
        digest, as `path` does.

        Raises:
            StorageError: the store or the disk refuses.
        """
        place = self._checked(path)
        if self.copies is None or self.copies.has(place.key):
            return None
        if with_beside:
            self._fetch_beside(self.copies, path)
        return self.copies.ranged(place.key, size)

    def beside(self, path: str) -> str:
        """Return the path of the file that lies beside a Parquet file."""
        return path.removesuffix(".parquet") + self.beside_suffix

    def parquet_of(self, path: str) -> str:
        """Return the path of the Parquet file that a file lies beside; of a Parquet file its own."""
        return path.removesuffix(self.beside_suffix) + ".parquet" if path.endswith(self.beside_suffix) else path

    def _fetch_beside(self, copies: LocalCopies, path: str) -> None:
        if path.endswith(".parquet"):
            beside = self.beside(path)
            copies.fetch(self._home + beside, self.digest_of(beside))

    def is_published(self, path: str) -> bool:
        """Whether an object store has a file; False where the store is a folder."""
        return self.copies is not None and self.exists(path)

    def publish(self, path: str, digest: bytes) -> None:
        """Bring a file that was written at `where` into the store, if that is an object store; it is read back.

        Raises:
            ConflictError: the store has other bytes under this path.
            StorageError: the store refuses.
        """
        if self.copies is not None:
            self.copies.publish(self._home + path, digest)

    def publish_bytes(self, path: str, data: bytes) -> None:
        """Bring bytes into the store, if that is an object store; raises as `publish`."""
        if self.copies is not None:
            self.copies.publish_bytes(self._home + path, hashlib.sha256(data).digest(), lambda: data)

    def ranged_size(self, path: str) -> int | None:
        """Return the length of the local file that holds pieces of a stored one; None where there is none."""
        return None if self.copies is None else self.copies.ranged_size(self._home + path)

    def forget(self, path: str) -> None:
        """Remove what is on this machine of a file of an object store; nothing where the store is a folder."""
        if self.copies is not None:
            self.copies.forget(self._home + path)

    def require(self, path: str) -> None:
        """Raise StripeMissingError if a file lies on a stripe that is not there."""
        self.place(path).check()

    def exists(self, path: str) -> bool:
        """Whether a file is there."""
        return self.head(path) is not None

    def head(self, path: str) -> ObjectInfo | None:
        """Return size and time of a file, under its path in the catalog; None when there is none."""
        place = self._checked(path)
        info = place.store.head(place.key)
        if info is None:
            place.check()
            return None
        return replace(info, key=path)

    def get(self, path: str) -> bytes:
        """Return the whole content."""
        place = self._checked(path)
        try:
            return place.store.get(place.key)
        except NotFoundError:
            place.check()
            raise

    def get_range(self, path: str, start: int, length: int) -> bytes:
        """Return a part of the content, as `ObjectStore.get_range` does."""
        place = self._checked(path)
        try:
            return place.store.get_range(place.key, start, length)
        except NotFoundError:
            place.check()
            raise

    def list(self, folder: str, *, present_only: bool = False) -> Iterator[ObjectInfo]:
        """Yield the files below a folder such as `data/`, in the store and on all stripes, with their paths as keys.

        With `present_only` stripes that are not there are passed over.
        """
        for prefix, place in self._parts(folder, present_only=present_only):
            for info in place.store.list(place.key):
                # Made anew: `replace` takes longer than the look at a file on a disk.
                key = prefix + info.key.removeprefix(self._home)
                yield ObjectInfo(key, info.size_bytes, info.modified_ms)
            if not present_only:
                place.check()  # a listing during which the disk went away is not whole

    def names(self, folder: str) -> Iterator[str]:
        """Yield the paths alone that `list` yields; on a local disk the files themselves are not touched."""
        for prefix, place in self._parts(folder, present_only=False):
            for key in place.store.keys(place.key):
                yield prefix + key.removeprefix(self._home)
            place.check()

    def others(self, folder: str, known: Container[str]) -> Iterator[ObjectInfo]:
        """Yield what `list` yields with `present_only`, without known paths; on a local disk those are not touched."""
        for prefix, place in self._parts(folder, present_only=True):
            # An object store says of each object how large it is, wherever that is asked.
            if place.store.is_remote:
                found: Iterator[ObjectInfo | None] = iter(place.store.list(place.key))
            else:
                keys = place.store.keys(place.key)
                found = (place.store.head(key) for key in keys if prefix + key.removeprefix(self._home) not in known)
            for info in found:
                if info is not None and (path := prefix + info.key.removeprefix(self._home)) not in known:
                    yield ObjectInfo(path, info.size_bytes, info.modified_ms)

    def parts(self) -> list_of[tuple[str, Path]]:
        """Return the folders of the store and of the stripes that are there, each behind what its paths begin with.

        Of an object store it is the folder of the copies.
        """
        if self.copies is not None:
            return [("", self.copies.place(self._home.rstrip("/")))]
        return [(prefix, Path(str(place).rstrip("/"))) for prefix, place in self._parts("", present_only=True)]

    def missing(self) -> list_of[tuple[str, StripeMissingError]]:
        """Return the stripes that may have files and are not there, by name, and why."""
        checked = [] if self.stripes is None else self.stripes.checked()
        return [(name, state) for name, state in checked if isinstance(state, StripeMissingError)]

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file only if its path is free; return whether it was. Durability: as `ObjectStore.put_if_absent`."""
        place = self._checked(path)
        return place.store.put_if_absent(place.key, data)

    def move(self, source: str, target: str) -> None:
        """Give a file another path, replacing one that has it. A crash may leave it under both."""
        old, new = self._checked(source), self._checked(target)
        self.forget(source)  # nobody is to read it here when it is not in the store
        if old.store is new.store:
            old.store.move(old.key, new.key)
        else:
            new.store.put(new.key, self.get(source))
            old.store.delete(old.key)

    def delete(self, path: str) -> None:
        """Remove a file, durably; an absent one is fine."""
        place = self._checked(path)
        self.forget(path)
        place.store.delete(place.key)
        # What went away with its disk was not deleted.
        place.check()

    def drop_folder(self, folder: str) -> None:
        """Remove an empty folder, where a store has folders."""
        place = self._checked(folder)
        place.store.drop_folder(place.key)

    def absent(self, paths: Iterable[str]) -> set[str]:
        """Return which of some files an object store does not have; a folder is one request, several go side by side.

        A file that was there within the last minute counts as there: each question asks, and what is listed goes by
        accident only.
        """
        wanted = [path.rsplit("/", 1) for path in paths]
        now = time.monotonic()
        # A copy: other threads ask as well.
        seen = {folder: self._seen.get(folder, _NEVER) for folder, _ in wanted}
        stale = {
            folder for folder, name in wanted if now - seen[folder][0] > _SEEN_SECONDS or name not in seen[folder][1]
        }
        with ThreadPoolExecutor(max(1, min(_PARALLEL, len(stale)))) as threads:
            seen.update(
                zip(stale, ((now, names) for names in threads.map(carried(self._names_in), stale)), strict=True)
            )
        if len(self._seen) > _PATHS_MAX:
            self._seen.clear()
        self._seen.update(seen)
        return {f"{folder}/{name}" for folder, name in wanted if name not in seen[folder][1]}

    def _names_in(self, folder: str) -> frozenset[str]:
        place = self._checked(f"{folder}/")
        return frozenset(key.rpartition("/")[2] for key in place.store.keys(place.key))

    def _checked(self, path: str) -> Place:
        place = self.place(path)
        place.check()
        return place

    def _parts(self, folder: str, *, present_only: bool) -> Iterator[tuple[str, Place]]:
        yield "", Place(self._store, self._home + folder)
        for name, state in () if self.stripes is None else self.stripes.checked():
            if isinstance(state, Stripe):
                yield stripe_prefix(name), Place(state.files, self._home + folder, state)
            elif not present_only:
                raise state
