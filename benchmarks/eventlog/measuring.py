"""The tasks of every system; this module imports the standard library alone, because peers run elsewhere too."""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.catalog.peer import answer, peak_rss_mib

_WARM_UP_READS = 200
_DROP = Path("/proc/sys/vm/drop_caches")


@dataclass(frozen=True)
class Task:
    """What a peer's process shall do; it is its one argument, as JSON."""

    root: str
    """A folder that all peers of a run share: custody's repository, and a folder for each other peer."""
    events: int
    base: int
    """Events of one tile of `bulk.tables`."""
    warm_reads: int
    cold_reads: int
    drop_caches: bool = False
    extra: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def given(cls) -> Task:
        """Return the task of this process."""
        return cls(**json.loads(sys.argv[1]))

    def text(self, **extra: object) -> str:
        """Return the argument; `extra` is for one peer only."""
        return json.dumps(asdict(self) | {"extra": extra})

    def folder(self, name: str) -> Path:
        """Return a folder of the run."""
        return Path(self.root) / name

    def ids(self, count: int, seed: int, events: int | None = None) -> list[int]:
        """Return event ids at random, the same ones for all peers."""
        numbers = random.Random(seed)  # noqa: S311 - repeatable, not secret
        return [numbers.randrange(events or self.events) for _ in range(count)]


def forget(paths: Iterable[Path], task: Task) -> None:
    """Have the system drop the pages of some files, or of all files when the task allows that."""
    if task.drop_caches:
        _DROP.write_text("1")
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def disk_bytes(process: int | str = "self") -> int:
    """Return what a process has read from the disk itself: none if all was in memory."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes:")))


def spread(seconds: Sequence[float], read_bytes: int) -> dict[str, float]:
    """Return what single reads took."""
    ordered = sorted(seconds)
    return {
        "reads": len(ordered),
        "p50_ms": round(ordered[(len(ordered) - 1) // 2] * 1e3, 4),
        "p99_ms": round(ordered[int((len(ordered) - 1) * 0.99)] * 1e3, 4),
        "disk_bytes_per_read": round(read_bytes / len(ordered)),
    }


def points(ask: Callable[[int], object], ids: Sequence[int], prepare: Callable[[], object] | None) -> dict[str, float]:
    """Measure single reads; `prepare` comes before each one and is not timed.

    Raises:
        AssertionError: an event that exists was not found.
    """
    taken = []
    read = 0
    for event_id in ids:
        if prepare is not None:
            prepare()
        before = disk_bytes() if prepare is not None else 0
        start = time.perf_counter()
        answer = ask(event_id)
        taken.append(time.perf_counter() - start)
        read += disk_bytes() - before if prepare is not None else 0
        assert answer is not None, f"event {event_id} was not found"
    return spread(taken, read)


def warm(ask: Callable[[int], object], task: Task, events: int | None = None) -> dict[str, float]:
    """Measure reads of a process that has read before, at random over all events."""
    for event_id in task.ids(min(_WARM_UP_READS, task.warm_reads), 11, events):
        ask(event_id)
    return points(ask, task.ids(task.warm_reads, 13, events), None)


def pace(work: Callable[[], int]) -> dict[str, float]:
    """Measure a work that returns how many events it was about."""
    start, cpu = time.perf_counter(), time.process_time()
    events = work()
    return rates(events, time.perf_counter() - start, time.process_time() - cpu)


def rates(events: int, seconds: float, cpu_seconds: float) -> dict[str, float]:
    """Return events per second of the clock and of one core's time."""
    return {
        "events": events,
        "seconds": round(seconds, 4),
        "cpu_seconds": round(cpu_seconds, 4),
        "per_second": round(events / seconds),
        "per_core_second": round(events / cpu_seconds) if cpu_seconds > 0 else 0,
    }


def bytes_of(paths: Iterable[Path]) -> int:
    """Return how large some files are together."""
    return sum(path.stat().st_size for path in paths)


def tell(document: dict[str, Any]) -> None:
    """Give the results to the process that started this one, with the most memory that this one had."""
    answer(document | {"peak_rss_mib": peak_rss_mib()})
