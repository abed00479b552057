"""The scenarios: appending and sealing, recovery, and whole passes of the rollover."""

from __future__ import annotations

from custody.vfs import FileSystem
from custody.vfs.crash import CrashMode
from custody.vfs.memory import MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.store import Promises, check_catalog, check_events, check_final_names, repository, run_pass, workspace


class StoreScenario(Scenario[Promises]):
    """What must hold of a store, whatever was done to it."""

    def new_record(self) -> Promises:
        return Promises()

    def copy(self, record: Promises) -> Promises:
        return record.copy()

    def check(self, fs: FileSystem, record: Promises) -> None:
        check_final_names(fs)
        check_catalog(fs)
        check_events(fs, record)

    def use(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)


class Appending(StoreScenario):
    """Several appends and groups over two containers, in the lives of two processes."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)
            record.append(writer, 1)
            writer.seal()
            record.append(writer, 3)
            record.append(writer, 1)
        with repository(fs).writer() as writer:
            record.append(writer, 2)


class Recovering(StoreScenario):
    """A start on what a crash left; nothing is appended before the start has done its work.

    Args:
        disk: what the crash left.
        promises: what had been promised until then.
    """

    def __init__(self, disk: MemoryFileSystem, promises: Promises) -> None:
        self._disk = disk
        self._promises = promises

    def start(self) -> MemoryFileSystem:
        # Nothing is under way on the disk, so that all of it is kept; the copy can be changed.
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> Promises:
        return self._promises.copy()

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer():
            pass


class RollingOver(StoreScenario):
    """A group becomes live in one pass, with a checkpoint, and its journals are swept; `use` adds another one."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)
            record.append(writer, 1)
        run_pass(fs)

    def use(self, fs: FileSystem, record: Promises) -> None:
        super().use(fs, record)
        run_pass(fs)
        assert not workspace(fs).groups(), "journals are left"
