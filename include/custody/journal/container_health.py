"""The health of a writer's containers: those out of use, and when each is tried again.

A disk that is full or read-only works again once somebody frees room or mounts it anew: it is retried after a second,
then less and less often, at last once a minute. After any other failure nobody knows what the disk holds: such a
container stays out until the repository is opened again.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from custody.vfs import FileSystem

RETRYABLE_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""Errors of a disk that is as it was, only full or read-only."""
ROOM_BYTES_MIN = 1 << 20
"""A disk with less room than this is full."""
RETRY_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 60.0


@dataclass
class FailedContainer:
    """A container that is out of use, and when it is tried again."""

    error: OSError
    can_recover: bool
    pause_seconds: float
    next_try: float


class ContainerHealth:
    """The containers of a writer that are out of use. The caller holds the writer's lock; times are monotonic.

    Args:
        fs: where the containers lie.
        roots: all containers of the writer.
        pause_seconds: the first pause before a retry; a failure soon after a return doubles it.
    """

    def __init__(self, fs: FileSystem, roots: Sequence[Path], pause_seconds: float = RETRY_SECONDS) -> None:
        self._fs = fs
        self.roots = tuple(roots)
        self._first_pause = pause_seconds
        self._failed: dict[Path, FailedContainer] = {}
        self._last_return: dict[Path, tuple[float, float]] = {}
        """When a container that was out came back, and after which pause."""
        self.reasons: dict[Path, str] = {}
        """Why a container is out."""

    @property
    def working(self) -> tuple[Path, ...]:
        """The containers that are not out."""
        return tuple(root for root in self.roots if root not in self._failed)

    @property
    def can_recover(self) -> bool:
        """Whether a container that is out is tried again."""
        return any(container.can_recover for container in self._failed.values())

    @property
    def error(self) -> OSError | None:
        """The error of a container that will be tried again, None when there is none."""
        return next((container.error for container in self._failed.values() if container.can_recover), None)

    def take_out(self, root: Path, error: OSError) -> bool:
        """Use a container no more; return whether it was in use. One that failed for good stays out."""
        can_recover = error.errno in RETRYABLE_ERRNOS
        failed = self._failed.get(root)
        if failed is not None:
            # A later error can be worse than the first; a milder one proves nothing.
            failed.can_recover = failed.can_recover and can_recover
            return False
        now = time.monotonic()
        returned, pause = self._last_return.get(root, (0.0, 0.0))
        # One that fails again soon after its return continues with longer pauses: a disk that is nearly full would come
        # and go every second.
        is_relapse = pause > 0 and now - returned < _PAUSE_SECONDS_MAX
        pause = min(2 * pause, _PAUSE_SECONDS_MAX) if is_relapse else self._first_pause
        self._failed[root] = FailedContainer(error, can_recover, pause, now + pause)
        self.reasons[root] = str(error)
        return True

    def due(self) -> list[Path]:
        """Return the containers to try now."""
        now = time.monotonic()
        return [root for root, container in self._failed.items() if container.can_recover and container.next_try <= now]

    def has_room(self, root: Path) -> bool:
        """Whether a container's disk says that it can be written; one that says nothing has to be tried."""
        space = self._fs.space(root)
        return space is None or not (space.is_read_only or space.free_bytes < ROOM_BYTES_MIN)

    def postpone(self, root: Path) -> None:
        """Try a container later, after twice the pause."""
        container = self._failed[root]
        container.pause_seconds = min(2 * container.pause_seconds, _PAUSE_SECONDS_MAX)
        container.next_try = time.monotonic() + container.pause_seconds

    def bring_back(self, root: Path) -> None:
        """Use a container again."""
        container = self._failed.pop(root)
        del self.reasons[root]
        self._last_return[root] = time.monotonic(), container.pause_seconds
