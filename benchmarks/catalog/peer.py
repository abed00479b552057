"""Measurements that all peers share; run in the peers' own environment too, so nothing of custody is imported.

A commit lists one Parquet file that exists already: what is measured is the catalog, not the writing of data.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any


def timed(work: Callable[[], object], times: int) -> dict[str, float]:
    """Return how long single calls take: p50, p95 and worst in ms, and calls a second."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    taken.sort()
    return {
        "per_second": round(1000 * len(taken) / sum(taken), 1),
        "p50_ms": round(statistics.median(taken), 3),
        "p95_ms": round(taken[int(len(taken) * 0.95)], 3),
        "worst_ms": round(taken[-1], 3),
    }


def best_ms(work: Callable[[], object], times: int = 5) -> float:
    """Return the time of the quickest of some calls, in ms."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        taken.append((time.perf_counter() - start) * 1000)
    return round(min(taken), 2)


def bytes_below(folder: Path, *, without: str = ".parquet") -> tuple[int, int]:
    """Return how many files of metadata lie in a folder, and their bytes."""
    sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file() and path.suffix != without]
    return len(sizes), sum(sizes)


def peak_rss_mib() -> float:
    """Return the most memory that this program had, in MiB; getrusage would count the process that started it too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return round(next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024, 1)


def raw_sync(folder: Path, times: int = 200) -> dict[str, float]:
    """Measure what the disk itself needs for a new synced file of 1 KiB."""
    folder.mkdir(parents=True, exist_ok=True)
    number = iter(range(times))

    def work() -> None:
        path = folder / f"raw-{next(number)}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.write(descriptor, b"x" * 1024)
        os.fdatasync(descriptor)
        os.close(descriptor)

    return timed(work, times)


def answer(document: dict[str, Any]) -> None:
    """Give the result to the process that started this one."""
    sys.stdout.write(json.dumps(document) + "\n")
