"""How much a quarantine may hold: bad input that somebody sends for ever fills no disk, and none is lost silently."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from custody.errors import BackpressureError, StorageError
from custody.vfs import FileSystem

_LOOK_PART = 64
"""After this part of all room was given away it is looked at again: other processes add, too."""
_LOOK_SECONDS = 1.0
"""Nobody who sends bad input makes a full folder be looked at more often."""


class Room:
    """The bytes of a folder, with a bound that each of several processes may pass by a sixty-fourth.

    Args:
        fs: holds the folder.
        folder: whose files count.
        bytes_max: of all of them.
        now: tells seconds.
    """

    def __init__(self, fs: FileSystem, folder: Path, bytes_max: int, now: Callable[[], float] = time.monotonic) -> None:
        self._fs = fs
        self._folder = folder
        self._bytes_max = bytes_max
        self._now = now
        self._there: int | None = None
        self._given = 0
        self._looked = 0.0

    def take(self, size: int) -> None:
        """Count a piece in that is about to be kept.

        Raises:
            BackpressureError: it does not fit; nothing was counted.
        """
        if self._there is None or self._given * _LOOK_PART > self._bytes_max:
            self._look()
        if self._used + size > self._bytes_max and self._now() - self._looked >= _LOOK_SECONDS:
            self._look()  # somebody may have removed something
        if self._used + size > self._bytes_max:
            raise BackpressureError(
                f"{self._folder}: expected room for {size} bytes, got {self._used} of {self._bytes_max} in use "
                "(repository.quarantine_bytes_max). Look at what is there with custody quarantine list, resubmit or "
                "remove it, or raise the limit."
            )
        self._given += size

    @property
    def _used(self) -> int:
        return (self._there or 0) + self._given

    def _look(self) -> None:
        there = sum(self._size(name) for name in self._fs.list(self._folder))
        self._there, self._given, self._looked = there, 0, self._now()

    def _size(self, name: str) -> int:
        try:
            return self._fs.size(self._folder / name)
        except StorageError:
            return 0  # somebody has just removed it
