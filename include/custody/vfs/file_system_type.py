"""Of which type a file system is, by statfs(2): what a system promises of times and syncs differs from type to type."""

from __future__ import annotations

import ctypes
import os
import sys
from functools import lru_cache
from pathlib import Path

# `f_type` of `struct statfs`.
EXT, XFS, BTRFS, TMPFS = 0xEF53, 0x58465342, 0x9123683E, 0x01021994
KEEP_TIMES = frozenset({EXT, XFS, BTRFS, TMPFS})
"""Those whose files get their times from the clock of this machine, whoever changes them."""
# Larger than any system's structure, whose first word is the type.
_WORDS = 64


@lru_cache(maxsize=1)
def libc() -> ctypes.CDLL:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)


def type_of_open(descriptor: int) -> int | None:
    """Return the type of the file system of an open file; None where the system does not tell."""
    status = (ctypes.c_long * _WORDS)()
    return status[0] if sys.platform == "linux" and libc().fstatfs(descriptor, status) == 0 else None


def type_of(path: Path) -> int | None:
    """Return the type of the file system on which a name is, or would be; None where the system does not tell."""
    status = (ctypes.c_long * _WORDS)()
    for place in (path, *path.parents) if sys.platform == "linux" else ():
        if libc().statfs(os.fsencode(place), status) == 0:
            return status[0]
    return None


def keeps_times(path: Path) -> bool:
    """Whether the file system of a path, or of the folder where it would be, keeps times of this machine's clock."""
    return type_of(path) in KEEP_TIMES
