"""Local copies of the files of an object store: what is read is fetched once, what was written here is published.

A copy lies below the repository's work folder under its key in the store, so that everything that reads a file of a
folder reads the copy. It is checked by the digest that the catalog has of it, once a process; a copy that was cut or
changed is fetched anew. Who reads little of a file gets a `RangedFile` instead, whose pieces are fetched as they are
looked at. All processes of the machine share copies and pieces. When they take more room than they may, those that
were used least recently go, but never a copy that the store does not have.

Invariant: a file is listed only after `publish` has read it back from the store. Whatever a put reported, the bytes
that are there decide.
"""

from __future__ import annotations

import errno
import hashlib
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

from custody.errors import ConflictError, NotFoundError, StorageError
from custody.format.names import BUILDS, FETCHING_SUFFIX, RANGES
from custody.store.base import ObjectData, ObjectStore, read_parts
from custody.store.ranged_file import RangedFile
from custody.vfs import TEMPORARY_SUFFIX, FileSystem, note_use, room_of

_PART_BYTES = 16 << 20
"""Copies are read in parts of this size, so that memory is bounded."""
_AGAIN_SECONDS = 60.0
"""What is damaged in the store is fetched again after this time: somebody may have mended it."""
_ATTEMPTS = 4
_PAUSE_SECONDS = 0.2
_DEAD_FETCH_MS = 3_600_000
"""A fetch that wrote nothing for so long has died: each of its parts is a request that ends much earlier."""
_UNFINISHED = (FETCHING_SUFFIX, TEMPORARY_SUFFIX)
_WALK_SHARE = 16
"""The room is measured again when so large a part of it was fetched since."""


