"""Resource claims: the files that contents lie in, and the claims of events that point into them.

The container of a claim of custody's own is `custody:<writer>/<container>`. So a claim says by itself where its content
lies, also in an event of another writer, and is told from the claims of a NiFi whose events were ingested.

Layout of the file (docs/formats/content.md): 8 bytes preamble; a header frame with a JSON document; then content,
record, content, record. A content lies there as it is: a claim is an offset and a length, and a part of a content is a
claim too. The record behind a content has its length, its SHA-256 and a CRC-32 for each chunk, and repeats a random
number of the header: bytes that somebody stores as content cannot pass for a record. Numbers below are part of the
format: add, never change.
"""

from __future__ import annotations

import hashlib
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
from zlib_ng import zlib_ng

from custody.config import ContentStore
from custody.errors import CorruptionError
from custody.flow.content.containers import ContentContainers
from custody.flow.flowfile import DIGEST_ATTRIBUTE
from custody.format.framing import HEAD_BYTES, Frame, Gap, frame, read_head, whole_record
from custody.format.names import ContentPaths, is_claim, is_name, is_section
from custody.model import ContentClaim, Event
from custody.vfs import FileSystem

CLAIM_SCHEME = "custody:"


@dataclass(frozen=True, slots=True, order=True)
class ResourceClaim:
    """One file of a content repository, which holds the contents of several claims."""

    writer: str
    container: str
    section: str
    identifier: str

    @classmethod
    def of(cls, claim: ContentClaim | None) -> ResourceClaim | None:
        """Return the file that a claim speaks of; None for a claim of another content repository, or without one."""
        if claim is None or claim.container is None or claim.section is None or claim.identifier is None:
            return None
        return cls.parse(claim.container, claim.section, claim.identifier)

    @classmethod
    def parse(cls, container: str, section: str, identifier: str) -> ResourceClaim | None:
        """Return the file that the three fields of a claim name, None unless they are custody's."""
        if not container.startswith(CLAIM_SCHEME) or not is_section(section) or not is_claim(identifier):
            return None
        # Claims come from outside too: what is no plain name must not become a path.
        writer, _, name = container.removeprefix(CLAIM_SCHEME).partition("/")
        return cls(writer, name, section, identifier) if is_name(writer) and is_name(name) else None

    @property
    def text(self) -> str:
        """The file's name as one text: `custody:WRITER/CONTAINER/SECTION/IDENTIFIER`."""
        return f"{CLAIM_SCHEME}{self.writer}/{self.container}/{self.section}/{self.identifier}"

    def path(self, store: ContentStore) -> Path:
        """Return where the file lies."""
        return ContentPaths(store, self.writer).claim(self.container, self.section, self.identifier)

    def claim(self, offset: int, size: int) -> ContentClaim:
        """Return the claim of a content in this file; bytes."""
        return ContentClaim(
            container=f"{CLAIM_SCHEME}{self.writer}/{self.container}",
            section=self.section,
            identifier=self.identifier,
            offset=offset,
            size=size,
        )


@dataclass(frozen=True, slots=True)
class StoredContent:
    """A content that was acknowledged: where it lies and what it is."""

    claim: ContentClaim
    sha256: str
    """Hexadecimal."""

    @property
    def size(self) -> int:
        """Its length in bytes."""
        return self.claim.size or 0


def with_content(event: Event, stored: StoredContent) -> Event:
    """Return an event about a stored content: its claim, its size, and the digest that binds the two."""
    attributes: Mapping[str, str | None] = event.updated_attributes
    return msgspec.structs.replace(
        event,
        file_size=stored.size,
        content_claim=stored.claim,
        updated_attributes={**attributes, DIGEST_ATTRIBUTE: stored.sha256},
    )


PREAMBLE = b"CUSTCLM\x01"
FORMAT_VERSION = PREAMBLE[7]
KIND_HEADER = 1
KIND_CONTENT = 2
KIND_ERASED = 3
# Each record carries the size that it was written with, so that another one may be chosen for new contents.
CHUNK_BYTES = 256 << 10
"""What one CRC-32 covers, and what is read at once."""
NONCE_BYTES = 16
# Part of the format: nonce, offset, length, then digest and bytes a chunk, or the time of the erasure.
_CONTENT = struct.Struct("<16sQQ32sI")
_ERASED = struct.Struct("<16sQQQ")


class ClaimHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a file of contents: its resource claim, and the nonce of its records."""

    writer: str
    container: str
    section: str
    identifier: str
    created_ms: int
    nonce: str
    """32 hexadecimal digits that every record of the file repeats as 16 bytes."""
    format_version: int = FORMAT_VERSION

    @property
    def key(self) -> bytes:
        """The nonce as records have it."""
        return bytes.fromhex(self.nonce)


_HEADER = msgspec.json.Decoder(ClaimHeader)


class Bytes(Protocol):
    """The bytes of a resource claim by their places: a file that is mapped, or what is fetched from a store."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> memoryview: ...


