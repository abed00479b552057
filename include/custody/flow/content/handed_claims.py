"""Resource claims that were handed over: their bytes in the store, so that the disk that they are on may be lost.

A claim that is no longer written has a folder of objects, named by its length: its bytes in pieces, each under the
place where it begins, and a manifest, which is put last and only if its key is free. Only a manifest makes a claim
handed over; pieces without one are what an interrupted hand-over left. The manifest has the digest of each piece, and
the records of all contents with their checksums, so that a reader fetches the chunks that it needs and checks each
before it gives it out. A claim that has grown since, because its process was stopped and went on, is handed over again
under its new length; the longest counts. docs/formats/handed-contents.md, docs/design/082-contents-in-the-store.md.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from zlib_ng import zlib_ng

from custody.config import ContentStore
from custody.errors import ConflictError, CorruptionError, NotFoundError
from custody.flow.content.claim_file import (
    CHUNK_BYTES,
    ClaimFile,
    ContentRecord,
    ResourceClaim,
    erasing,
    record_in,
)
from custody.format.framing import frame, read_head, whole_record
from custody.format.names import CONTENT_HANDOFF, ID_DIGITS, is_claim, is_section
from custody.store import LocalStore, ObjectStore, carried, open_store, put_object
from custody.vfs import FileSystem

if TYPE_CHECKING:
    from custody.store.local_copies import LocalCopies
    from custody.store.ranged_file import RangedFile, Span

# Part of the format, like the fields of `HandedClaim`: add, never change.
PREAMBLE = b"CUSTHCC\x01"
KIND_MANIFEST = 1
MANIFEST = "manifest"
PIECE_BYTES = 32 << 20
"""A piece has at most so many bytes, so that a content of any size is handed over in little memory."""
_NEAR_BYTES = 64 << 10
"""What begins so near behind the last look is read on: the record of a content lies between two of them."""
_AHEAD_MAX = 32
"""Who reads on gets so many chunks with one request, twice as many each time."""
_OPEN_MAX = 2
_PARALLEL = 16
_PLACE = re.compile(rf"\d{{{ID_DIGITS}}}")
# <writer>/content-handoff/<container>/<section>/<claim>/<bytes>/<piece or manifest>
_DEPTH = 7


class HandedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a resource claim, as an object; it begins where the one before ends."""

    bytes: int
    sha256: str


