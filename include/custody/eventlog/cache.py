"""A cache with a bound: what was not used for the longest time leaves first. Safe between threads."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """Keeps values whose costs (bytes, or 1 each) add up to at most `cost_max`; a value that costs more is not kept."""

    def __init__(self, cost_max: int) -> None:
        self.cost_max = cost_max
        self.cost = 0
        self._lock = Lock()
        self._kept: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """Return what is kept under a key, None when nothing is."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: K, value: V, cost: int) -> None:
        """Keep a value instead of what is kept under its key."""
        with self._lock:
            self._drop(key)
            if cost > self.cost_max:
                return
            self._kept[key] = value, cost
            self.cost += cost
            while self.cost > self.cost_max:
                self._drop(next(iter(self._kept)))

    def drop(self, key: K) -> None:
        """Forget a key; one that is not kept is fine."""
        with self._lock:
            self._drop(key)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys that are kept now, the least lately used first."""
        with self._lock:
            return iter(list(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def _drop(self, key: K) -> None:
        _, cost = self._kept.pop(key, (None, 0))
        self.cost -= cost
