"""Where the files of leases lie: on a disk, or in an object store, so that machines without a common disk share leases.

In a store (`StoredFiles`) the files have the same names and bytes as on a disk ([format](docs/formats/lease.md)).
Put-if-absent gives an epoch to one attempt, and the bytes that are read back decide, not the answer of the put. A lease
is looked at by one listing of its few names; it has to show what was put before, as listings of S3, Google's and
Azure's stores do.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol


class LeaseFiles(Protocol):
    """The operations that a lease needs; a `FileSystem` has them. Every method raises StorageError with the path."""

    def list(self, folder: Path) -> list[str]:
        """Return the names in a folder; none where there is no such folder."""
        ...

    def make_directory(self, folder: Path) -> None:
        """Make a folder, durably."""
        ...

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        ...

    def exists(self, path: Path) -> bool:
        """Whether a file is there."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written, in ms since the epoch."""
        ...

    def publish_if_absent(self, path: Path, data: bytes) -> bool:
        """Write a file only if its name is free; return whether it was. Durable on return."""
        ...

    def write_durably(self, path: Path, data: bytes) -> None:
        """Write a file, replacing one of the same name. Durable on return."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file; an absent one is fine."""
        ...


class LeasePlace(NamedTuple):
    """The folder of one lease, and what reads and writes it."""

    files: LeaseFiles
    folder: Path
