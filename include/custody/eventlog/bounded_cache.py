"""A cache of bounded size that threads may share; the least recently used values leave first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator
from threading import Lock
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedCache(Generic[K, V]):
    """A cache of values whose costs (bytes, or 1 each) add up to at most `cost_max`; a larger value is not kept.

    A library's cache takes ten times as long for each value that is put in: 1.1 to 1.5 µs, a tenth of reading an event.
    """

    def __init__(self, cost_max: int) -> None:
        self.cost_max = cost_max
        # Costs are told, not measured: what a value takes is not always what it says of its own size.
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._cost = 0
        # Also for reads: each of them changes the order of use.
        self._lock = Lock()

    @property
    def cost(self) -> int:
        """The costs of all values together."""
        return self._cost

    def get(self, key: K) -> V | None:
        """Return the value of a key, None when there is none."""
        return self.get_many((key,))[0]

    def get_many(self, keys: Iterable[K]) -> list[V | None]:
        """Return the value of each key, None where there is none."""
        values: list[V | None] = []
        with self._lock:
            get, use = self._entries.get, self._entries.move_to_end
            for key in keys:
                entry = get(key)
                if entry is None:
                    values.append(None)
                else:
                    use(key)
                    values.append(entry[0])
        return values

    def put(self, key: K, value: V, cost: int) -> None:
        """Keep a value in place of the key's former one."""
        with self._lock:
            self._remove(key)
            if cost <= self.cost_max:
                self._entries[key] = value, cost
                self._cost += cost
                self._shrink()

    def put_many(self, values: Iterable[tuple[K, V]], cost: int) -> None:
        """Keep values of one cost each; a key that has a value keeps it."""
        if cost > self.cost_max:
            return
        with self._lock:
            entries = self._entries
            before = len(entries)
            for key, value in values:
                if key not in entries:
                    entries[key] = value, cost
            self._cost += (len(entries) - before) * cost
            self._shrink()

    def drop(self, key: K) -> None:
        """Forget a key; one that is not there is fine."""
        with self._lock:
            self._remove(key)

    def __iter__(self) -> Iterator[K]:
        """Yield the keys of this moment, in no order."""
        with self._lock:
            return iter(list(self._entries))

    def __len__(self) -> int:
        return len(self._entries)

    def _remove(self, key: K) -> None:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._cost -= entry[1]

    def _shrink(self) -> None:
        while self._cost > self.cost_max:
            self._cost -= self._entries.popitem(last=False)[1][1]
