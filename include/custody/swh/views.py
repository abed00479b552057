"""Files that are looked at here and there: mapped so that only what is looked at is read from the disk."""

from __future__ import annotations

from pathlib import Path

from custody.vfs import FileSystem, look_here_and_there


def scattered_view(fs: FileSystem, path: Path) -> memoryview:
    """Return the whole content of a file; nothing is read ahead, which may be megabytes for each place.

    Raises:
        StorageError: it cannot be read.
    """
    view = fs.view(path)
    look_here_and_there(view)
    return view
