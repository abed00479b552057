"""Back-pressure: a writer is held back while too many of its sealed journals wait for the rollover."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from custody.errors import BackpressureError
from custody.journal.groups import groups
from custody.vfs import FileSystem

_POLL_SECONDS = 0.25


class Pressure:
    """Knows how many bytes of a writer's sealed journals wait, as of the last count.

    Args:
        fs: where the containers lie.
        writer: the writer's name.
        bytes_max: bytes that may wait.
        patience_seconds: how long an append is held back before it fails.
        working: gives the containers that work.
        failed: is told of a container that does not.
    """

    def __init__(
        self,
        fs: FileSystem,
        writer: str,
        bytes_max: int,
        patience_seconds: float,
        working: Callable[[], Sequence[Path]],
        failed: Callable[[Path, OSError], None],
    ) -> None:
        self._fs = fs
        self._writer = writer
        self._bytes_max = bytes_max
        self._patience_seconds = patience_seconds
        self._working = working
        self._failed = failed
        self._bytes = 0

    def count(self) -> None:
        """Look what waits now."""
        total = 0
        for root in self._working():
            try:
                found = groups(self._fs, [root], self._writer)
            except OSError as error:
                self._failed(root, error)
            else:
                total += sum(self._size(path) for group in found for path in group.sealed)
        self._bytes = total

    def hold_back(self, check: Callable[[], None]) -> None:
        """Wait while too much waits for the rollover; `check` may raise what ends the waiting.

        Raises:
            BackpressureError: the patience is used up; the message says what to do.
        """
        deadline = time.monotonic() + self._patience_seconds
        while self._bytes > self._bytes_max:
            check()
            self.count()  # the rollover may have run since
            if self._bytes <= self._bytes_max:
                return
            if time.monotonic() >= deadline:
                raise BackpressureError(
                    f"writer {self._writer!r}: {self._bytes} bytes of journals wait to be rolled over, "
                    f"the limit is {self._bytes_max} (journal.waiting_bytes_max). Run the rollover: custody run all"
                )
            time.sleep(_POLL_SECONDS)

    def _size(self, path: Path) -> int:
        try:
            return self._fs.size(path)
        except OSError:
            return 0  # swept in this moment
