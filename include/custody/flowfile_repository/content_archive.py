"""The content archive: contents whose FlowFiles are done, kept for replay until they are too old or take too much room.

A resource claim is in the archive from the moment on at which a snapshot that no longer refers to it is durable. It
stays where it is on disk; the log says since when it is archived. A FlowFile that refers to it again, such as a replay,
takes it out of the archive. Files are deleted under the lock of the FlowFile repository, so that none is claimed
meanwhile, and what a legal hold means is never among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from custody.config import ContentStore
from custody.errors import BackpressureError, StorageError
from custody.flow.content import CLAIM_SCHEME, OPEN_SECONDS_MAX, ClaimPlaces, ContentContainers, ResourceClaim
from custody.vfs import FileSystem

WRITTEN_MS = int(2 * OPEN_SECONDS_MAX * 1000)
"""A live writer appends to no file that is older than half of this."""
MARGIN = 0.02
"""As NiFi: deletion goes on to so much below the share, and writers wait from so much above it on."""


@dataclass(frozen=True, slots=True)
class ArchiveOptions:
    """The bounds of the archive."""

    age_max_ms: int | None = None
    """How long a content is kept for replay; None as long as an event refers to it."""
    share_max: float | None = None
    """Up to which share of the disk may be used before the oldest contents of the archive go; None for all of it."""


class ContentArchive:
    """The contents on one store that no FlowFile refers to any more.

    Args:
        fs: where they lie.
        store: the store's folder.
        options: see `ArchiveOptions`.
        held: returns the resource claims that may not go, as texts.
    """

    def __init__(
        self, fs: FileSystem, store: ContentStore, options: ArchiveOptions, held: Callable[[], Collection[str]] = tuple
    ) -> None:
        self._fs = fs
        self._store = store
        self._options = options
        self._held = held
        self._places = ClaimPlaces(fs, store)

    def exists(self, claim: str) -> bool:
        """Whether a resource claim is on the disk, or in the store.

        Raises:
            ContentContainerMissingError: nobody can tell, as its disk is away.
            StorageError: nobody can tell, as the store refuses.
        """
        resource = _resource(claim)
        if self._places.exists(resource):
            return True
        # Gone only if the disk is there on which it would lie.
        ContentContainers(self._fs, self._store, resource.writer).get(resource.container).check()
        return False

    def due(self, archived: Mapping[str, int], now_ms: int) -> list[str]:
        """Return the resource claims that may go now, the oldest first; `archived` says since when each is archived.

        Those whose files are gone already, because their last event expired, are among them, and those that are `held`.
        Those whose disk is away are not: they wait for it. Nor are those of which the store does not say whether it has
        them.
        """
        away = self._away(archived)
        archived = {claim: since for claim, since in archived.items() if claim not in away}
        there = {claim: known for claim in archived if (known := self._exists_or_unknown(claim)) is not None}
        gone = [claim for claim in there if not there[claim]]
        present = sorted(
            # A live writer may still append contents to a younger file, which no FlowFile refers to yet.
            (claim for claim in there.keys() - set(gone) if self._written_ms(claim) < now_ms - WRITTEN_MS),
            key=lambda claim: archived[claim],
        )
        age, disks = self._options.age_max_ms, self._disks()
        excess = Counter({disk: self._excess_bytes(disk) for disk in set(disks.values())})
        chosen = []
        for claim in present:
            disk = disks.get(self._folder(claim), self._store.folder)
            is_old = age is not None and archived[claim] < now_ms - age
            # The old ones come first. Each disk for itself: what goes from one makes no room on another, and what lies
            # in the store alone makes room on none.
            if is_old or (excess[disk] > 0 and self._size(claim)):
                chosen.append(claim)
                excess[disk] -= self._size(claim)
        return gone + chosen

    def _exists_or_unknown(self, claim: str) -> bool | None:
        try:
            return self.exists(claim)
        except StorageError:
            return None

    def held(self, claims: Collection[str]) -> set[str]:
        """Return those of some resource claims that have to stay; events are read for that, as long as it takes.

        Those whose disk went away meanwhile are among them.

        Raises:
            CustodyError: an event cannot be read, so nobody knows what it refers to.
        """
        away = self._away(claims)
        away |= {claim for claim in claims if claim not in away and self._exists_or_unknown(claim) is None}
        present = {claim for claim in claims if claim not in away and self.exists(claim)}
        return away | present.intersection(self._held()) if present else away

    def delete(self, claims: Collection[str]) -> int:
        """Delete resource claims, from their disks and from the store; return how many bytes of disks that were.

        Can be repeated. Durability: on return the deletions survive power loss.

        Raises:
            ContentContainerMissingError: a disk went away; not all are deleted.
            StorageError: the store refuses; not all are deleted.
        """
        size = sum(map(self._size, claims))
        for resource in map(_resource, claims):
            # Gone only if the disk is there on which it would lie.
            if not self._places.is_on_disk(resource):
                ContentContainers(self._fs, self._store, resource.writer).get(resource.container).check()
        self._places.remove(map(_resource, claims))
        self._places.settle(self._path(claim).parent for claim in claims)
        return size

    def require_room(self) -> None:
        """Refuse a new content while a disk is fuller than the share, which the archive could not bring down.

        Raises:
            BackpressureError: one is; the message says what helps.
        """
        share = self._options.share_max
        for disk in sorted(set(self._disks().values())) if share is not None else ():
            space = self._fs.space(disk)
            used = 1 - space.free_bytes / space.total_bytes if space is not None and space.total_bytes else 0.0
            if share is not None and used >= share + MARGIN:
                raise BackpressureError(
                    f"{disk}: {used:.0%} of the disk is used, and contents may be written up to {share:.0%} "
                    "(content.archive_share). The archive holds nothing more that may go: free space on the disk, let "
                    "waiting FlowFiles be consumed, or raise the share."
                )

    def _disks(self) -> dict[Path, Path]:
        """Return the folders that contents lie in and that are there, each with the first one on the same disk."""
        first: dict[object, Path] = {}
        folders = [
            folder for folder in (self._store.folder, *self._store.elsewhere.values()) if self._fs.exists(folder)
        ]
        # Two with the same room to the byte are one disk.
        return {folder: first.setdefault(self._fs.space(folder), folder) for folder in folders}

    def _folder(self, claim: str) -> Path:
        return self._store.elsewhere.get(_resource(claim).container, self._store.folder)

    def _excess_bytes(self, disk: Path) -> int:
        """Return how many bytes have to go from a disk."""
        share, space = self._options.share_max, self._fs.space(disk)
        if share is None or space is None:
            return 0
        used = space.total_bytes - space.free_bytes
        if used <= share * space.total_bytes:
            return 0
        return int(used - (share - MARGIN) * space.total_bytes)

    def _away(self, claims: Iterable[str]) -> set[str]:
        """Return the resource claims whose containers are missing."""
        by_container: dict[tuple[str, str], list[str]] = {}
        for claim in claims:
            resource = _resource(claim)
            by_container.setdefault((resource.writer, resource.container), []).append(claim)
        return {
            claim
            for (writer, name), some in by_container.items()
            if ContentContainers(self._fs, self._store, writer).why_missing(name)
            for claim in some
        }

    def _path(self, claim: str) -> Path:
        return _resource(claim).path(self._store)

    def _written_ms(self, claim: str) -> int:
        try:
            return self._fs.modified_ms(self._path(claim))
        except StorageError:
            return 0

    def _size(self, claim: str) -> int:
        try:
            return self._fs.size(self._path(claim))
        except StorageError:
            return 0  # it has just gone


def _resource(claim: str) -> ResourceClaim:
    writer, _, rest = claim.removeprefix(CLAIM_SCHEME).partition("/")
    container, section, identifier = rest.split("/")
    return ResourceClaim(writer, container, section, identifier)
