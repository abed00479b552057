"""A cache of bounded size that threads may share; the least recently used values leave first."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from threading import Lock
from typing import Generic, TypeVar

from cachetools import LRUCache

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of values whose costs (bytes, or 1 each) add up to at most `cost_max`; a larger value is not kept."""

    def __init__(self, cost_max: int) -> None:
        self.cost_max = cost_max
        # Costs are told, not measured: what a value takes is not always what it says of its own size.
        self._entries: LRUCache[K, tuple[V, int]] = LRUCache(cost_max, getsizeof=lambda entry: entry[1])
        # Also for reads: each of them changes the order of use.
        self._lock = Lock()

    @property
    def cost(self) -> int:
        """The costs of all values together."""
        return int(self._entries.currsize)

    def get(self, key: K) -> V | None:
        """Return the value of a key, None when there is none."""
        with self._lock:
            entry = self._entries.get(key)
        return None if entry is None else entry[0]

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the value of each key, None where there is none."""
        with self._lock:
            get = self._entries.get
            return [None if (entry := get(key)) is None else entry[0] for key in keys]

    def put(self, key: K, value: V, cost: int) -> None:
        """Keep a value in place of the key's former one."""
        with self._lock:
            self._entries.pop(key, None)
            if cost <= self.cost_max:
                self._entries[key] = value, cost

    def put_many(self, values: Iterable[tuple[K, V]], cost: int) -> None:
        """Keep values of one cost each; a key that has a value keeps it."""
        if cost > self.cost_max:
            return
        with self._lock:
            entries = self._entries
            for key, value in values:
                if key not in entries:
                    entries[key] = value, cost

    def drop(self, key: K) -> None:
        """Forget a key; one that is not there is fine."""
        with self._lock:
            self._entries.pop(key, None)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys of this moment, in no order."""
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)
