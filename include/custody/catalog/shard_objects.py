"""Index shards in an object store: each is one object below `index/`, under its name in the catalog.

A shard can be built anew under its name, with other fields; then the object is replaced, and the one before goes to the
trash. A reader that has pages of the former one finds that the others do not fit, forgets them all, and opens it anew.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from custody.catalog.data_files import DataFiles
from custody.errors import ConflictError, NotFoundError
from custody.format.names import INDEX, parse_stored_shard, stored_shard, trash_path
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from custody.index import StoredShard
    from custody.store.ranged_file import RangedFile

_ATTEMPTS = 3


class ShardObjects:
    """The shards of one database in its store; of a store that is a folder, none."""

    def __init__(self, files: DataFiles) -> None:
        self._files = files

    def open(self, name: str) -> StoredShard | None:
        """Return a shard, open; None where the store is a folder.

        Raises:
            NotFoundError: the store has none of this name.
            CorruptionError, FormatVersionError: its manifest is damaged, or newer than this custody.
            StorageError: the store refuses.
        """
        if self._files.copies is None:
            return None
        # Imported when a shard is read: producers load no index.
        from custody.index import open_stored

        return open_stored(_Source(self._files, stored_shard(name)))

    def publish(self, fs: FileSystem, folder: Path, now_ms: int) -> None:
        """Bring the shard of a folder into the store, if that is an object store; it is read back.

        Durability: on return it is there under its name.

        Raises:
            ConflictError: another process puts other shards under this name.
            CorruptionError: the folder is not whole.
            StorageError: the store refuses.
        """
        if self._files.copies is None:
            return
        from custody.index import pack

        path, data = stored_shard(folder.name), pack(fs, folder)
        for _ in range(_ATTEMPTS):
            try:
                self._files.publish_bytes(path, data)
            except ConflictError:
                # With other fields, of an attempt that ended, or damaged: to the trash, not away, as it may be listed.
                with suppress(NotFoundError):
                    self._files.move(path, trash_path(path, now_ms))
            else:
                return
        raise ConflictError(
            f"{self._files.locate(path)}: expected the shard of {folder}, got others again and again. Run the step "
            "again when no other process builds this shard."
        )

    def forget(self, name: str) -> None:
        """Remove the pieces of a shard that are on this machine; the store keeps it, and a folder has none."""
        self._files.forget(stored_shard(name))

    def require(self, name: str) -> None:
        """Raise NotFoundError unless the store has a shard; one request."""
        if self._files.head(stored_shard(name)) is None:
            raise NotFoundError(
                f"{self._files.locate(stored_shard(name))}: is missing. Run the step index before the commit."
            )

    def remove(self, name: str) -> None:
        """Delete a shard that is live no more; an absent one is fine."""
        if self._files.copies is not None:
            self._files.delete(stored_shard(name))

    def names(self) -> set[str]:
        """Return the names of the shards that the store has; none where it is a folder. One request for a thousand."""
        if self._files.copies is None:
            return set()
        names = (parse_stored_shard(info.key) for info in self._files.list(f"{INDEX}/"))
        return {name for name in names if name is not None}

    def size_bytes(self, name: str) -> int:
        """Return the bytes of a shard in the store, 0 where it has none; one request."""
        info = None if self._files.copies is None else self._files.head(stored_shard(name))
        return 0 if info is None else info.size_bytes


class _Source:
    """One shard of the store, and its local file."""

    def __init__(self, files: DataFiles, path: str) -> None:
        self._files = files
        self._path = path

    def locate(self) -> Path:
        """Return its place, for messages."""
        return self._files.where(self._path)

    def size_here(self) -> int | None:
        """Return the length of the local file; None where there is none."""
        return self._files.ranged_size(self._path)

    def open(self, size: int) -> RangedFile:
        """Return the local file, whose pieces are fetched."""
        file = self._files.ranged(self._path, size)
        if file is None:
            raise NotFoundError(f"{self._files.locate(self._path)}: is no object of a store.")
        return file

    def tail(self, length: int) -> bytes:
        """Return so many of the last bytes of the object; raises NotFoundError."""
        return self._files.get_range(self._path, -length, length)

    def forget(self) -> None:
        """Remove the local file."""
        self._files.forget(self._path)
