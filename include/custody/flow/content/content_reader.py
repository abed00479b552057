"""Reading contents by their claims, in chunks that are checked before they are given out."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path

import msgspec

from custody.config import ContentStore
from custody.errors import (
    ContentContainerMissingError,
    CorruptionError,
    FormatVersionError,
    NotFoundError,
    StorageError,
)
from custody.flow.content.claim_file import (
    Bytes,
    ClaimHeader,
    ContentRecord,
    ResourceClaim,
    read_header,
    record_at,
    scan,
)
from custody.flow.content.claim_places import ClaimPlaces
from custody.flow.content.containers import ContentContainers
from custody.flow.flowfile import DIGEST_ATTRIBUTE
from custody.model import ContentClaim, Event
from custody.vfs import FileSystem

_FILES_MAX = 4
"""So many files stay mapped: as many containers as write in turns, more or less."""


class Content(msgspec.Struct, frozen=True, gc=False):
    """A content that was found; its bytes are read and checked when they are asked for."""

    claim: ContentClaim
    path: Path
    record: ContentRecord
    """Of the content that the claim lies in."""
    data: Bytes
    stated: str | None = None
    """The digest that the event states, hexadecimal, where it can be compared without reading the content."""

    @property
    def size(self) -> int:
        """Length in bytes."""
        return self.claim.size or 0

    @property
    def sha256(self) -> str | None:
        """The digest that was written with it, hexadecimal; None for a part of a content."""
        return None if self.is_part else self.record.sha256.hex()

    @property
    def is_part(self) -> bool:
        """Whether the claim is a part of what was stored in one piece."""
        return (self.claim.offset, self.claim.size) != (self.record.offset, self.record.length)

    @property
    def differs(self) -> str | None:
        """What the event states that the content, which is whole, is not; None where both agree."""
        if self.stated is None or self.sha256 in (None, self.stated):
            return None
        return (
            f"{self.path} @{self.claim.offset or 0}: the event states a content with the SHA-256 {self.stated}, and "
            f"what was stored there is whole and has {self.sha256}. An event of an older release may "
            "state its parent's digest; otherwise the content was exchanged. custody verify --deep says which"
        )

    def chunks(self) -> Iterator[bytes]:
        """Yield the content in pieces of at most 256 KiB.

        Raises:
            CorruptionError: what is stored is not what was written; file, offset and both checksums are named. Pieces
                before that are right.
        """
        if self.is_part:
            found = self.record.part(self.data, self.path, self.claim.offset or 0, self.size)
        else:
            found = self.record.whole(self.data, self.path)
        for chunk in found:
            yield bytes(chunk)

    def read(self) -> bytes:
        """Return the whole content, checked; for one that fits into memory."""
        return b"".join(self.chunks())


class Availability(StrEnum):
    """Whether a content can be had.

    AWAY: the disk of its container is not there. DAMAGED: its file is there and does not hold it, or cannot be read.
    """

    AVAILABLE = "available"
    AWAY = "away"
    GONE = "gone"
    ERASED = "erased"
    ELSEWHERE = "elsewhere"
    DAMAGED = "damaged"


@dataclass(frozen=True)
class _Kept:
    """A file of contents that is mapped, or fetched from the store, and what finds the record of a content in it."""

    resource: ResourceClaim
    path: Path
    data: Bytes
    record: Callable[[int, int], ContentRecord | None]


class ContentReader:
    """A finder of contents that are read one after the other; the files that were needed last stay mapped.

    Make one for each piece of work: a content that is erased meanwhile may still be given out.
    """

    def __init__(self, fs: FileSystem, store: ContentStore) -> None:
        self._fs = fs
        self._store = store
        self._places = ClaimPlaces(fs, store)
        self._gone: set[ResourceClaim] = set()
        """Claims that were neither on a disk nor in the store; to ask the store for each again is a request."""
        self._files: dict[tuple[str | None, str | None, str | None], _Kept] = {}

    def find(self, claim: ContentClaim | None, sha256: str | None = None) -> Content:
        """Return the content of a claim; with `sha256`, what the event says that it is.

        Raises:
            NotFoundError: there is no claim, it is of another content repository, or its content expired or was erased.
            ContentContainerMissingError: the disk of its container is away.
            CorruptionError: its file is there and does not hold it as it was written.
            FormatVersionError: the file is of a newer version.
        """
        if claim is None:
            raise NotFoundError("the content has no claim; there is nothing to read here.")
        kept, found = self._look_up(claim)
        return _checked(claim, kept, found, sha256)

    def availability(self, claim: ContentClaim | None) -> Availability | None:
        """Return whether the content of a claim can be had, None without a claim; its bytes are not checked."""
        if claim is None:
            return None
        if ResourceClaim.of(claim) is None:
            return Availability.ELSEWHERE
        try:
            _, found = self._look_up(claim)
        except NotFoundError:
            return Availability.GONE
        except ContentContainerMissingError:
            return Availability.AWAY
        except (CorruptionError, FormatVersionError, StorageError):
            return Availability.DAMAGED
        if found is None:
            return Availability.DAMAGED
        return Availability.AVAILABLE if found.erased_ms is None else Availability.ERASED

    def _look_up(self, claim: ContentClaim) -> tuple[_Kept, ContentRecord | None]:
        """Return the file of a claim and the record of its content, None where it has none; raises as `find`."""
        name = claim.container, claim.section, claim.identifier
        offset, size = claim.offset or 0, claim.size or 0
        # Taken out and put in again, so that the order of the dictionary is the order of use.
        kept = self._files.pop(name, None)
        # Behind the end of what was mapped, a file may have grown.
        found = None if kept is None or offset + size >= len(kept.data) else kept.record(offset, size)
        if kept is None or found is None:
            kept = self._map(claim)
            found = kept.record(offset, size)
        self._files[name] = kept  # the newest one is last
        while len(self._files) > _FILES_MAX:
            del self._files[next(iter(self._files))]
        return kept, found

    def of(self, event: Event, *, previous: bool = False) -> Content:
        """Return the content that an event speaks of, after it or with `previous` before it; raises as `find`.

        An event that was captured got its digest together with its content, so another one is damage. One of a producer
        may have been given another digest: its content is found, and `Content.differs` says in what.
        """
        claim = event.previous_content_claim if previous else event.content_claim
        stated = (event.previous_attributes if previous else event.updated_attributes).get(DIGEST_ATTRIBUTE)
        if event.source_format is not None:
            return self.find(claim, stated)
        return msgspec.structs.replace(self.find(claim), stated=stated)

    def _map(self, claim: ContentClaim) -> _Kept:
        resource = ResourceClaim.of(claim)
        if resource is None:
            raise NotFoundError(
                f"the content lies in another content repository ({claim.container}); there is nothing to read here."
            )
        path = resource.path(self._store)
        try:
            data = self._fs.view(path)
        except StorageError as error:
            return self._not_on_disk(resource, path, error)
        header, start = read_header(data, path)
        # A file that was copied over another one would give out other contents under its name.
        if ResourceClaim(header.writer, header.container, header.section, header.identifier) != resource:
            raise CorruptionError(f"{path} @0: expected the resource claim {resource}, got another one in its place.")
        return _Kept(resource, path, data, partial(_record, data, header, start))

    def _not_on_disk(self, resource: ResourceClaim, path: Path, error: StorageError) -> _Kept:
        """Return a file as it was handed over to the store; raise what is true of one that was not."""
        if resource not in self._gone:
            kept = self._stored(resource)
            if kept is not None:
                return kept
        # Gone only if the disk is there on which it would lie.
        ContentContainers(self._fs, self._store, resource.writer).get(resource.container).check()
        if error.errno == errno.ENOENT:
            self._gone.add(resource)
            raise NotFoundError(f"{path}: the content is no longer there: it expired.") from None
        raise error

    def _stored(self, resource: ResourceClaim) -> _Kept | None:
        handed = self._places.handed
        if handed is None:
            return None
        try:
            opened = handed.open(resource)
        except StorageError as error:
            # Nobody can tell whether it is there, so it is out of reach, and not gone.
            raise ContentContainerMissingError(
                f"{handed.locate(resource)}: the content is not on this machine's disks, and the store does not say "
                f"whether it was handed over: {error}"
            ) from error
        if opened is None:
            return None
        manifest, data = opened
        return _Kept(resource, Path(handed.locate(resource)), data, manifest.find)


def find_content(fs: FileSystem, store: ContentStore, claim: ContentClaim | None, sha256: str | None = None) -> Content:
    """Return one content; raises as `ContentReader.find`."""
    return ContentReader(fs, store).find(claim, sha256)


def content_of(fs: FileSystem, store: ContentStore, event: Event, *, previous: bool = False) -> Content:
    """Return the content that one event speaks of; raises as `ContentReader.find`."""
    return ContentReader(fs, store).of(event, previous=previous)


def _checked(claim: ContentClaim, kept: _Kept, record: ContentRecord | None, sha256: str | None) -> Content:
    path, offset, size = kept.path, claim.offset or 0, claim.size or 0
    if record is None:
        raise CorruptionError(
            f"{path} @{offset}: expected {size} bytes of content with their record, "
            f"got {max(len(kept.data) - offset, 0)} bytes without it."
        )
    if record.erased_ms is not None:
        raise NotFoundError(f"{path} @{offset}: the content was erased at {record.erased_ms} ms since the epoch.")
    content = Content(claim, path, record, kept.data)
    if sha256 is not None and content.sha256 not in (None, sha256):
        raise CorruptionError(
            f"{path} @{offset}: expected content with the SHA-256 {sha256}, as its event says, got {content.sha256}."
        )
    return content


def _record(data: memoryview, header: ClaimHeader, start: int, offset: int, size: int) -> ContentRecord | None:
    """Return the record of the content that holds these bytes."""
    # The record of a whole content lies right behind it; only a part of a content needs the scan.
    found = record_at(data, header.key, offset, size)
    if found is not None:
        return found
    for item in scan(data, header.key, start):
        if isinstance(item, ContentRecord) and item.offset <= offset and offset + size <= item.end:
            return item
    return None
