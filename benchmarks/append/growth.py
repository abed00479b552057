"""Cost of an event as the store grows: the same appends, from the first million to the last.

One writer, batches of 1000 from four threads, its journals sealed after every step and left there, so that names and
files pile up as they do when rollover is behind.
"""

from __future__ import annotations

import itertools
import resource
import shutil
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from benchmarks.append.peers.custody_peer import count_stored, open_writer, turns
from benchmarks.append.workload import Workload
from custody.journal import JournalWriter

THREADS = 4
BATCH_EVENTS = 1000
_HEADROOM = 1.2


class LostEventsError(AssertionError):
    """The journals hold another number of events than were acknowledged."""


class NoSpaceError(Exception):
    """The disk cannot hold the journals."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the growth."""

    events_before: int
    events: int
    seconds: float
    peak_memory_bytes: int
    disk_bytes: int

    @property
    def microseconds_per_event(self) -> float:
        """What one event cost."""
        return self.seconds / self.events * 1e6


def grow(workload: Workload, events: int, steps: int, folder: Path, progress: Callable[[str], None]) -> Iterator[Step]:
    """Append `events` in equal steps and yield the cost of each; the whole is counted at the end.

    Raises:
        NoSpaceError: the disk has too little room for them.
        LostEventsError: the journals hold another number of events.
    """
    size = events // steps // BATCH_EVENTS * BATCH_EVENTS
    if size == 0:
        raise ValueError(f"a step holds at least one batch: expected at least {steps * BATCH_EVENTS} events")
    with open_writer(folder) as writer:
        for number in range(steps):
            progress(f"step {number + 1} of {steps}, {number * size:,} events so far")
            begin = time.perf_counter()
            _append(writer, workload, size // BATCH_EVENTS)
            writer.seal()
            seconds = time.perf_counter() - begin
            used = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            if number == 0:
                _check_space(used * (steps - 1), folder)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            yield Step(number * size, size, seconds, peak, used)
    stored = count_stored(folder)
    if stored != size * steps:
        raise LostEventsError(f"expected {size * steps} acknowledged events in the journals, got {stored}")


def _append(writer: JournalWriter, workload: Workload, count: int) -> None:
    batches, numbers, turn = workload.batches(BATCH_EVENTS), itertools.count(), turns()

    def work() -> None:
        while (number := next(numbers)) < count:
            batch = batches[number % len(batches)]
            with turn:
                writer.append(batch)

    with ThreadPoolExecutor(THREADS) as pool:
        for done in [pool.submit(work) for _ in range(THREADS)]:
            done.result()


def _check_space(needed: int, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed * _HEADROOM:
        raise NoSpaceError(
            f"{folder}: expected {needed * _HEADROOM / 1e9:.1f} GB free for the other steps, got {free / 1e9:.1f} GB. "
            "Choose fewer events (--growth-events) or another --scratch."
        )


def table(steps: list[Step], caption: str) -> Table:
    """Return the steps as a table; the last column compares with the first step."""
    shown = Table(title="custody: cost per event as the store grows", caption=caption)
    for name in ("events before", "events/s", "µs/event", "peak memory", "on disk", "÷ first"):
        shown.add_column(name, justify="right")
    for step in steps:
        shown.add_row(
            f"{step.events_before:,}",
            f"{step.events / step.seconds:,.0f}",
            f"{step.microseconds_per_event:.2f}",
            f"{step.peak_memory_bytes / 1e6:,.0f} MB",
            f"{step.disk_bytes / 1e9:.2f} GB",
            f"{step.microseconds_per_event / steps[0].microseconds_per_event:.2f}",
        )
    return shown
