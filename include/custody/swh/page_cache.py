"""Pages that are decoded again and again: what many questions touch is decoded once.

A page is kept when it is needed for the second time within a while. Contents are spread over all of a table: to
keep what one question touched would only push out what others share, and take fresh memory each time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock

import pyarrow as pa

CACHE_BYTES = 64 << 20
_SEEN_MAX = 512
"""How many pages that were needed once are remembered by name."""


class PageCache:
    """Keeps the pages that were used last, up to a number of bytes; for any number of threads."""

    def __init__(self, bytes_max: int = CACHE_BYTES) -> None:
        self._bytes_max = bytes_max
        self._held: OrderedDict[Hashable, tuple[pa.Table, int]] = OrderedDict()
        self._seen: OrderedDict[Hashable, None] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0

    def get(self, key: Hashable, read: Callable[[], pa.Table]) -> pa.Table:
        """Return the page of a key; it is read when it is not here."""
        with self._lock:
            held = self._held.get(key)
            if held is not None:
                self._held.move_to_end(key)
                return held[0]
        page = read()
        with self._lock:
            if self._is_wanted_again(key) and (size := page.nbytes) <= self._bytes_max and key not in self._held:
                self._held[key] = page, size
                self.bytes += size
            while self.bytes > self._bytes_max:
                _, (_, gone) = self._held.popitem(last=False)
                self.bytes -= gone
        return page

    def _is_wanted_again(self, key: Hashable) -> bool:
        if key in self._seen:
            del self._seen[key]
            return True
        self._seen[key] = None
        if len(self._seen) > _SEEN_MAX:
            self._seen.popitem(last=False)
        return False
