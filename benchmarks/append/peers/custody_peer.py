"""custody: the journal writer's public append, on one container."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from importlib.metadata import version
from pathlib import Path
from threading import Lock

import numpy as np
import pyarrow as pa

from benchmarks.append import load
from benchmarks.append.grid import Cell, Reading
from benchmarks.append.peers.base import About
from benchmarks.append.workload import Workload
from custody.clock import SystemClock
from custody.journal import JournalFile, JournalOptions, JournalWriter, groups
from custody.model import Event, to_batch
from custody.vfs import PosixFileSystem

SERIALIZED = False
"""Whether appends take turns here: True as long as JournalWriter.append may be called by one thread at a time."""

_WRITER = "bench"


def open_writer(folder: Path, next_event_id: int = 0) -> JournalWriter:
    """Open the writer that is measured, with what production uses: real files, a real clock, sync always."""
    folder.mkdir(exist_ok=True)
    # Nothing is rolled over here, however much waits.
    options = JournalOptions(waiting_bytes_max=1 << 50)
    writer = JournalWriter(PosixFileSystem(), [folder], _WRITER, _WRITER, SystemClock(), options)
    writer.begin(next_event_id)
    return writer


def turns() -> AbstractContextManager[object]:
    """What a thread holds while it appends."""
    return Lock() if SERIALIZED else nullcontext()


def count_stored(folder: Path) -> int:
    """Read all journals of a closed writer and count its events.

    Raises:
        AssertionError: an id is missing or there twice.
    """
    fs = PosixFileSystem()
    found = [
        JournalFile.read(fs, path).table().column("event_id").to_numpy().copy()  # a view would keep the file in memory
        for group in groups(fs, [folder], _WRITER)
        for path in (*group.sealed, *group.open)
    ]
    ids = np.sort(np.concatenate(found)) if found else np.zeros(0, np.int64)
    if not np.array_equal(ids, np.arange(len(ids))):
        raise AssertionError(f"{folder}: expected the event ids 0 to {len(ids) - 1}, each once")
    return len(ids)


class CustodyPeer:
    """Appends sample events with JournalWriter."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        how = "one lock around append" if SERIALIZED else "append called by all threads"
        self.about = About(
            key="custody",
            label="custody",
            durable=True,
            description=f"JournalWriter.append on one container, sync always, {how}; events encoded inside the clock",
            version=version("custody"),
        )

    def measure(self, cell: Cell, seconds: float, folder: Path, *, verify: bool) -> Reading:
        """Append from all threads to one writer."""
        turn = turns()
        with open_writer(folder) as writer:

            def append(events: list[Event]) -> None:
                with turn:
                    writer.append(events)

            batches = self._workload.batches(cell.batch_events)
            reading = load.run([append] * cell.threads, batches, cell.batch_events, seconds)
        return reading.with_stored(count_stored(folder)) if verify else reading

    def close(self) -> None:
        """Do nothing."""


class ColumnsPeer:
    """Appends the same events as Arrow record batches, as a producer that has columns does."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._batches: dict[int, list[pa.RecordBatch]] = {}
        self.about = About(
            key="custody-columns",
            label="custody, columns",
            durable=True,
            description="JournalWriter.append_columns on one container, sync always; record batches are made outside "
            "the clock, checked and encoded inside",
            version=version("custody"),
        )

    def measure(self, cell: Cell, seconds: float, folder: Path, *, verify: bool) -> Reading:
        """Append from all threads to one writer."""
        if cell.batch_events not in self._batches:
            tables = [to_batch(events, 0) for events in self._workload.batches(cell.batch_events)]
            self._batches[cell.batch_events] = [batch.drop_columns(["event_id"]) for batch in tables]
        with open_writer(folder) as writer:
            appends = [writer.append_columns] * cell.threads
            reading = load.run(appends, self._batches[cell.batch_events], cell.batch_events, seconds)
        return reading.with_stored(count_stored(folder)) if verify else reading

    def close(self) -> None:
        """Do nothing."""
