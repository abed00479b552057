"""Marks of files and folders: whether anything changed since an earlier look, told by their times alone.

A folder whose time of change is the one of an earlier look has the same names in it, and a file the same bytes, if
every later change must give another time. The clock of file systems ticks a hundred times a second at the least, so a
folder that was changed a moment ago may be changed again within the same tick: its mark is not *settled*, and nobody
may rely on it. One that was changed some ticks before the clock was read is settled: whatever changes it later gets a
later time.

That holds where files get their times from the clock of this machine, by a file system that is known to keep them
(`custody.vfs.file_system_type`). A server's clock, or a mount by FUSE, promises nothing. And it holds while nobody sets
the clock back: marks also have the distance of the wall clock from the one that only goes forward, and marks of two
distances say nothing about each other.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import NamedTuple

MARGIN_NS = 40_000_000
"""How much older than the clock a change must be: the longest tick, 10 ms, and what the clock may be set unseen."""
_STEP_NS = 20_000_000
"""The clock was set when its distance from the other one changed by more; the two are not read at one moment."""
_SECOND_NS = 1_000_000_000
# Some disks of ext4 keep whole seconds. What changes within one has the same time.
_COARSE_MARGIN_NS = 2 * _SECOND_NS

Mark = tuple[int, int, int, int, int]
"""When a file or a folder was changed by its inode and by its content, both in ns; its number, disk and size."""


class Marks(NamedTuple):
    """The marks of some files and folders; None for one that is not there."""

    files: tuple[Mark | None, ...]
    clock_ns: int
    """The wall clock, read before any of them."""
    distance_ns: int
    """Of the wall clock from the one that only goes forward."""

    def is_unchanged_since(self, former: Marks) -> bool:
        """Whether nothing was changed since former marks, which were settled."""
        return self.files == former.files and abs(self.distance_ns - former.distance_ns) <= _STEP_NS

    @property
    def are_settled(self) -> bool:
        """Whether every later change shows in a mark; what is looked at after they were taken stays as it is till then.

        What is not there has no time, and needs none: to be there is another mark.
        """
        for mark in self.files:
            if mark is not None:
                changed_ns = max(mark[0], mark[1])
                margin = _COARSE_MARGIN_NS if changed_ns % _SECOND_NS == 0 else MARGIN_NS
                if changed_ns + margin >= self.clock_ns:
                    return False
        return True


def marks_of(paths: Sequence[str]) -> Marks:
    """Return the marks of files and folders as they are now.

    Raises:
        OSError: one may not be looked at.
    """
    # Before the times: whoever changes something from here on reads this clock, or a later one.
    clock_ns = time.time_ns()
    distance_ns = clock_ns - time.monotonic_ns()
    marks: list[Mark | None] = []
    for path in paths:
        try:
            # By the text: to make a path takes longer than to ask the system.
            status = os.stat(path)  # noqa: PTH116
        except (FileNotFoundError, NotADirectoryError):
            marks.append(None)
        else:
            marks.append((status.st_ctime_ns, status.st_mtime_ns, status.st_ino, status.st_dev, status.st_size))
    return Marks(tuple(marks), clock_ns, distance_ns)
