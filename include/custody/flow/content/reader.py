"""Reading contents: by a claim, in chunks, each checked before it is given out."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.flow.content.claims import DIGEST_ATTRIBUTE, ResourceClaim
from custody.flow.content.record import ClaimHeader, ContentRecord, read_header, record_at, scan
from custody.model import ContentClaim, Event
from custody.vfs import FileSystem


@dataclass(frozen=True)
class Content:
    """A content that was found; its bytes are read and checked when they are asked for."""

    claim: ContentClaim
    path: Path
    record: ContentRecord
    """Of the content that the claim lies in."""
    data: memoryview

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


def find_content(fs: FileSystem, store: Path, claim: ContentClaim | None, sha256: str | None = None) -> Content:
    """Return the content of a claim; with `sha256`, what the event says that it is.

    Raises:
        NotFoundError: there is no claim, it is of another content repository, or its content expired or was erased.
        CorruptionError: its file is there and does not hold it as it was written.
        FormatVersionError: the file is of a newer version.
    """
    resource = ResourceClaim.of(claim)
    if claim is None or resource is None:
        where = "has no claim" if claim is None else f"lies in another content repository ({claim.container})"
        raise NotFoundError(f"the content {where}; there is nothing to read here.")
    path = resource.path(store)
    data = _view(fs, path)
    header, start = read_header(data, path)
    if (header.writer, header.container, header.section, header.identifier) != (
        resource.writer,
        resource.container,
        resource.section,
        resource.identifier,
    ):
        raise CorruptionError(f"{path} @0: expected the resource claim {resource}, got another one in its place.")
    offset, size = claim.offset or 0, claim.size or 0
    record = _record(data, header, start, offset, size)
    if record is None:
        raise CorruptionError(
            f"{path} @{offset}: expected {size} bytes of content with their record, "
            f"got {max(len(data) - offset, 0)} bytes without it."
        )
    if record.erased_ms is not None:
        raise NotFoundError(f"{path} @{offset}: the content was erased at {record.erased_ms} ms since the epoch.")
    content = Content(claim, path, record, data)
    if sha256 is not None and content.sha256 not in (None, sha256):
        raise CorruptionError(
            f"{path} @{offset}: expected content with the SHA-256 {sha256}, as its event says, got {content.sha256}."
        )
    return content


def content_of(fs: FileSystem, store: Path, event: Event, *, previous: bool = False) -> Content:
    """Return the content that an event speaks of, after the event or with `previous` before it.

    Raises:
        NotFoundError, CorruptionError, FormatVersionError: as of `find_content`.
    """
    if previous:
        return find_content(fs, store, event.previous_content_claim)
    return find_content(fs, store, event.content_claim, event.updated_attributes.get(DIGEST_ATTRIBUTE))


def _view(fs: FileSystem, path: Path) -> memoryview:
    try:
        return fs.view(path)
    except StorageError as error:
        if error.errno == errno.ENOENT:
            raise NotFoundError(
                f"{path}: the content is no longer there: it expired, or its disk is missing."
            ) from None
        raise


def _record(data: memoryview, header: ClaimHeader, start: int, offset: int, size: int) -> ContentRecord | None:
    """Return the record of the content that holds these bytes."""
    found = record_at(data, header.key, offset, size)
    if found is not None:
        return found
    for item in scan(data, header.key, start):
        if isinstance(item, ContentRecord) and item.offset <= offset and offset + size <= item.end:
            return item
    return None
