"""Disks for the journal's tests: operations are counted, syncs may be slow, and a folder may begin to fail."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Barrier, Lock, Thread

from custody.errors import StorageError
from custody.journal import JournalFile, groups
from custody.model import Event, to_events
from custody.vfs import PosixFileSystem
from custody.vfs.posix import PosixFile


class _WatchedFile(PosixFile):
    def __init__(self, inner: PosixFile, path: Path, fs: WatchedFileSystem) -> None:
        self._inner = inner
        self._path = path
        self._fs = fs

    @property
    def closed(self) -> bool:
        return self._inner.closed

    def write(self, data: bytes) -> int:
        self._fs.operation("write", self._path)
        return self._inner.write(data)

    def tell(self) -> int:
        return self._inner.tell()

    def sync(self) -> None:
        time.sleep(self._fs.sync_seconds)
        self._fs.operation("sync", self._path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class WatchedFileSystem(PosixFileSystem):
    """A real disk that remembers what was done to it; what lies below `broken` is refused, listings included."""

    def __init__(self, sync_seconds: float = 0.0) -> None:
        self.sync_seconds = sync_seconds
        self.done: list[tuple[str, str]] = []
        self.broken: list[Path] = []
        self.broken_operations: tuple[str, ...] = ("create", "write", "sync", "sync_directory", "rename", "list")
        self._guard = Lock()

    def count(self, operation: str) -> int:
        """How often it was done."""
        with self._guard:
            return sum(name == operation for name, _ in self.done)

    def operation(self, name: str, path: Path) -> None:
        """Refuse or remember one operation."""
        if name in self.broken_operations and any(path.is_relative_to(root) for root in self.broken):
            raise StorageError(f"cannot {name} {path}: injected")
        if not path.name.startswith("STATE"):  # the writer's own file, not a journal
            with self._guard:
                self.done.append((name, path.name))

    def create(self, path: Path) -> PosixFile:
        self.operation("create", path)
        final = path.with_name(path.name.partition(".journal")[0] + ".journal") if ".journal." in path.name else path
        return _WatchedFile(super().create(path), final, self)

    def rename(self, source: Path, target: Path) -> None:
        self.operation("rename", source)
        super().rename(source, target)

    def list(self, folder: Path) -> list[str]:
        self.operation("list", folder)
        return super().list(folder)

    def sync_directory(self, folder: Path) -> None:
        self.operation("sync_directory", folder)
        super().sync_directory(folder)


def in_threads(count: int, work: Callable[[int], object]) -> None:
    """Run `work(number)` in that many threads at once; raise what the first of them raised."""
    start = Barrier(count)
    failures: list[BaseException] = []

    def run(number: int) -> None:
        start.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again below, in the thread of the test
            failures.append(error)

    threads = [Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "a thread hangs"
    if failures:
        raise failures[0]


def stored_by_group(containers: Sequence[Path]) -> list[list[Event]]:
    """Every event on disk, group after group, each in the order of ids."""
    fs = PosixFileSystem()
    return [
        sorted(
            (item for path in (*group.sealed, *group.open) for item in to_events(JournalFile.read(fs, path).table())),
            key=lambda item: item.event_id,
        )
        for group in groups(fs, containers, "main")
    ]


def stored(containers: Sequence[Path]) -> list[Event]:
    """Every event on disk, in the order of groups and ids."""
    return [item for group in stored_by_group(containers) for item in group]
