"""A file of an object store that is read by ranges: what was fetched lies on the local disk, the rest is fetched.

The local file has the length of the object, with holes where nothing was fetched yet. It says nothing about itself:
whoever reads it has a checksum of each piece. A piece that does not fit its checksum was not fetched, was cut by a
crash, or is damaged; it is fetched, and looked at again. So there is no list of what is there that a crash could make
wrong, and all processes of a machine share what any of them fetched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

from custody.store.base import ObjectStore
from custody.store.traffic import carried
from custody.vfs import FileSystem, note_use

Span = tuple[int, int]
"""A range of bytes: its start and its end, which does not belong to it."""

GAP_BYTES = 64 << 10
"""Ranges so near to each other are one request: at a hundred megabits a second the gap takes less than a round trip."""
_PART_BYTES = 8 << 20
"""One request brings at most so much, so that large ranges come by several requests at a time."""
_PARALLEL = 16
_AGAIN_SECONDS = 60.0
"""What is damaged in the store costs a request a minute, not one a look."""


class RangedFile:
    """One object; for any number of threads.

    Args:
        fs: the file system of the local file.
        path: the local file.
        store: where the object lies.
        key: its key.
        size: its length in bytes, which the caller knows.
        on_fetched: called with the bytes that were fetched.
    """

    def __init__(
        self,
        fs: FileSystem,
        path: Path,
        store: ObjectStore,
        key: str,
        size: int,
        on_fetched: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.path = path
        self.size = size
        self._store = store
        self._key = key
        self._on_fetched = on_fetched
        self._file = fs.partial(path, size)
        self._damaged_at: dict[Span, float] = {}
        self._lock = Lock()
        note_use(path)

    @property
    def view(self) -> memoryview:
        """All bytes; what was not fetched is unknown."""
        return self._file.view

    def locate(self) -> str:
        """Return the object's URL, for messages."""
        return self._store.locate(self._key)

    def fetch(self, spans: Iterable[Span], is_whole: Callable[[Span], bool]) -> None:
        """Fetch ranges that are not whole here, several at a time; what is damaged in the store stays as it is.

        `is_whole` looks at a range. One that was fetched and is not whole all the same is fetched once a minute.

        Raises:
            NotFoundError: the object is gone.
            StorageError: the store or the disk refuses.
        """
        wanted = self._not_lately(spans)
        if not wanted:
            return
        parts = [part for span in joined(wanted) for part in _parts(span)]
        if len(parts) == 1:
            self._fill(parts[0])
        else:
            with ThreadPoolExecutor(min(_PARALLEL, len(parts))) as threads:
                list(threads.map(carried(self._fill), parts))
        note_use(self.path)
        self._on_fetched(sum(end - start for start, end in parts))
        damaged = [span for span in wanted if not is_whole(span)]
        with self._lock:
            self._damaged_at.update(dict.fromkeys(damaged, time.monotonic()))

    def keep(self, start: int, data: bytes) -> None:
        """Put bytes at a place that came in another way."""
        self._file.fill(start, data)

    def _not_lately(self, spans: Iterable[Span]) -> list[Span]:
        now = time.monotonic()
        with self._lock:
            self._damaged_at = {span: at for span, at in self._damaged_at.items() if now - at < _AGAIN_SECONDS}
            return sorted({span for span in spans if span not in self._damaged_at and span[0] < span[1]})

    def _fill(self, span: Span) -> None:
        start, end = span
        self._file.fill(start, self._store.get_range(self._key, start, end - start)[: end - start])


def joined(spans: Sequence[Span]) -> list[Span]:
    """Return sorted ranges with those joined that overlap or lie near each other."""
    whole: list[Span] = []
    for start, end in spans:
        if whole and start - whole[-1][1] <= GAP_BYTES:
            whole[-1] = whole[-1][0], max(whole[-1][1], end)
        else:
            whole.append((start, end))
    return whole


def _parts(span: Span) -> list[Span]:
    start, end = span
    return [(place, min(place + _PART_BYTES, end)) for place in range(start, end, _PART_BYTES)]
