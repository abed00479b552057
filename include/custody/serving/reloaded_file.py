"""A file that people change while the server runs: it is looked at once a second at most, and read when it changed.

While the new file is unfit, what was read last goes on to count, and the log says why.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from custody.errors import ConfigurationError

LOOK_SECONDS = 1.0
"""How often the file is looked at."""
_LOGGER = logging.getLogger(__name__)
T = TypeVar("T")


class ReloadedFile(Generic[T]):
    """The content of a file as `read` makes it.

    Args:
        path: of the file.
        read: returns its content; raises ConfigurationError where it is unfit.
        what: of the content, names it in the log.
        first: the content, where it was read with other rules than those of a later reading.
        now: tells seconds.

    Raises:
        ConfigurationError: as `read`.
    """

    def __init__(
        self,
        path: Path,
        read: Callable[[Path], T],
        what: str,
        first: Callable[[Path], T] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path, self._read, self._what, self._now = path, read, what, now
        # The mark before the content: what changes in between is read again.
        self._mark = _mark(path)
        self._content = (first or read)(path)
        self._looked = now()

    def content(self) -> T:
        """Return the content of the last fit file."""
        if self._now() - self._looked < LOOK_SECONDS:
            return self._content
        self._looked = self._now()
        mark = _mark(self._path)
        if mark != self._mark:
            # Kept also where the file is unfit: it is read again when it changes again, not at each request.
            self._mark = mark
            try:
                self._content = self._read(self._path)
            except ConfigurationError as error:
                _LOGGER.error("the %s that were read last go on to count: %s", self._what, error)
        return self._content


def _mark(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file does; None where there is no file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino
