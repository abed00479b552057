"""A disk with durability bugs: it leaves out an operation of the code, for the paths that a test picks."""

from __future__ import annotations

from builtins import list as list_of
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import patch

from custody.store.local import LocalStore
from custody.vfs import FileSystem, WritableFile
from custody.vfs.durable import TEMPORARY_SUFFIX
from custody.vfs.memory import MemoryFileSystem
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem
from tests.crash.enumeration import Wrap

PathTest = Callable[[Path], bool]


class _File(WrappingFile):
    """A file whose syncs, or also whose writes, are put off until the next use, or are not done at all."""

    def __init__(self, inner: WritableFile, path: Path, bug: Buggy) -> None:
        super().__init__(inner, path)
        self._bug = bug
        self._late: list_of[Callable[[], object]] = []
        self._synced = False

    def write(self, data: bytes) -> int:
        self._catch_up()
        if self._synced and self._bug.late_write(self.path):
            kept = bytes(data)
            self._late.append(lambda: self.inner.write(kept))
            return len(kept)
        return self.inner.write(data)

    def sync(self) -> None:
        if self._bug.no_sync(self.path):
            return
        if self._synced and (self._late or self._bug.late_sync(self.path)):
            self._late.append(self.inner.sync)
            return
        self._synced = True  # the first sync is that of the header
        self.inner.sync()

    def close(self) -> None:
        self._catch_up()
        super().close()

    def _catch_up(self) -> None:
        late, self._late = self._late, []
        for work in late:
            work()


class _NeverSynced(WrappingFile):
    def sync(self) -> None:
        """Leave it to luck."""


def _never(path: Path) -> bool:
    return False


class Buggy(WrappingFileSystem):
    """A disk between which and the code something is left out, for the paths that a test picks."""

    def __init__(
        self,
        inner: FileSystem,
        *,
        no_sync: PathTest = _never,
        no_directory_sync: PathTest = _never,
        late_sync: PathTest = _never,
        late_write: PathTest = _never,
        no_disk_sync: bool = False,
        no_cut: bool = False,
        no_recovery_sync: bool = False,
        final_name_at_once: PathTest = _never,
        trusts_found_folders: bool = False,
        trusts_found_shards: bool = False,
    ) -> None:
        super().__init__(inner)
        self.no_sync = no_sync
        self.late_sync = late_sync
        self.late_write = late_write
        self._no_directory_sync = no_directory_sync
        self._no_disk_sync = no_disk_sync
        self._no_cut = no_cut
        self._no_recovery_sync = no_recovery_sync
        self._final_name_at_once = final_name_at_once
        self._trusts_found_folders = trusts_found_folders
        self._trusts_found_shards = trusts_found_shards
        self._renamed_into: set[Path] = set()

    def create(self, path: Path) -> WritableFile:
        return _File(self.inner.create(self._name(path)), path, self)

    def append(self, path: Path) -> WritableFile:
        # Only recovery appends to a journal that it did not write itself.
        file = self.inner.append(path)
        return _NeverSynced(file, path) if self._no_recovery_sync else file

    def view(self, path: Path) -> memoryview:
        return self.inner.view(self._name(path))

    def rename(self, source: Path, target: Path) -> None:
        self._renamed_into.add(target.parent)
        if self._name(source) != target:
            self.inner.rename(self._name(source), target)

    def sync_file(self, path: Path) -> None:
        if not self.no_sync(path) and not self._no_recovery_sync:
            self.inner.sync_file(path)

    def sync_directory(self, folder: Path) -> None:
        trusted = self._trusts_found_shards and folder.name == "index" and folder not in self._renamed_into
        if not self._no_directory_sync(folder) and not trusted:
            self.inner.sync_directory(folder)

    def sync_disk(self, folder: Path) -> bool:
        return self._no_disk_sync or self.inner.sync_disk(folder)

    def cut(self, path: Path, length: int) -> None:
        if not self._no_cut:
            self.inner.cut(path, length)

    def make_directory(self, folder: Path) -> None:
        if not (self._trusts_found_folders and self.exists(folder)):
            super().make_directory(folder)

    def _name(self, path: Path) -> Path:
        if path.suffix == TEMPORARY_SUFFIX and self._final_name_at_once(path):
            return path.with_suffix("").with_suffix("")
        return path


def left_out(**options: Any) -> Wrap:
    """Put a buggy disk between the code and the disk."""

    def wrap(fs: MemoryFileSystem) -> FileSystem:
        return Buggy(fs, **options)

    return wrap


def named(text: str) -> PathTest:
    """Pick the files with a text in their name."""
    return lambda path: text in path.name


def below(text: str) -> PathTest:
    """Pick what lies in a folder with a text in its name."""
    return lambda path: text in path.parent.name


def called(name: str) -> PathTest:
    """Pick what has this name."""
    return lambda path: path.name == name


def puts_never_synced(part: str) -> AbstractContextManager[object]:
    """Objects of a folder store with a part in their keys are written and never synced."""

    def wrong(self: Any, key: str, data: bytes) -> bool:
        path = self._path(key)
        self._fs.make_directory(path.parent)
        with self._fs.create(path) as file:
            file.write(data)
        return True

    right = LocalStore.put_if_absent
    return patch.object(
        LocalStore,
        "put_if_absent",
        lambda self, key, data: (wrong if part in key else right)(self, key, data),
    )
