"""Files that are looked at here and there: mapped so that only what is looked at is read from the disk."""

from __future__ import annotations

import mmap
from pathlib import Path

from custody.vfs import FileSystem


def scattered_view(fs: FileSystem, path: Path) -> memoryview:
    """Return the whole content of a file; nothing is read ahead, which may be megabytes for each place.

    Raises:
        StorageError: it cannot be read.
    """
    view = fs.view(path)
    if isinstance(view.obj, mmap.mmap):
        view.obj.madvise(mmap.MADV_RANDOM)
    return view
