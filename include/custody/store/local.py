"""Objects as files of a local disk, written through the vfs: synced, and in tests crashed at every operation."""

from __future__ import annotations

import errno
from builtins import list as list_of
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path

from custody.errors import NotFoundError, StorageError
from custody.store.base import ObjectData, ObjectInfo, UnfinishedUpload, check_key, check_prefix, is_segment
from custody.vfs import TEMPORARY_SUFFIX, FileSystem

_ABSENT = (errno.ENOENT, errno.ENOTDIR)
_PATHS_KEPT = 256


class LocalStore:
    """A folder; a key is the path of a file below it. Temporary files of the vfs are no objects."""

    is_remote = False
    keeps_times = True
    can_put_if_absent = True

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root
        self._root_text = str(root)
        self._files = fs.below(root)
        self._paths: dict[str, Path] = {}
        """By key. A look at a catalog asks for the same two as before; to make a path takes longer than to read it."""
        self._durable: set[Path] = set()
        """Folders whose own names this process has made durable."""

    def locate(self, key: str) -> str:
        """Return the file's path."""
        # Each object that is read is located, for the case of an error: with the operator / that costs as much as to
        # decode it.
        return f"{self._root_text.rstrip('/')}/{key}".rstrip("/") or "/"

    def get(self, key: str) -> bytes:
        """Return the whole content."""
        path = self._path(key)
        try:
            return self._fs.read(path)
        except StorageError as error:
            raise _absent(error, path) from error

    def get_many(self, keys: Sequence[str]) -> list_of[bytes]:
        """Return the contents of the leading keys that exist."""
        contents: list_of[bytes] = []
        # One alone is most often one that was asked for before, whose path is kept.
        read = self.get if len(keys) == 1 else self._read
        for key in keys:
            try:
                contents.append(read(key))
            except NotFoundError:
                # By contract: the first that is absent ends the run, whatever lies behind it.
                break
        return contents

    def _read(self, key: str) -> bytes:
        try:
            return self._files.read(check_key(key))
        except StorageError as error:
            raise _absent(error, Path(self.locate(key))) from error

    def get_range(self, key: str, start: int, length: int) -> bytes:
        """Return a part of the content."""
        path = self._path(key)
        try:
            # Not mapped: a file that somebody cuts meanwhile would end the process.
            first = max(self._fs.size(path) + start, 0) if start < 0 else start
            return self._fs.read_part(path, first, length)
        except StorageError as error:
            raise _absent(error, path) from error

    def head(self, key: str) -> ObjectInfo | None:
        """Return size and time of a file."""
        path = self._path(key)
        try:
            if self._fs.is_directory(path):
                return None
            return ObjectInfo(key, self._fs.size(path), self._fs.modified_ms(path))
        except StorageError as error:
            if error.errno in _ABSENT:
                return None
            raise

    def list(self, prefix: str, *, after: str = "") -> Iterator[ObjectInfo]:
        """Yield the files below a folder; of folders that lie wholly before `after` nothing is read."""
        return self._infos_below(check_prefix(prefix), after)

    def keys(self, prefix: str, *, after: str = "", ending: str = "") -> Iterator[str]:
        """Yield the paths of the files below a folder; a name with a dot in it is taken for a file's."""
        return self._below(check_prefix(prefix), after, ending)

    def folders(self, prefix: str) -> list_of[str]:
        """Return the names of the folders in a folder."""
        folder = self._root / check_prefix(prefix)
        return [name for name in self._names(prefix) if self._fs.is_directory(folder / name)]

    def put_if_absent(self, key: str, data: ObjectData) -> bool:
        """Write a file if its name is free: write beside, sync, link, sync the folder and the folder's own name."""
        path = self._path(key)
        folder = path.parent
        if not (folder.parent in self._durable and self._fs.exists(folder.parent)):
            self._make_durable(folder)
            return self._fs.publish_if_absent(path, bytes(data))
        # Most file systems write the new folder when they sync the file: the sync of the folder's name, done last, then
        # costs nothing.
        self._fs.add_directory(folder)
        published = self._fs.publish_if_absent(path, bytes(data))
        self._fs.sync_directory(folder.parent)
        return published

    def put(self, key: str, data: ObjectData) -> None:
        """Write a file: write beside, sync, rename, sync the folder."""
        path = self._path(key)
        self._make_durable(path.parent)
        self._fs.write_durably(path, bytes(data))

    def move(self, source: str, target: str) -> None:
        """Rename a file and sync both folders."""
        old, new = self._path(source), self._path(target)
        # The new folder first: an object must not be moved into one that a power loss takes.
        self._make_durable(new.parent)
        self._fs.rename(old, new)
        self._fs.sync_directory(new.parent)
        # After a crash both names may be there for one file; a rename between them does nothing.
        self._fs.remove(old)
        self._fs.sync_directory(old.parent)

    def delete(self, key: str) -> None:
        """Remove a file and sync its folder, so that deletions survive in the order in which they were made."""
        path = self._path(key)
        self._fs.remove(path)
        try:
            self._fs.sync_directory(path.parent)
        except StorageError as error:
            if error.errno not in _ABSENT:  # else somebody has just dropped the folder
                raise

    def unfinished(self, prefix: str) -> list_of[UnfinishedUpload]:
        """Return none: a file is written under a temporary name, which step `recover` finds."""
        return []

    def abort(self, upload: UnfinishedUpload) -> None:
        """Do nothing: there are no uploads."""

    def drop_folder(self, prefix: str) -> None:
        """Remove an empty folder."""
        folder = self._root / check_prefix(prefix)
        if self._fs.exists(folder) and not self._fs.list(folder):
            try:
                self._fs.remove_directory(folder)
            except StorageError as error:
                if error.errno != errno.ENOTEMPTY:  # somebody has just put something there
                    raise

    @contextmanager
    def exclusive(self, key: str) -> Iterator[None]:
        """Hold a lock of the operating system on a file, which stays behind unlocked."""
        path = self._path(key)
        self._make_durable(path.parent)
        with self._fs.lock(path):
            yield

    def settle(self, key: str) -> None:
        """Sync the folder of a file that another process published, and its name; the content was synced before."""
        folder = self._path(key).parent
        # The process that published it may have died before its own syncs.
        self._fs.sync_directory(folder)
        self._fs.sync_directory(folder.parent)

    def _path(self, key: str) -> Path:
        path = self._paths.get(key)
        if path is None:
            path = Path(f"{self._root_text}/{check_key(key)}")  # twice as quick as the operator /
            if len(self._paths) >= _PATHS_KEPT:
                self._paths.clear()
            self._paths[key] = path
        return path

    def _make_durable(self, folder: Path) -> None:
        """Make a folder; below one that is known to be durable only its own name is left to sync."""
        # `drop_folder` may have removed it since, so that it is looked at again.
        if folder.parent in self._durable and self._fs.exists(folder.parent):
            self._fs.add_directory(folder)
            self._fs.sync_directory(folder.parent)
        else:
            self._fs.make_directory(folder)
            self._durable.add(folder.parent)

    def _names(self, prefix: str, after: str = "", ending: str = "") -> list_of[str]:
        names = self._files.list(prefix)
        if ending:
            # First of all: of thousands of folders with a file each nothing is left.
            names = [name for name in names if "." not in name or name.endswith(ending)]
        if after:
            # First, as it leaves a few of thousands. As a folder and as a file the others lie before.
            names = [name for name in names if f"{prefix}{name}/" >= after or after.startswith(f"{prefix}{name}/")]
        return [name for name in names if not name.endswith(TEMPORARY_SUFFIX) and is_segment(name)]

    def _below(self, prefix: str, after: str, ending: str) -> Iterator[str]:
        """Yield the keys of the files below a prefix in the order of keys, those with an ending of their names.

        A folder sorts by its name and the `/` behind it, as its keys do: `a.b` comes before `a/b`.
        """
        try:
            names = self._names(prefix, after, ending)
            # By convention only files have a dot in their names, which saves a look at what they are. One name is
            # looked at by itself: what lies behind a key is asked for more often than a whole folder, and of thousands
            # of names the one that the key lies below is left.
            unknown = [name for name in names if "." not in name]
            if not unknown:
                # Nearly all folders that are read in numbers: those of single transactions.
                yield from sorted(key for name in names if (key := prefix + name) > after)
                return
            if len(unknown) == 1:
                is_folder = self._fs.is_directory(self._path(f"{prefix}{unknown[0]}"))
                folders = set(unknown) if is_folder else set[str]()
            else:
                folders = self._files.folders(prefix)
        except StorageError as error:
            if error.errno in _ABSENT:
                return
            raise
        entries = []
        for name in names:
            key = f"{prefix}{name}"
            entries.append(f"{key}/" if name in folders and "." not in name else key)
        for entry in sorted(entries):
            if entry.endswith("/"):
                yield from self._below(entry, after, ending)
            elif entry > after and entry.endswith(ending):
                yield entry

    def _infos_below(self, prefix: str, after: str) -> Iterator[ObjectInfo]:
        """Yield what `_below` and a look at each file say; each folder is read once, and says most of it."""
        try:
            entries = self._files.entries(prefix)
        except StorageError as error:
            if error.errno in _ABSENT:
                return
            raise
        named = [
            (f"{prefix}{entry.name}/" if entry.is_folder else f"{prefix}{entry.name}", entry)
            for entry in entries
            if not entry.name.endswith(TEMPORARY_SUFFIX) and is_segment(entry.name)
        ]
        # A folder sorts by its name and the `/` behind it, as its keys do.
        for key, entry in sorted(named, key=itemgetter(0)):
            if entry.is_folder:
                # A folder with a dot in its name is taken for a file, which is none.
                if "." not in entry.name and (key >= after or after.startswith(key)):
                    yield from self._infos_below(key, after)
            elif key > after:
                info = ObjectInfo(key, entry.size_bytes, entry.modified_ms) if entry.is_readable else self.head(key)
                if info is not None:
                    yield info


def _absent(error: StorageError, path: Path) -> Exception:
    return NotFoundError(f"{path}: there is no such object.") if error.errno in _ABSENT else error