class ContentRecord(msgspec.Struct, frozen=True, gc=False):
    """The record of one content: its place, digest and checksums; offset and length in bytes."""

    offset: int
    length: int
    sha256: bytes = b""
    checksums: tuple[int, ...] = ()
    chunk_bytes: int = CHUNK_BYTES
    erased_ms: int | None = None
    """When its bytes were overwritten with zeros, None for one that is there."""

    @property
    def end(self) -> int:
        """Where its record begins."""
        return self.offset + self.length

    def encode(self, key: bytes) -> bytes:
        """Return the frame that follows the content."""
        if self.erased_ms is not None:
            return frame(KIND_ERASED, _ERASED.pack(key, self.offset, self.length, self.erased_ms))
        head = _CONTENT.pack(key, self.offset, self.length, self.sha256, self.chunk_bytes)
        return frame(KIND_CONTENT, head, struct.pack(f"<{len(self.checksums)}I", *self.checksums))

    def whole(self, data: Bytes, path: Path) -> Iterator[memoryview]:
        """Yield the content's chunks out of its file, each checked, and the whole at the end.

        Raises:
            CorruptionError: a chunk is not what was written.
        """
        digest = hashlib.sha256()
        for part in self.part(data, path, self.offset, self.length):
            digest.update(part)
            yield part
        if digest.digest() != self.sha256:
            raise CorruptionError(
                f"{path} @{self.offset}: expected content with the SHA-256 {self.sha256.hex()}, "
                f"got {digest.hexdigest()}."
            )

    def part(self, data: Bytes, path: Path, offset: int, length: int) -> Iterator[memoryview]:
        """Yield a part of the content; every chunk that it touches is checked as a whole before it is given out."""
        end = offset + length
        at = self.offset + (offset - self.offset) // self.chunk_bytes * self.chunk_bytes
        while at < end:
            stop = min(at + self.chunk_bytes, self.end)
            # Of a file that was cut this is shorter, and its checksum wrong.
            chunk = data[at:stop]
            expected = self.checksums[(at - self.offset) // self.chunk_bytes]
            found = zlib_ng.crc32(chunk)
            if found != expected:
                raise CorruptionError(
                    f"{path} @{at}: expected {stop - at} bytes of content with the CRC-32 {expected:08x}, "
                    f"got {found:08x}."
                )
            yield chunk[max(offset - at, 0) : end - at]
            at = stop


class Digest:
    """The length, digest and checksums of a content, added up while it streams by."""

    def __init__(self) -> None:
        self._sha256 = hashlib.sha256()
        self._checksums: list[int] = []
        self._open = 0
        self._open_bytes = 0
        self.length = 0

    def update(self, data: bytes | memoryview) -> None:
        """Take more bytes in."""
        view = memoryview(data).cast("B")
        self._sha256.update(view)
        self.length += len(view)
        while view:
            taken = view[: CHUNK_BYTES - self._open_bytes]
            self._open = zlib_ng.crc32(taken, self._open)
            self._open_bytes += len(taken)
            view = view[len(taken) :]
            if self._open_bytes == CHUNK_BYTES:
                self._checksums.append(self._open)
                self._open, self._open_bytes = 0, 0

    def record(self, offset: int) -> ContentRecord:
        """Return the record of what was taken in, for a content that begins at `offset` of its file."""
        checksums = (*self._checksums, *([self._open] if self._open_bytes else []))
        return ContentRecord(offset, self.length, self._sha256.digest(), checksums)


class Overwriting(NamedTuple):
    """Bytes of a resource claim that replace others in the same place."""

    offset: int
    data: bytes

    def apply(self, target: bytearray, start: int) -> None:
        """Put what belongs there into a part of the claim that begins at `start`."""
        begin, end = max(self.offset, start), min(self.offset + len(self.data), start + len(target))
        if begin < end:
            target[begin - start : end - start] = self.data[begin - self.offset : end - self.offset]


def erasing(record: ContentRecord, key: bytes, erased_ms: int) -> list[Overwriting]:
    """Return what overwrites a content with zeros, and its record with that of an erased content of the same size."""
    kept = len(record.encode(key)) - HEAD_BYTES
    body = _ERASED.pack(key, record.offset, record.length, erased_ms)
    zeros = [
        Overwriting(at, bytes(min(CHUNK_BYTES, record.end - at)))
        for at in range(record.offset, record.end, CHUNK_BYTES)
    ]
    return [*zeros, Overwriting(record.end, frame(KIND_ERASED, body.ljust(kept, b"\0")))]


def head(header: ClaimHeader) -> bytes:
    """Return all that precedes the first content."""
    return PREAMBLE + frame(KIND_HEADER, msgspec.json.encode(header))


def read_header(data: memoryview, path: Path) -> tuple[ClaimHeader, int]:
    """Return the header of a resource claim, and where its first content begins; raises as `read_head`."""
    return read_head(data, path, PREAMBLE, KIND_HEADER, _HEADER, name="resource claim")


def record_at(data: memoryview, key: bytes, offset: int, length: int) -> ContentRecord | None:
    """Return the record behind a content of this place and length, None if there is none."""
    record = record_in(whole_record(data, offset + length), key)
    return record if record is not None and (record.offset, record.length) == (offset, length) else None


def scan(data: memoryview, key: bytes, start: int) -> Iterator[ContentRecord | Gap]:
    """Yield all contents of a resource claim, and what lies between and behind them and belongs to none.

    Records are found by the key that they begin with, which no content can know.
    """
    at = start
    # Contents are arbitrary bytes: only the key, which no content can know, shows where a record is.
    for match in re.finditer(re.escape(key), data[start:]):
        found = whole_record(data, start + match.start() - HEAD_BYTES)
        record = record_in(found, key)
        # A record lies right behind its content: one that overlaps, or that was copied to another place, is none.
        if found is None or record is None or record.offset < at or record.end != found.offset:
            continue
        if record.offset > at:
            yield Gap(at, record.offset - at)
        yield record
        at = found.end
    if at < len(data):
        yield Gap(at, len(data) - at)


def record_in(found: Frame | None, key: bytes) -> ContentRecord | None:
    """Return the record of a content that a frame holds, None unless it repeats the file's key."""
    if found is None or found.is_part:
        return None
    payload = found.payload
    if found.kind == KIND_CONTENT and len(payload) >= _CONTENT.size:
        nonce, offset, length, sha256, chunk_bytes = _CONTENT.unpack_from(payload)
        count = -(-length // chunk_bytes) if chunk_bytes else -1
        if nonce != key or len(payload) != _CONTENT.size + 4 * count:
            return None
        checksums = struct.unpack_from(f"<{count}I", payload, _CONTENT.size)
        return ContentRecord(offset, length, sha256, checksums, chunk_bytes)
    if found.kind == KIND_ERASED and len(payload) >= _ERASED.size:
        nonce, offset, length, erased_ms = _ERASED.unpack_from(payload)
        return ContentRecord(offset, length, erased_ms=erased_ms) if nonce == key else None
    return None


@dataclass(frozen=True)
class ClaimFile:
    """One resource claim, read: its contents, and what of it belongs to none."""

    path: Path
    header: ClaimHeader
    contents: tuple[ContentRecord, ...]
    gaps: tuple[Gap, ...]
    data: memoryview

    @classmethod
    def read(cls, fs: FileSystem, path: Path) -> ClaimFile:
        """Find the contents of a file; their bytes are not checked.

        Raises:
            CorruptionError: its head cannot be read.
            FormatVersionError: it is of a newer version.
            StorageError: it cannot be opened.
        """
        data = fs.view(path)
        header, start = read_header(data, path)
        found = list(scan(data, header.key, start))
        contents = tuple(item for item in found if isinstance(item, ContentRecord))
        return cls(path, header, contents, tuple(item for item in found if isinstance(item, Gap)), data)

    @property
    def torn(self) -> Gap | None:
        """What lies behind the last content: the beginning of one that was never acknowledged, or a damaged one."""
        last = self.gaps[-1] if self.gaps else None
        return last if last is not None and last.offset + last.length == len(self.data) else None

    def until(self, offset: int) -> ClaimFile:
        """Return what lies before a place at which a content or a gap begins."""
        contents = tuple(record for record in self.contents if record.offset < offset)
        gaps = tuple(gap for gap in self.gaps if gap.offset < offset)
        return ClaimFile(self.path, self.header, contents, gaps, self.data[:offset])

    def damage(self) -> Iterator[tuple[int, CorruptionError]]:
        """Check every byte of every content; yield what is wrong, and where. The torn end is not judged here."""
        for gap in self.gaps:
            if gap is not self.torn:
                text = f"expected contents with their records, got {gap.length} other bytes."
                yield gap.offset, CorruptionError(f"{self.path} @{gap.offset}: {text}")
        for record in self.contents:
            try:
                for _ in record.whole(self.data, self.path) if record.erased_ms is None else ():
                    pass
            except CorruptionError as error:
                yield record.offset, error


def sections_of(fs: FileSystem, store: ContentStore, writer: str) -> Iterator[tuple[str, str]]:
    """Yield each section of a writer's containers, with the container; what is in the place of a missing one is not."""
    paths = ContentPaths(store, writer)
    for name in ContentContainers(fs, store, writer).present():
        yield from ((name, section) for section in fs.list(paths.container(name)) if is_section(section))


def claims_in(
    fs: FileSystem, store: ContentStore, writer: str, container: str, section: str
) -> Iterator[ResourceClaim]:
    """Yield the resource claims of a section."""
    for name in fs.list(ContentPaths(store, writer).section(container, section)):
        if is_claim(name):
            yield ResourceClaim(writer, container, section, name)


def claims_on_disk(fs: FileSystem, store: ContentStore, writer: str) -> Iterator[ResourceClaim]:
    """Yield all resource claims of a writer."""
    for container, section in sections_of(fs, store, writer):
        yield from claims_in(fs, store, writer, container, section)
