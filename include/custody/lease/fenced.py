"""A file system for the holder of a lease, which checks the lease before each effect that others see.

Writing under names of the attempt's own needs no check. Giving, moving or removing a name that others use does. A
little time passes between the check and the effect; docs/design/017-leases.md says, effect by effect, why that does no
harm.
"""

from __future__ import annotations

from pathlib import Path

from custody.lease.lease import Lease
from custody.vfs import FileSystem
from custody.vfs.wrapping import WrappingFileSystem


class FencedFileSystem(WrappingFileSystem):
    """Hands everything on; a rename, link, removal or cut raises SupersededError once another attempt took over."""

    def __init__(self, inner: FileSystem, lease: Lease) -> None:
        super().__init__(inner)
        self.plain = inner
        """Without the check: to put back what should not have been moved."""
        self._lease = lease

    def rename(self, source: Path, target: Path) -> None:
        """Move a file or a folder, if the lease stands."""
        self._lease.check()
        self.inner.rename(source, target)

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name, if the lease stands."""
        self._lease.check()
        return self.inner.link(source, target)

    def remove(self, path: Path) -> None:
        """Remove a file, if the lease stands."""
        self._lease.check()
        self.inner.remove(path)

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder, if the lease stands."""
        self._lease.check()
        self.inner.remove_directory(folder)

    def cut(self, path: Path, length: int) -> None:
        """Cut a file, if the lease stands."""
        self._lease.check()
        self.inner.cut(path, length)
