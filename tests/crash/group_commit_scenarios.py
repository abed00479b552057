"""Scenario of group commit: while one append syncs, others queue, and share the next write and sync.

The order is made by hand, so that every run does the same operations: the first append's sync starts the others, and
goes on when they wait.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from threading import Lock, Thread

from custody.clock import ManualClock
from custody.errors import CustodyError
from custody.journal import JournalOptions, JournalWriter
from custody.vfs import FileSystem, WritableFile
from custody.vfs.memory import InjectedCrash
from custody.vfs.wrapping import WrappingFile, WrappingFileSystem
from tests.crash.memory_repository import SETTINGS, WRITER, Promises, workspace
from tests.crash.rollover_scenarios import StoreScenario
from tests.support import event, numbered

PATIENCE_SECONDS = 10.0


class _Gate(WrappingFileSystem):
    """A disk whose next sync of a journal first lets something happen."""

    def __init__(self, inner: FileSystem) -> None:
        super().__init__(inner)
        self.meanwhile: Callable[[], None] | None = None

    def create(self, path: Path) -> WritableFile:
        return _GatedFile(self.inner.create(path), path, self)


class _GatedFile(WrappingFile):
    def __init__(self, inner: WritableFile, path: Path, gate: _Gate) -> None:
        super().__init__(inner, path)
        self._gate = gate
        self._is_headed = False

    def sync(self) -> None:
        if self._is_headed and ".journal" in self.path.name and self._gate.meanwhile is not None:
            meanwhile, self._gate.meanwhile = self._gate.meanwhile, None
            meanwhile()
        self.inner.sync()
        self._is_headed = True


class Crowding(StoreScenario):
    """One append, then three that share a sync, then one more; all in one journal."""

    def run(self, fs: FileSystem, record: Promises) -> None:
        gate = _Gate(fs)
        options = JournalOptions(journals=1)
        containers = SETTINGS.containers[:1]
        writer = JournalWriter(gate, containers, WRITER, SETTINGS.repository.database, ManualClock(), options)
        with writer:
            writer.begin(workspace(fs).catalog.load().next_event_id)
            crowd = _Crowd(writer, record)
            gate.meanwhile = lambda: crowd.queue([5, 1, 1])
            try:
                crowd.append(1)
            finally:
                crowd.join()
            crowd.end_with_process()
            crowd.append(1)


class _Crowd:
    def __init__(self, writer: JournalWriter, record: Promises) -> None:
        self._writer = writer
        self._record = record
        self._guard = Lock()
        self._threads: list[Thread] = []
        self._crash: InjectedCrash | None = None

    def append(self, count: int) -> None:
        """Append and write down the acknowledgement; which of those that share a sync returns first is open."""
        with self._guard:
            events = [event(number) for number in range(self._record.tried, self._record.tried + count)]
            self._record.tried += count
        ids = self._writer.append(events)
        with self._guard:
            assert not self._record.acknowledged.keys() & set(ids), "an id was given out twice"
            self._record.acknowledged.update({item.event_id: item for item in numbered(events, ids.start)})

    def queue(self, counts: list[int]) -> None:
        """Let appends queue behind the one that runs, one after the other."""
        assert self._writer._group is not None
        [file] = self._writer._group._files
        for waiting, count in enumerate(counts, 1):
            self._threads.append(Thread(target=self._try, args=(count,)))
            self._threads[-1].start()
            deadline = time.monotonic() + PATIENCE_SECONDS
            while len(file._queue._queue) < waiting:
                assert time.monotonic() < deadline, "an append does not queue"
                time.sleep(0)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _try(self, count: int) -> None:
        try:
            self.append(count)
        except InjectedCrash as crash:
            self._crash = crash
        except CustodyError:
            return  # it was not acknowledged

    def end_with_process(self) -> None:
        """A crash in one thread is the end of all."""
        if self._crash is not None:
            raise self._crash
