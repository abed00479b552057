"""Threads that append, each the next batch as soon as the last one is acknowledged, until time is up."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import TypeVar

from benchmarks.append.grid import Reading

Batch = TypeVar("Batch")


@dataclass(frozen=True, slots=True)
class _Share:
    """What one thread did."""

    begin: float
    end: float
    waits: array[float]


def run(
    appends: Sequence[Callable[[Batch], object]], batches: Sequence[Batch], batch_events: int, seconds: float
) -> Reading:
    """Run one thread for each of `appends`; it returns when its batch is acknowledged.

    A batch that was begun in time counts, and so does the time it took: the rate is what all threads got
    acknowledged, over the time from the first start to the last acknowledgement.
    """
    threads = len(appends)
    ready = Barrier(threads)

    def work(thread: int) -> _Share:
        append, number = appends[thread], thread * len(batches) // threads
        waits: array[float] = array("d")
        ready.wait()
        begin = now = time.perf_counter()
        while now - begin < seconds:
            append(batches[number % len(batches)])
            number += 1
            acknowledged = time.perf_counter()
            waits.append(acknowledged - now)
            now = acknowledged
        return _Share(begin, now, waits)

    with ThreadPoolExecutor(threads) as pool:
        shares = list(pool.map(work, range(threads)))
    waits = sorted(wait for share in shares for wait in share.waits)
    return Reading(
        events=len(waits) * batch_events,
        seconds=max(share.end for share in shares) - min(share.begin for share in shares),
        acknowledgements=len(waits),
        p50_ms=waits[int((len(waits) - 1) * 0.5)] * 1e3,
        p99_ms=waits[int((len(waits) - 1) * 0.99)] * 1e3,
    )
