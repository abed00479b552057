"""One sync for a whole disk: the system's `syncfs`, where it keeps what it promises.

Thousands of small new files need two syncs each by themselves, and the disk waits at each one. `syncfs` writes all of
them in one go. Not every file system that accepts the call does it: what FUSE mounts may answer without doing anything,
and before Linux 5.8 a failed write was not reported. So it is called on file systems only that are named here.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from functools import lru_cache

from custody.vfs.file_system_type import BTRFS, EXT, XFS, libc, type_of_open

KNOWN_FILE_SYSTEMS = frozenset({EXT, XFS, BTRFS})
_ERRORS_REPORTED_SINCE = (5, 8)


@lru_cache(maxsize=1)
def _reports_errors() -> bool:
    found = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return sys.platform == "linux" and found is not None and (int(found[1]), int(found[2])) >= _ERRORS_REPORTED_SINCE


def sync_disk_of(descriptor: int) -> bool:
    """Sync the file system of an open file; return False, with nothing done, where that cannot be relied on.

    Raises:
        OSError: something could not be written.
    """
    if not _reports_errors() or type_of_open(descriptor) not in KNOWN_FILE_SYSTEMS:
        return False
    if libc().syncfs(descriptor):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True
