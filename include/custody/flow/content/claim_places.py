"""Where resource claims are: on the disks of content containers, in the store, or in both.

The one seam between contents and the store. Whoever lists claims, asks whether one is there or how old it is, or
deletes it, asks here, so that no reader and no deletion knows of one place only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from custody.config import ContentStore
from custody.errors import StorageError
from custody.flow.content.claim_file import ResourceClaim, claims_on_disk, sections_of
from custody.format.names import ContentPaths
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from custody.flow.content.handed_claims import HandedClaims, StoredClaim


class ClaimPlaces:
    """The places of the resource claims of one repository.

    Args:
        fs: the file system of the disks.
        store: where contents lie.
    """

    def __init__(self, fs: FileSystem, store: ContentStore) -> None:
        self._fs = fs
        self._store = store

    @cached_property
    def handed(self) -> HandedClaims | None:
        """What was handed over to the store; None where no store is known."""
        # Imported here: most looks find their claim on a disk.
        from custody.flow.content.handed_claims import HandedClaims

        return HandedClaims.of(self._fs, self._store)

    def listed(self, writer: str) -> Iterator[tuple[ResourceClaim, StoredClaim | None]]:
        """Yield the resource claims of a writer that are on a disk or in the store, with what the store has of each.

        What interrupted hand-overs left is among them. Raises StorageError.
        """
        stored = {} if self.handed is None else self.handed.listed(writer)
        for resource in claims_on_disk(self._fs, self._store, writer):
            yield resource, stored.pop(resource, None)
        yield from sorted(stored.items())

    def is_on_disk(self, resource: ResourceClaim) -> bool:
        """Whether a claim is on the disk of its container."""
        return self._fs.exists(resource.path(self._store))

    def stored(self, resource: ResourceClaim) -> StoredClaim | None:
        """Return what the store has of a claim, None where that is nothing; raises StorageError."""
        return None if self.handed is None else self.handed.look_up(resource)

    def exists(self, resource: ResourceClaim) -> bool:
        """Whether a claim can be read from a disk or from the store; raises StorageError."""
        if self.is_on_disk(resource):
            return True
        stored = self.stored(resource)
        return stored is not None and stored.bytes is not None

    def written_ms(self, resource: ResourceClaim, stored: StoredClaim | None) -> int | None:
        """Return when a claim was last written, on its disk if it is there, else in the store; None if it has gone."""
        try:
            return self._fs.modified_ms(resource.path(self._store))
        except StorageError:
            return None if stored is None else stored.written_ms

    def remove(self, resources: Iterable[ResourceClaim]) -> None:
        """Remove claims from their disks and from the store. Can be repeated after any crash.

        The file goes first, so that a hand-over under way notices before it declares what goes now. `settle` makes the
        removals from disks survive power loss; those from the store do on return.

        Raises:
            StorageError: a disk or the store refuses; not all are removed.
        """
        chosen = list(resources)
        for resource in chosen:
            self._fs.remove(resource.path(self._store))
        if self.handed is not None:
            self.handed.remove(chosen)

    def settle(self, folders: Iterable[Path]) -> None:
        """Make removals from some sections survive power loss."""
        for folder in sorted(set(folders)):
            if self._fs.exists(folder):
                self._fs.sync_directory(folder)

    def settle_all(self, writer: str) -> None:
        """Make removals from all sections of a writer that are there, and from the store, survive power loss."""
        paths = ContentPaths(self._store, writer)
        for container, section in sections_of(self._fs, self._store, writer):
            self._fs.sync_directory(paths.section(container, section))
        if self.handed is not None:
            self.handed.settle_removals(writer)
