"""A scheduler of actors on one disk: each is stopped before any operation of the file system and goes on later.

Each actor is a thread with a file system of its own around the shared disk, but only one of them runs at any moment:
a schedule says who runs next and how many operations it may do before it is stopped. So a run is determined by its
schedule, and can be repeated. An actor that is stopped keeps its locks, as a process does that a signal stopped.
"""

from __future__ import annotations

import threading
from builtins import list as list_of
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from custody.vfs import FileSystem, WritableFile
from custody.vfs.memory import MemoryFileSystem, Operation
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem

Work = Callable[[FileSystem], object]
Turn = tuple[str, int | None]
"""Who runs, and how many operations it does before it is stopped; None: to its end."""
_PATIENCE_SECONDS = 60


@dataclass
class Times:
    """When files were written, by a clock that goes on with each write; ms since the epoch."""

    now_ms: int
    written: dict[Path, int] = field(default_factory=dict)


class _StoppedFile(WrappingFile):
    def __init__(self, inner: WritableFile, path: Path, fs: StoppedFileSystem) -> None:
        super().__init__(inner, path)
        self._fs = fs

    def write(self, data: bytes) -> int:
        self._fs.step("write", self.path)
        return self.inner.write(data)

    def sync(self) -> None:
        self._fs.step("sync", self.path)
        self.inner.sync()


class StoppedFileSystem(WrappingFileSystem):
    """Asks before each operation, reading ones too, whether to go on; counts them."""

    def __init__(self, inner: MemoryFileSystem, times: Times, may_go_on: Callable[[], None]) -> None:
        super().__init__(inner)
        self.operations: list_of[Operation] = []
        self._times = times
        self._may_go_on = may_go_on

    def step(self, kind: str, path: Path) -> None:
        self._may_go_on()
        self.operations.append(Operation(kind, path))

    def create(self, path: Path) -> WritableFile:
        self.step("create", path)
        file = _StoppedFile(self.inner.create(path), path, self)
        self._times.written[path] = self._times.now_ms
        return file

    def read(self, path: Path) -> bytes:
        self.step("read", path)
        return self.inner.read(path)

    def exists(self, path: Path) -> bool:
        self.step("exists", path)
        return self.inner.exists(path)

    def list(self, folder: Path) -> list_of[str]:
        self.step("list", folder)
        return self.inner.list(folder)

    def size(self, path: Path) -> int:
        self.step("size", path)
        return self.inner.size(path)

    def modified_ms(self, path: Path) -> int:
        return self._times.written.get(path, self.inner.modified_ms(path))

    def rename(self, source: Path, target: Path) -> None:
        self.step("rename", source)
        self.inner.rename(source, target)
        self._times.written[target] = self._times.written.pop(source, 0)

    def link(self, source: Path, target: Path) -> bool:
        self.step("link", target)
        linked = self.inner.link(source, target)
        if linked:
            self._times.written[target] = self._times.written.get(source, 0)
        return linked

    def remove(self, path: Path) -> None:
        self.step("remove", path)
        self.inner.remove(path)

    def add_directory(self, folder: Path) -> None:
        self.step("add_directory", folder)
        self.inner.add_directory(folder)

    def remove_directory(self, folder: Path) -> None:
        self.step("remove_directory", folder)
        self.inner.remove_directory(folder)

    def sync_directory(self, folder: Path) -> None:
        self.step("sync_directory", folder)
        self.inner.sync_directory(folder)

    def lock(self, path: Path) -> AbstractContextManager[None]:
        self.step("lock", path)
        return self.inner.lock(path)


class _Actor:
    """One thread that runs only when it has the turn."""

    def __init__(self, work: Work, disk: MemoryFileSystem, times: Times) -> None:
        self.fs = StoppedFileSystem(disk, times, self._may_go_on)
        self.error: Exception | None = None
        self.is_done = False
        self._left: int | None = 0
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def go_on(self, count: int | None) -> None:
        """Let it do some operations, or all; return when it is stopped or done."""
        if not self.is_done:
            self._left = count
            self._turn.release()
            assert self._back.acquire(timeout=_PATIENCE_SECONDS), "an actor hangs"

    def _run(self, work: Work) -> None:
        assert self._turn.acquire(timeout=_PATIENCE_SECONDS)
        try:
            work(self.fs)
        except Exception as error:  # noqa: BLE001 - the test judges it
            self.error = error
        self.is_done = True
        self._back.release()

    def _may_go_on(self) -> None:
        if self._left == 0:
            self._back.release()
            self._turn.acquire()
        if self._left is not None:
            self._left -= 1


@dataclass
class Played:
    """What became of the actors."""

    errors: dict[str, Exception]
    operations: dict[str, Sequence[Operation]]


def play(disk: MemoryFileSystem, times: Times, actors: dict[str, Work], turns: Iterable[Turn]) -> Played:
    """Run actors by a schedule; what is left of each is then run to its end, in their order."""
    running = {name: _Actor(work, disk, times) for name, work in actors.items()}
    for name, count in (*turns, *((name, None) for name in actors)):
        running[name].go_on(count)
    errors = {name: actor.error for name, actor in running.items() if actor.error is not None}
    return Played(errors, {name: actor.fs.operations for name, actor in running.items()})


@contextmanager
def as_a_whole(disk: MemoryFileSystem, times: Times) -> Iterator[FileSystem]:
    """Give a file system of one that is never stopped."""
    yield StoppedFileSystem(disk, times, lambda: None)
