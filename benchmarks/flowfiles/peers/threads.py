"""The clock and the threads of the peers in Python."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def seconds(threads: int, work: Callable[[int], object]) -> float:
    """Run the work of so many threads, each with its number; return the time from the first start to the last end."""
    with ThreadPoolExecutor(threads) as pool:
        begun = time.perf_counter()
        list(pool.map(work, range(threads)))
        return time.perf_counter() - begun
