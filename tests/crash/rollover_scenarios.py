"""Scenarios of the writer and the rollover: appending and sealing, recovery, and whole passes."""

from __future__ import annotations

from collections.abc import Sequence

from custody.clock import ManualClock
from custody.config import Settings
from custody.format.names import shard_container
from custody.recovery import STEPS
from custody.repository.local_pass import run_locally
from custody.vfs import FileSystem
from custody.vfs.memory import CrashMode, MemoryFileSystem
from tests.crash.enumeration import Scenario
from tests.crash.machine_with_bucket import new_disk, settings_on
from tests.crash.memory_repository import (
    NOW_MS,
    SETTINGS,
    Promises,
    check_catalog,
    check_events,
    check_final_names,
    copied_segments,
    hand_over_if_needed,
    repository,
    require_done,
    run_pass,
    workspace,
)

IN_PARTS: Settings = SETTINGS.model_copy(
    update={"eventlog": SETTINGS.eventlog.model_copy(update={"merge_bytes_max": 4096})}
)
"""Settings with which a hundred events are merged in several parts."""


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


class Prepared(StoreScenario):
    """What begins on a disk where something was done before; that is done once, and each run gets a copy.

    Args:
        disk: what was done, or what a crash left.
        promises: what had been promised until then.
    """

    _disk: MemoryFileSystem
    _promises: Promises

    def __init__(self, disk: MemoryFileSystem, promises: Promises) -> None:
        self._disk = disk
        self._promises = promises

    def start(self) -> MemoryFileSystem:
        # Nothing is under way on the disk, so that all of it is kept; the copy can be changed.
        return self._disk.crashed(CrashMode.ALL_KEPT)

    def new_record(self) -> Promises:
        return self._promises.copy()


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


class Recovering(Prepared):
    """A start on what a crash left; nothing is appended before the start has done its work."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer():
            pass


class RollingOver(StoreScenario):
    """A group becomes live in one pass, with a checkpoint, and its journals are swept; `use` adds another one."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)
            record.append(writer, 1)
        run_pass(fs, is_segment_copied=False)

    def use(self, fs: FileSystem, record: Promises) -> None:
        super().use(fs, record)
        run_pass(fs)
        assert not workspace(fs).groups(), "journals are left"


class RollingOverRetried(RollingOver):
    """After a crash the steps are tried again without recovery, as a task's retry does: what is there is used.

    The group that comes later has its shard on the other disk: there nothing makes the first one's name durable.
    """

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 4)
        assert shard_container(0, 2) != shard_container(4, 2)
        run_pass(fs, is_segment_copied=False)

    def use(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs, *list(STEPS)[1:])
        super().use(fs, record)


class RollingOverLocally(RollingOver):
    """The same as one pass in the process, with its leases and its reports."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)
            record.append(writer, 1)
        self._roll_over(fs)

    def use(self, fs: FileSystem, record: Promises) -> None:
        StoreScenario.use(self, fs, record)
        self._roll_over(fs)
        assert not workspace(fs).groups(), "journals are left"

    def _roll_over(self, fs: FileSystem) -> None:
        hand_over_if_needed(fs)
        with copied_segments():
            # All processes of a crash test are one in truth, so that who crashed seems to live.
            for report in repository(fs).roll_over(take_over=True, run_id="run"):
                require_done(report, is_done=report.failed == 0)


class RollingOverMerged(RollingOver):
    """Two small groups become one log."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            record.append(writer, 2)
            writer.seal()
            record.append(writer, 1)
        run_pass(fs)


class RollingOverSplit(RollingOver):
    """A group becomes several logs, which must become live together."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            for _ in range(3):
                record.append(writer, 30)
        run_pass(fs)


class RollingOverInParts(RollingOverLocally):
    """A group is merged by ranges of ids, which become one unit; after a crash the ranges that are there are used."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        with repository(fs).writer() as writer:
            for _ in range(6):
                record.append(writer, 20)
        self._roll_over(fs, ("rollover",))

    def use(self, fs: FileSystem, record: Promises) -> None:
        StoreScenario.use(self, fs, record)
        self._roll_over(fs)
        assert not workspace(fs).groups(), "journals are left"
        units = workspace(fs).stored_units
        assert not (fs.list(workspace(fs).paths.staging) if units is None else units.folders()), "parts are left"

    def _roll_over(self, fs: FileSystem, steps: Sequence[str] | None = None) -> None:
        hand_over_if_needed(fs)
        with copied_segments():
            names = steps or tuple(STEPS)
            settings = settings_on(fs, IN_PARTS)
            for report in run_locally(names, settings, take_over=True, fs=fs, clock=ManualClock(NOW_MS)):
                require_done(report, is_done=report.failed == 0)


class RollingOverDamage(Prepared):
    """A sealed journal with damaged records: the others become live, the damaged bytes are kept.

    Args:
        damaged: the numbers of the damaged records, of three.
    """

    def __init__(self, damaged: Sequence[int]) -> None:
        self._damaged = set(damaged)
        disk = new_disk()
        self._promises = Promises()
        with repository(disk).writer() as writer:
            for number in range(3):
                self._promises.append(writer, 1)
                if number in self._damaged:
                    del self._promises.acknowledged[number]
        [self._journal] = [path for group in workspace(disk).groups() for path in group.sealed]
        self._data = bytearray(disk.read(self._journal))
        self._evidence = []
        for number in self._damaged:
            mark = f"00000000-0000-4000-8000-{number:012d}".encode()
            self._data[self._data.index(mark)] ^= 0xFF
            self._evidence.append(bytes(self._data[self._data.index(mark[1:]) - 1 :][: len(mark)]))
        disk.remove(self._journal)
        with disk.create(self._journal) as file:
            file.write(bytes(self._data))
            file.sync()
        disk.sync_directory(self._journal.parent)
        self._disk = disk

    def run(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs)

    def check(self, fs: FileSystem, record: Promises) -> None:
        state = check_catalog(fs)
        if fs.exists(self._journal):
            assert fs.read(self._journal) == bytes(self._data)
            return
        assert bool(state.files) == bool(record.acknowledged), "the group is gone and not live"
        check_events(fs, record)
        quarantine = repository(fs).quarantine
        pieces = [quarantine.raw(entry.key) for entry in quarantine.entries()]
        assert all(any(piece in raw for raw in pieces) for piece in self._evidence), "evidence is lost"

    def use(self, fs: FileSystem, record: Promises) -> None:
        run_pass(fs)
        assert not workspace(fs).groups(), "journals are left"
        assert not workspace(fs).staged(), "a unit is left"
        super().use(fs, record)
        run_pass(fs)
