"""Files of destinations, brought to what a committed batch says; doing it again changes nothing."""

from __future__ import annotations

import hashlib
from pathlib import Path

from custody.errors import CorruptionError
from custody.ngsi.staged import Part
from custody.vfs import FileSystem


class Target:
    """The folder below which `/user/…` lies. Nobody else writes to these files while a sink is open."""

    def __init__(self, fs: FileSystem, root: Path) -> None:
        self._fs = fs
        self._root = root

    def length(self, path: str) -> int:
        """Return the bytes of a file, 0 where there is none."""
        file = self._file(path)
        return self._fs.size(file) if self._fs.exists(file) else 0

    def apply(self, part: Part, data: memoryview) -> None:
        """Make a file end in a part, once, whatever a crash left of an earlier try.

        Durability: on return the file with the part survives power loss.

        Raises:
            CorruptionError: the file is shorter than it was, or something else stands where the part belongs.
        """
        file = self._file(part.path)
        self._fs.make_directory(file.parent)
        if self._fs.exists(file):
            self._complete(file, part, data)
        else:
            if part.offset:
                raise _short(file, part, 0)
            with self._fs.create(file) as writing:
                writing.write(bytes(data))
                writing.sync()
        self._fs.sync_directory(file.parent)

    def _complete(self, file: Path, part: Part, data: memoryview) -> None:
        size = self._fs.size(file)
        if size < part.offset:
            raise _short(file, part, size)
        end = part.offset + part.length
        if size >= end:
            there = self._fs.view(file)[part.offset : end]
            if hashlib.sha256(there).hexdigest() == part.sha256:
                self._fs.sync_file(file)  # who wrote it may have died before its sync
                return
            if size > end:
                raise CorruptionError(
                    f"{file} @{part.offset}: expected {part.length} bytes that were committed, got others, and "
                    f"{size - end} more behind them. Nothing was changed; see who else writes to this file."
                )
        if size > part.offset:
            self._fs.truncate(file, part.offset)
        with self._fs.append(file) as writing:
            writing.write(bytes(data))
            writing.sync()

    def _file(self, path: str) -> Path:
        return self._root / path.lstrip("/")


def _short(file: Path, part: Part, size: int) -> CorruptionError:
    return CorruptionError(
        f"{file}: expected at least the {part.offset} bytes that were committed, got {size}. Nothing was changed; "
        "bring the file back from a backup."
    )
