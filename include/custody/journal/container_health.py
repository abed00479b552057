"""Containers that were taken out, and when each is tried again.

A disk that is full or read-only becomes well when somebody frees room or mounts it anew: it is tried again, after a
second at first and then less and less often, at last once a minute. Any other failure says that what the disk holds is
unknown: such a container stays out until the repository is opened again.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from custody.vfs import FileSystem

HEALING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
"""What the system says of a disk that is as it was, only full or read-only."""
ROOM_BYTES_MIN = 1 << 20
"""A disk with less room than this is full."""
RETRY_SECONDS = 1.0
_PAUSE_SECONDS_MAX = 60.0


@dataclass
class _Patient:
    error: OSError
    can_heal: bool
    pause_seconds: float
    next_try: float


class Infirmary:
    """Knows the containers that are out; times are those of a monotonic clock. The caller holds the writer's lock.

    Args:
        fs: where the containers lie.
        roots: all containers of the writer.
        pause_seconds: the first pause; each failure soon after a recovery doubles it.
    """

    def __init__(self, fs: FileSystem, roots: Sequence[Path], pause_seconds: float = RETRY_SECONDS) -> None:
        self._fs = fs
        self._roots = tuple(roots)
        self._first_pause = pause_seconds
        self._patients: dict[Path, _Patient] = {}
        self._last: dict[Path, tuple[float, float]] = {}
        """By container that was out before: when it came back, and after which pause."""
        self.reasons: dict[Path, str] = {}
        """By container that is out: why."""

    @property
    def working(self) -> tuple[Path, ...]:
        """The containers that are not out."""
        return tuple(root for root in self._roots if root not in self._patients)

    @property
    def can_heal(self) -> bool:
        """Whether a container that is out is tried again."""
        return any(patient.can_heal for patient in self._patients.values())

    @property
    def error(self) -> OSError | None:
        """What a container said that will be tried again, None when there is none."""
        return next((patient.error for patient in self._patients.values() if patient.can_heal), None)

    def take_out(self, root: Path, error: OSError) -> bool:
        """Use a container no more; return whether it was in use. What cannot heal once never does."""
        can_heal = error.errno in HEALING
        known = self._patients.get(root)
        if known is not None:
            known.can_heal = known.can_heal and can_heal
            return False
        now = time.monotonic()
        returned, pause = self._last.get(root, (0.0, 0.0))
        is_relapse = pause > 0 and now - returned < _PAUSE_SECONDS_MAX
        pause = min(2 * pause, _PAUSE_SECONDS_MAX) if is_relapse else self._first_pause
        self._patients[root] = _Patient(error, can_heal, pause, now + pause)
        self.reasons[root] = str(error)
        return True

    def due(self) -> list[Path]:
        """Return the containers to try now."""
        now = time.monotonic()
        return [root for root, patient in self._patients.items() if patient.can_heal and patient.next_try <= now]

    def has_room(self, root: Path) -> bool:
        """Whether a container's disk says that it can be written; one that says nothing has to be tried."""
        space = self._fs.space(root)
        return space is None or not (space.is_read_only or space.free_bytes < ROOM_BYTES_MIN)

    def postpone(self, root: Path) -> None:
        """Try a container later, after twice the pause."""
        patient = self._patients[root]
        patient.pause_seconds = min(2 * patient.pause_seconds, _PAUSE_SECONDS_MAX)
        patient.next_try = time.monotonic() + patient.pause_seconds

    def bring_back(self, root: Path) -> None:
        """Use a container again."""
        patient = self._patients.pop(root)
        del self.reasons[root]
        self._last[root] = time.monotonic(), patient.pause_seconds