class HandedClaim(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a manifest: whose claim it is, and the pieces that it consists of."""

    writer: str
    container: str
    section: str
    identifier: str
    nonce: str
    """That of the file's header, 32 hexadecimal digits."""
    bytes: int
    contents: int
    """The number of records behind this head."""
    pieces: tuple[HandedPiece, ...]
    host: str
    handed_over_ms: int


_CLAIM = msgspec.json.Decoder(HandedClaim)


@dataclass(frozen=True)
class Manifest:
    """A claim that was handed over, and the records of its contents, by their places."""

    claim: HandedClaim
    contents: tuple[ContentRecord, ...]

    def encode(self) -> bytes:
        """Return the object's bytes."""
        key = bytes.fromhex(self.claim.nonce)
        head = PREAMBLE + frame(KIND_MANIFEST, msgspec.json.encode(self.claim))
        return head + b"".join(record.encode(key) for record in self.contents)

    def find(self, offset: int, size: int) -> ContentRecord | None:
        """Return the record of the content that holds these bytes, None where none does."""
        place = bisect_right(self.contents, offset, key=lambda record: record.offset)
        record = self.contents[place - 1] if place else None
        return record if record is not None and offset + size <= record.end else None

    def chunks(self, offset: int) -> Iterator[tuple[int, int, int]]:
        """Yield the chunks of contents from a place on: where each begins and ends, and its CRC-32."""
        place = bisect_right(self.contents, offset, key=lambda record: record.offset)
        for number in range(max(place - 1, 0), len(self.contents)):
            record = self.contents[number]
            skipped = max(-((record.offset - offset) // record.chunk_bytes), 0)
            for at, checksum in enumerate(record.checksums[skipped:], skipped):
                begin = record.offset + at * record.chunk_bytes
                yield begin, min(begin + record.chunk_bytes, record.end), checksum


def decode_manifest(data: bytes | memoryview, where: object) -> Manifest:
    """Return a manifest.

    Raises:
        CorruptionError: it is not as it was written.
        FormatVersionError: it is of a newer version.
    """
    view = memoryview(data)
    claim, at = read_head(view, where, PREAMBLE, KIND_MANIFEST, _CLAIM, name="manifest of a resource claim")
    records, key = [], bytes.fromhex(claim.nonce)
    for _ in range(claim.contents):
        found = whole_record(view, at)
        record = record_in(found, key)
        if found is None or record is None or record.end > claim.bytes:
            raise CorruptionError(f"{where} @{at}: expected the record of a content, got other bytes.")
        records.append(record)
        at = found.end
    if at != len(view) or sum(piece.bytes for piece in claim.pieces) != claim.bytes:
        raise CorruptionError(
            f"{where} @{at}: expected {claim.contents} records and pieces of {claim.bytes} bytes, got others."
        )
    return Manifest(claim, tuple(records))


@dataclass
class StoredClaim:
    """What a listing of the store says of one resource claim: its objects, by length of the claim."""

    resource: ResourceClaim
    pieces: dict[int, int] = field(default_factory=dict)
    """The bytes of all pieces."""
    manifests: set[int] = field(default_factory=set)
    written_ms: int = 0
    """When the newest object was written."""

    @property
    def bytes(self) -> int | None:
        """The length with which it is handed over; None for what an interrupted hand-over left."""
        whole = [length for length in self.manifests if self.pieces.get(length, 0) == length]
        return max(whole, default=None)

    @property
    def size_bytes(self) -> int:
        """The bytes of its pieces, of all lengths."""
        return sum(self.pieces.values())


class HandedClaims:
    """The resource claims of all writers that were handed over to one store.

    Args:
        fs: the disk of a store that is a folder.
        store: where they lie.
        copies: the local files of what was read; None where the store is a folder.
    """

    def __init__(self, fs: FileSystem, store: ObjectStore, copies: LocalCopies | None) -> None:
        self._fs = fs
        self._store = store
        self._copies = copies

    @classmethod
    def of(cls, fs: FileSystem, contents: ContentStore) -> HandedClaims | None:
        """Return those of a repository; None where only the folder of contents is known. Nothing is asked yet."""
        if contents.location is None:
            return None
        store = open_store(
            contents.location,
            fs,
            contents.root,
            can_put_if_absent=contents.can_put_if_absent,
            multipart_bytes=contents.multipart_bytes,
        )
        if isinstance(store, LocalStore):
            return cls(fs, store, None)
        # Imported when it is needed: most repositories are folders.
        from custody.store.local_copies import LocalCopies

        return cls(fs, store, LocalCopies(fs, store, contents.folder, contents.copies_bytes_max))

    @property
    def is_remote(self) -> bool:
        """Whether each look is a request."""
        return self._store.is_remote

    def locate(self, resource: ResourceClaim) -> str:
        """Return where a claim lies, or would lie, for messages."""
        return self._store.locate(_prefix(resource).rstrip("/"))

    def locate_object(self, resource: ResourceClaim, length: int, offset: int | None = None) -> str:
        """Return where a piece of a claim lies, without an offset its manifest, for messages."""
        name = MANIFEST if offset is None else f"{offset:0{ID_DIGITS}d}"
        return self._store.locate(f"{_folder(resource, length)}{name}")

    def listed(
        self, writer: str, container: str | None = None, section: str | None = None
    ) -> dict[ResourceClaim, StoredClaim]:
        """Return what the store has of a writer's claims, or of those of a container or a section, by claim.

        Raises:
            StorageError: the store refuses.
        """
        prefix = f"{writer}/{CONTENT_HANDOFF}/"
        prefix += f"{container}/" if container is not None else ""
        prefix += f"{section}/" if section is not None else ""
        return self._read_listing(prefix)

    def look_up(self, resource: ResourceClaim) -> StoredClaim | None:
        """Return what the store has of one claim, None where that is nothing; raises as `listed`."""
        return self._read_listing(_prefix(resource)).get(resource)

    def manifest(self, resource: ResourceClaim, length: int) -> Manifest:
        """Return the manifest of a claim of some length.

        Raises:
            NotFoundError: there is none.
            CorruptionError, FormatVersionError: it cannot be read, or is that of another claim.
        """
        key = f"{_folder(resource, length)}{MANIFEST}"
        where = self._store.locate(key)
        manifest = decode_manifest(self._store.get(key), where)
        claim = manifest.claim
        named = ResourceClaim(claim.writer, claim.container, claim.section, claim.identifier)
        if (named, claim.bytes) != (resource, length):
            raise CorruptionError(
                f"{where} @0: expected the resource claim {resource.text} of {length} bytes, got another."
            )
        return manifest

    def open(self, resource: ResourceClaim) -> tuple[Manifest, ClaimBytes] | None:
        """Return a claim, open for reading; None where none was handed over.

        Raises:
            CorruptionError, FormatVersionError: its manifest cannot be read.
            StorageError: the store refuses.
        """
        for _ in range(2):
            stored = self.look_up(resource)
            if stored is None or stored.bytes is None:
                return None
            try:
                manifest = self.manifest(resource, stored.bytes)
            except NotFoundError:
                continue  # it has just gone: listed again
            return manifest, ClaimBytes(manifest, self._pieces_of(resource, manifest))
        return None

    def put(self, file: ClaimFile, resource: ResourceClaim, host: str, now_ms: int, check: Callable[[], None]) -> int:
        """Bring a file that nobody writes any more into the store; return its bytes.

        `check` is called before the manifest is put; what it raises leaves pieces, which count for nothing.

        Durability: on return the claim can be read without the disk that the file is on.

        Raises:
            CorruptionError: the store has other bytes under one of the keys.
            ConflictError: another file is handed over under the same name.
            StorageError: the store refuses.
        """
        folder = _folder(resource, len(file.data))
        pieces = []
        for start, end in pairwise(_cuts(file)):
            data = bytes(file.data[start:end])
            pieces.append(self._put_piece(f"{folder}{start:0{ID_DIGITS}d}", data))
        check()
        claim = HandedClaim(
            writer=resource.writer,
            container=resource.container,
            section=resource.section,
            identifier=resource.identifier,
            nonce=file.header.nonce,
            bytes=len(file.data),
            contents=len(file.contents),
            pieces=tuple(pieces),
            host=host,
            handed_over_ms=now_ms,
        )
        manifest, key = Manifest(claim, file.contents), f"{folder}{MANIFEST}"
        if not put_object(self._store, key, manifest.encode()):
            # Another hand-over of the same file was first; it is as good as this one if it has the same pieces.
            stored = self.manifest(resource, len(file.data))
            if stored.claim.pieces != claim.pieces:
                raise ConflictError(
                    f"{self._store.locate(key)}: expected the bytes of {file.path}, got those of another file of the "
                    f"machine {stored.claim.host!r}. Two machines write under one name. The file stays; give one of "
                    "them a writer name of its own (repository.writer)."
                )
            self._store.settle(key)  # whoever put it may have died before it was durable
        return len(file.data)

    def remove(self, resources: Iterable[ResourceClaim]) -> int:
        """Remove all objects of some claims; return their bytes. Can be repeated after any crash.

        The manifest of a claim goes first: without it the rest is a leftover, which the next removal finds.

        Durability: on return the removals survive power loss.

        Raises:
            StorageError: the store refuses; not all are removed.
        """
        wanted = list(resources)
        if not wanted:
            return 0
        # Of a writer that never handed anything over one request says so, and not one for each claim.
        writers = {writer for writer in {item.writer for item in wanted} if self._has_any(writer)}
        wanted = [item for item in wanted if item.writer in writers]
        if not self.is_remote or len(wanted) < 2:
            return sum(map(self._remove, wanted))
        with ThreadPoolExecutor(min(_PARALLEL, len(wanted))) as threads:
            return sum(threads.map(carried(self._remove), wanted))

    def keys_of(self, resource: ResourceClaim) -> list[str]:
        """Return the keys of all objects of a claim; raises as `listed`."""
        return list(self._store.keys(_prefix(resource)))

    def overwrite(
        self, resource: ResourceClaim, chosen: Callable[[ContentRecord], bool], erased_ms: int
    ) -> dict[str, int]:
        """Overwrite the chosen contents of a claim with zeros; return the keys that were written, with their sizes.

        The pieces first: until the manifest follows, a piece is not what its digest says, and only whoever compares
        digests notices. Can be repeated after any crash.

        Durability: on return it survives power loss.

        Raises:
            CorruptionError, FormatVersionError: a manifest cannot be read.
            StorageError: the store refuses; not all may be overwritten.
        """
        stored, written = self.look_up(resource), dict[str, int]()
        for length in () if stored is None else sorted(stored.manifests):
            manifest, folder = self.manifest(resource, length), _folder(resource, length)
            key = bytes.fromhex(manifest.claim.nonce)
            going = [record for record in manifest.contents if record.erased_ms is None and chosen(record)]
            if not going:
                continue
            changes = [change for record in going for change in erasing(record, key, erased_ms)]
            start, pieces = 0, []
            for piece in manifest.claim.pieces:
                name, stop = f"{folder}{start:0{ID_DIGITS}d}", start + piece.bytes
                inside = [each for each in changes if each.offset < stop and start < each.offset + len(each.data)]
                if inside:
                    before = self._store.get(name)
                    after = bytearray(before)
                    for change in inside:
                        change.apply(after, start)
                    # Overwritten already by a process that ended before the manifest followed.
                    if after != before:
                        self._store.put(name, bytes(after))
                    piece = HandedPiece(bytes=piece.bytes, sha256=hashlib.sha256(after).hexdigest())
                    self._forget(name)
                    written[name] = piece.bytes
                pieces.append(piece)
                start = stop
            contents = tuple(
                ContentRecord(record.offset, record.length, erased_ms=erased_ms) if record in going else record
                for record in manifest.contents
            )
            head = msgspec.structs.replace(manifest.claim, pieces=tuple(pieces))
            self._store.put(f"{folder}{MANIFEST}", Manifest(head, contents).encode())
            written[f"{folder}{MANIFEST}"] = 0
        return written

    def _forget(self, key: str) -> None:
        if self._copies is not None:
            self._copies.forget(key)

    def settle(self, stored: StoredClaim) -> None:
        """Make sure that a claim that is handed over stays so: who put its manifest may have died before that.

        Durability: on return it survives power loss. An object store has nothing to do for it.
        """
        if isinstance(self._store, LocalStore) and stored.bytes is not None:
            self._store.settle(f"{_folder(stored.resource, stored.bytes)}{MANIFEST}")

    def settle_removals(self, writer: str) -> None:
        """Make removals of a writer's claims survive power loss: who removed them may have died before that.

        An object store has nothing to do for it.
        """
        if not isinstance(self._store, LocalStore):
            return
        home = f"{writer}/{CONTENT_HANDOFF}/"
        for container in self._store.folders(home):
            for section in self._store.folders(f"{home}{container}/"):
                prefix = f"{home}{container}/{section}/"
                folder = Path(self._store.locate(prefix.rstrip("/")))
                for name in filter(is_claim, self._fs.list(folder)):
                    # What such a folder held could come back with the power, as long as the folder itself can.
                    if next(self._store.keys(f"{prefix}{name}/"), None) is None:
                        self._fs.remove_tree(folder / name)
                self._fs.sync_directory(folder)

    def read_piece(self, resource: ResourceClaim, length: int, offset: int) -> bytes:
        """Return the bytes of a piece from the store, whatever they are; raises NotFoundError."""
        return self._store.get(f"{_folder(resource, length)}{offset:0{ID_DIGITS}d}")

    def _has_any(self, writer: str) -> bool:
        return bool(self._store.folders(f"{writer}/{CONTENT_HANDOFF}/"))

    def _remove(self, resource: ResourceClaim) -> int:
        prefix = _prefix(resource)
        objects = sorted(self._store.list(prefix), key=lambda info: (not info.key.endswith(f"/{MANIFEST}"), info.key))
        for info in objects:
            self._store.delete(info.key)
            if self._copies is not None:
                self._copies.forget(info.key)
        if isinstance(self._store, LocalStore):
            # As a whole: a hand-over that was interrupted may have left a temporary file or an empty folder.
            folder = Path(self._store.locate(prefix.rstrip("/")))
            if self._fs.exists(folder):
                self._fs.remove_tree(folder)
            # Also where there is nothing any more: who removed it may have died before that was durable.
            if self._fs.exists(folder.parent):
                self._fs.sync_directory(folder.parent)
        return sum(info.size_bytes for info in objects)

    def _put_piece(self, key: str, data: bytes) -> HandedPiece:
        piece = HandedPiece(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        put_object(self._store, key, data)
        # What is read back is what will be given out: a store may have kept less than it acknowledged.
        stored = self._store.get(key)
        if stored != data:
            raise CorruptionError(
                f"{self._store.locate(key)} @0: expected {piece.bytes} bytes with the SHA-256 {piece.sha256}, got "
                f"{len(stored)} others. Move the object away: custody handoff puts it again while the file is there."
            )
        self._store.settle(key)
        return piece

    def _pieces_of(self, resource: ResourceClaim, manifest: Manifest) -> list[_Piece]:
        folder, start, pieces = _folder(resource, manifest.claim.bytes), 0, []
        for piece in manifest.claim.pieces:
            pieces.append(
                _Piece(self._fs, self._store, self._copies, f"{folder}{start:0{ID_DIGITS}d}", start, piece.bytes)
            )
            start += piece.bytes
        return pieces

    def _read_listing(self, prefix: str) -> dict[ResourceClaim, StoredClaim]:
        found: dict[ResourceClaim, StoredClaim] = {}
        for info in self._store.list(prefix):
            parts = info.key.split("/")
            if (
                len(parts) != _DEPTH
                or not is_section(parts[3])
                or not is_claim(parts[4])
                or not _PLACE.fullmatch(parts[5])
            ):
                continue
            writer, _, container, section, identifier, length, name = parts
            resource = ResourceClaim(writer, container, section, identifier)
            stored = found.setdefault(resource, StoredClaim(resource))
            if name == MANIFEST:
                stored.manifests.add(int(length))
            elif _PLACE.fullmatch(name):
                stored.pieces[int(length)] = stored.pieces.get(int(length), 0) + info.size_bytes
            else:
                continue
            stored.written_ms = max(stored.written_ms, info.modified_ms)
        return found


class ClaimBytes:
    """The bytes of a claim in the store by their places; chunks of contents are fetched as they are looked at.

    Whoever looks at a chunk checks it: what comes out here may be damaged.
    """

    def __init__(self, manifest: Manifest, pieces: Sequence[_Piece]) -> None:
        self._manifest = manifest
        self._pieces = pieces
        self._starts = [piece.start for piece in pieces]
        self._open: dict[int, memoryview | RangedFile] = {}
        self._next, self._ahead = -1 - _NEAR_BYTES, 1

    def __len__(self) -> int:
        return self._manifest.claim.bytes

    def __getitem__(self, part: slice) -> memoryview:
        """Return a chunk of a content, or some other bytes within one piece."""
        start, stop, _ = part.indices(len(self))
        number = bisect_right(self._starts, start) - 1
        if start >= stop or number < 0:
            return memoryview(b"")
        piece = self._pieces[number]
        opened = self._opened(number)
        if isinstance(opened, memoryview):
            return opened[start - piece.start : stop - piece.start]
        self._fetch(opened, piece, start, stop)
        return opened.view[start - piece.start : stop - piece.start]

    def _fetch(self, file: RangedFile, piece: _Piece, start: int, stop: int) -> None:
        base = piece.start
        record = self._manifest.find(start, stop - start)
        first = None if record is None else _checksum_at(record, start)
        # A place that no checksum covers is fetched at each look.
        expected = {} if first is None else {start: first}

        def is_whole(span: Span) -> bool:
            checksum = expected.get(span[0] + base)
            return checksum is not None and zlib_ng.crc32(file.view[span[0] : span[1]]) == checksum

        is_next = 0 <= start - self._next <= _NEAR_BYTES
        self._next = stop
        if is_whole((start - base, stop - base)):
            return
        # Who reads a content on to its end, or one content after the other, asks seldom; who looks at one chunk fetches
        # one.
        self._ahead = min(self._ahead * 2, _AHEAD_MAX) if is_next else 1
        spans, left = [(start - base, stop - base)], (self._ahead - 1) * CHUNK_BYTES
        for at, end, checksum in self._manifest.chunks(stop) if record is not None and left else ():
            if left <= 0 or end > base + piece.bytes:
                break
            expected[at] = checksum
            spans.append((at - base, end - base))
            left -= end - at
        file.fetch([span for span in spans if not is_whole(span)], is_whole)

    def _opened(self, number: int) -> memoryview | RangedFile:
        opened = self._open.pop(number, None)
        if opened is None:
            opened = self._pieces[number].open()
        self._open[number] = opened  # the newest one is last
        while len(self._open) > _OPEN_MAX:
            del self._open[next(iter(self._open))]
        return opened


@dataclass(frozen=True)
class _Piece:
    """One piece of a claim, and where it lies."""

    fs: FileSystem
    store: ObjectStore
    copies: LocalCopies | None
    key: str
    start: int
    bytes: int

    def open(self) -> memoryview | RangedFile:
        """Return its bytes, or the local file whose parts are fetched."""
        if self.copies is not None:
            return self.copies.ranged(self.key, self.bytes)
        return self.fs.view(Path(self.store.locate(self.key)))


def _prefix(resource: ResourceClaim) -> str:
    return f"{resource.writer}/{CONTENT_HANDOFF}/{resource.container}/{resource.section}/{resource.identifier}/"


def _folder(resource: ResourceClaim, length: int) -> str:
    return f"{_prefix(resource)}{length:0{ID_DIGITS}d}/"


def _cuts(file: ClaimFile) -> list[int]:
    """Return where the pieces of a file begin, and its end; no chunk of a content lies in two of them."""
    cuts, last, size = [0], 0, len(file.data)
    if size <= PIECE_BYTES:
        return [0, size]
    for start, end, step in sorted(
        [
            (record.offset, record.end, record.chunk_bytes if record.erased_ms is None else CHUNK_BYTES)
            for record in file.contents
        ]
        + [(gap.offset, gap.offset + gap.length, CHUNK_BYTES) for gap in file.gaps]
    ):
        for at in range(start, end, step):
            # A piece ends before the chunk that would make it too long.
            if min(at + step, end) - cuts[-1] > PIECE_BYTES and at > cuts[-1]:
                cuts.append(at)
        last = end
    if size - cuts[-1] > PIECE_BYTES and last > cuts[-1]:
        cuts.append(last)
    return [*cuts, size]


def _checksum_at(record: ContentRecord, offset: int) -> int | None:
    number, rest = divmod(offset - record.offset, record.chunk_bytes)
    return record.checksums[number] if not rest and 0 <= number < len(record.checksums) else None