class LocalCopies:
    """The local copies of one store.

    Args:
        fs: the file system of the work folder.
        store: where the files lie.
        folder: the work folder; a file of the store has its key as its path there.
        bytes_max: so much room the copies may take; the file that is in use now may be larger.
    """

    def __init__(self, fs: FileSystem, store: ObjectStore, folder: Path, bytes_max: int) -> None:
        self.folder = folder
        self._fs = fs
        self._store = store
        self._bytes_max = bytes_max
        self._whole: set[tuple[Path, bytes]] = set()
        """Copies that this process compared with their digests."""
        self._damaged_at: dict[tuple[Path, bytes], float] = {}
        """When copies were fetched that are not what the catalog says: the store has no other."""
        self._fetched_bytes: int | None = None
        """Bytes fetched since the room was measured; None before the first time."""

    def place(self, key: str) -> Path:
        """Return where the copy of a file lies, or would lie."""
        return self.folder / key

    def fetch(self, key: str, digest: bytes | None) -> Path:
        """Return the path of a copy, fetched if it is not here whole; with no digest any copy is taken.

        What the store holds is copied as it is: whoever reads it names the damage. A file that is not in the store has
        no copy, and reading it says so.

        Raises:
            StorageError: the store or the disk refuses.
        """
        path = self.place(key)
        if self._is_whole(path, digest) or (digest is not None and self._is_known_damage(path, digest)):
            note_use(path)
            return path
        try:
            size = self._copy(key, path)
        except NotFoundError:
            return path
        self._make_room(size, path)
        if digest is not None and not self._is_whole(path, digest):
            self._damaged_at[path, digest] = time.monotonic()
        return path

    def has(self, key: str) -> bool:
        """Whether there is a copy of a whole file; it may be damaged."""
        return self._fs.exists(self.place(key))

    def ranged(self, key: str, size: int) -> RangedFile:
        """Return a file of `size` bytes whose pieces are fetched as they are looked at; the store is not asked yet.

        Raises:
            StorageError: the disk refuses.
        """
        path = self._ranged_place(key)
        self._fs.make_directory(path.parent)

        def make_room(fetched: int) -> None:
            self._make_room(fetched, path)

        return RangedFile(self._fs, path, self._store, key, size, make_room)

    def publish(self, key: str, digest: bytes) -> None:
        """Put a file that was written here into the store; what is read back decides, whatever the put reported.

        Durability: on return the file is in the store.

        Raises:
            ConflictError: the store has other bytes under this key.
            StorageError: the store refuses.
        """
        self.publish_bytes(key, digest, lambda: self._fs.view(self.place(key)))

    def publish_bytes(self, key: str, digest: bytes, content: Callable[[], ObjectData]) -> None:
        """Put bytes into the store, as `publish` does those of a file."""
        failure: StorageError | None = None
        for number in range(_ATTEMPTS):
            if number:
                time.sleep(_PAUSE_SECONDS * number)
            try:
                stored = self._stored_digest(key)
                if stored is None:
                    self._store.put_if_absent(key, content())
                    stored = self._stored_digest(key)
            except StorageError as error:
                # The put may have arrived all the same: the next look tells.
                failure = error
                continue
            if stored == digest:
                return
            if stored is not None:
                raise ConflictError(
                    f"{self._store.locate(key)}: expected the bytes of {self.place(key)}, got others, which no "
                    "revision lists. Run the steps of the rollover again."
                )
        raise failure or StorageError(f"{self._store.locate(key)}: was put {_ATTEMPTS} times and is not there.")

    def forget(self, key: str) -> None:
        """Remove a copy, and pieces; absent ones are fine."""
        self._fs.remove(self.place(key))
        self._fs.remove(self._ranged_place(key))

    def keys_below(self, writer: str, database: str) -> set[str]:
        """Return the keys of the files of a writer's database of which a copy, or pieces, are on this machine."""
        home = self.folder / writer / database
        ranges = home / RANGES
        copies = {
            f"{writer}/{database}/data/{path.relative_to(home / 'data')}" for *_, path in self._below(home / "data")
        }
        pieces = {f"{writer}/{database}/{path.relative_to(ranges)}" for *_, path in self._below(ranges)}
        return copies | pieces

    def ranged_size(self, key: str) -> int | None:
        """Return the length of the file that holds pieces of a stored one; None where there is none."""
        path = self._ranged_place(key)
        try:
            return self._fs.size(path) if self._fs.exists(path) else None
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None  # another process made room

    def _ranged_place(self, key: str) -> Path:
        writer, database, rest = key.split("/", 2)
        return self.folder / writer / database / RANGES / rest

    def _is_known_damage(self, path: Path, digest: bytes) -> bool:
        """Whether a copy was fetched lately and is damaged in the store: to fetch it at each look helps nobody."""
        fetched_at = self._damaged_at.get((path, digest))
        is_lately = fetched_at is not None and time.monotonic() - fetched_at < _AGAIN_SECONDS
        return is_lately and self._fs.exists(path)

    def _is_whole(self, path: Path, digest: bytes | None) -> bool:
        if not self._fs.exists(path):
            return False
        if digest is None or (path, digest) in self._whole:
            return True
        view = self._fs.view(path)
        parts = (view[start : start + _PART_BYTES] for start in range(0, len(view), _PART_BYTES))
        whole = hashlib.sha256()
        for part in parts:
            whole.update(part)
        if whole.digest() != digest:
            return False
        self._whole.add((path, digest))
        return True

    def _copy(self, key: str, path: Path) -> int:
        """Fetch a file under a name of its own, and give it its name when it is whole and durable."""
        parts = read_parts(self._store, key)
        if parts is None:
            raise NotFoundError(f"{self._store.locate(key)}: there is no such object.")
        self._fs.make_directory(path.parent)
        # Not the suffix of temporary files: recovery removes those, and a reader without a lease may be fetching now.
        partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{FETCHING_SUFFIX}")
        size = 0
        with self._fs.create(partial) as file:
            for part in parts:
                size += file.write(part)
            file.sync()
        self._fs.rename(partial, path)
        self._fs.sync_directory(path.parent)
        return size

    def _stored_digest(self, key: str) -> bytes | None:
        parts = read_parts(self._store, key)
        if parts is None:
            return None
        whole = hashlib.sha256()
        for part in parts:
            whole.update(part)
        return whole.digest()

    def _make_room(self, size: int, path: Path) -> None:
        """Remove dead fetches, and if all take too much, the copies that were used least recently; `path` stays."""
        if self._fetched_bytes is not None and self._fetched_bytes + size < self._bytes_max // _WALK_SHARE:
            self._fetched_bytes += size
            return
        self._fetched_bytes = 0
        files, dead_ms = sorted(self._copies()), time.time() * 1000 - _DEAD_FETCH_MS
        for modified_ms, _, file in files:
            if file.suffix in _UNFINISHED and modified_ms < dead_ms:
                self._fs.remove(file)
        copies = [item for item in files if item[2].suffix not in _UNFINISHED]
        used = sum(copy_size for _, copy_size, _ in copies)
        for _, copy_size, copy in copies:
            if used <= self._bytes_max:
                return
            # A file that is not in the store yet is no copy: it is about to be published.
            if copy != path and (self._is_ranged(copy) or self._is_stored(copy, copy_size)):
                self._fs.remove(copy)
                used -= copy_size

    def _is_ranged(self, path: Path) -> bool:
        return path.relative_to(self.folder).parts[2] == RANGES

    def _is_stored(self, copy: Path, size: int) -> bool:
        info = self._store.head(str(copy.relative_to(self.folder)))
        return info is not None and info.size_bytes == size

    def _copies(self) -> Iterator[tuple[int, int, Path]]:
        """Yield time of the last use, size and path of all copies; one that another process removes is left out."""
        for writer in self._fs.list(self.folder):
            for database in self._fs.list(self.folder / writer):
                for kind in ("data", RANGES):
                    yield from self._below(self.folder / writer / database / kind)
                # Of a build its finished tables alone: nothing else of it is ever in the store.
                builds = self.folder / writer / database / BUILDS
                for build in self._fs.list(builds):
                    for step in self._fs.list(builds / build):
                        tables = builds / build / step / "tables"
                        yield from self._below(tables) if self._fs.is_directory(tables) else ()

    def _below(self, folder: Path) -> Iterator[tuple[int, int, Path]]:
        for name in self._fs.list(folder):
            path = folder / name
            if self._fs.is_directory(path):
                yield from self._below(path)
            # Temporary files beside copies are logs that a step writes; those of pieces are a reader's.
            elif not name.endswith(TEMPORARY_SUFFIX) or self._is_ranged(path):
                try:
                    # Of a file with holes only what was filled takes room.
                    size = room_of(path) if self._is_ranged(path) else self._fs.size(path)
                    yield self._fs.modified_ms(path), size, path
                except StorageError:
                    continue
