"""Row groups that were decoded lately: what many questions touch is decoded once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

import pyarrow as pa

CACHE_BYTES = 64 << 20


class GroupCache:
    """Keeps the row groups that were used last, up to a number of bytes; for any number of threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Hashable, tuple[pa.Table, int]] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the row group of a key; it is read when it is not here."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held[0]
        group = read()
        size = group.nbytes
        if size > self._bytes_max:
            return group
        with self._lock:
            if key not in self._held:
                self._held[key] = group, size
                self.bytes += size
            while self.bytes > self._bytes_max:
                _, (_, size) = self._held.popitem(last=False)
                self.bytes -= size
        return group
