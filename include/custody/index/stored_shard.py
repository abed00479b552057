"""A shard as one object of an object store: its files one behind the other, its manifest, and a tail that finds it.

Layout (docs/formats/stored-shard.md): the files that the manifest describes, in its order, each from a multiple of
ALIGNED_BYTES on; the manifest; a tail of 48 bytes, little-endian: the length of the manifest as u64, its SHA-256, and
MAGIC. So one request brings tail and manifest, and every page of every file is a range whose place the manifest tells.

A reader keeps what it fetched in a local file with holes. The manifest has a checksum of each page, and the tail one of
the manifest: whatever the local file or the store holds, nothing unchecked is read.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path
from typing import Protocol

from custody.errors import CorruptionError, FormatVersionError
from custody.index import manifest
from custody.index.manifest import Manifest
from custody.index.paged_file import RangedPart
from custody.store.ranged_file import RangedFile
from custody.vfs import FileSystem

MAGIC = b"CUSTSHO\x01"
ALIGNED_BYTES = 8
"""Part of the format: numbers of files lie at multiples of their width."""
_TAIL = struct.Struct("<Q32s8s")
_FIRST_TAIL_BYTES = 64 << 10
"""So much of the end is asked for at first: the manifest of a shard of some hundred thousand events."""


class ShardSource(Protocol):
    """Where the bytes of a stored shard come from."""

    def locate(self) -> Path:
        """Return its place, for messages."""
        ...

    def size_here(self) -> int | None:
        """Return the length of the local file; None where there is none."""
        ...

    def open(self, size: int) -> RangedFile:
        """Return the local file, whose pieces are fetched."""
        ...

    def tail(self, length: int) -> bytes:
        """Return so many of the last bytes of the object, or all where it has fewer; raises NotFoundError."""
        ...

    def forget(self) -> None:
        """Remove the local file."""
        ...


class StoredShard:
    """An open stored shard.

    Args:
        source: where it lies.
        encoded: its manifest.
        ranged: its local file; None if it is to be opened with the size that the manifest tells.

    Raises:
        CorruptionError, FormatVersionError: the manifest is damaged, or newer than this custody.
    """

    def __init__(self, source: ShardSource, encoded: bytes, ranged: RangedFile | None = None) -> None:
        self.source = source
        self.manifest = Manifest.decode(encoded, source.locate())
        self._places: dict[str, int] = {}
        end = 0
        for file in self.manifest.description.files:
            self._places[file.name] = end
            end += padded(file.size)
        size = end + len(encoded) + _TAIL.size
        if ranged is None:
            ranged = source.open(size)
            # For the next process, which then asks for no tail. It is checked there like all else.
            ranged.keep(end, encoded + _tail(encoded))
        if ranged.size != size:
            raise CorruptionError(f"{source.locate()}: expected {size} bytes by its manifest, got {ranged.size}.")
        self._ranged = ranged

    def part(self, name: str) -> RangedPart:
        """Return where a file of the shard lies in the object."""
        return RangedPart(self._ranged, self._places[name])


def pack(fs: FileSystem, folder: Path) -> bytes:
    """Return the object of a shard's folder.

    Raises:
        CorruptionError: the folder is not whole, or a page has not its checksum.
    """
    encoded = fs.read(folder / manifest.NAME)
    described = manifest.described(encoded, folder / manifest.NAME)
    parts: list[bytes | memoryview] = []
    for file in described.files:
        data = fs.view(folder / file.name)
        if len(data) != file.size:
            raise CorruptionError(f"{folder / file.name}: expected {file.size} bytes, got {len(data)}.")
        parts += [data, bytes(padded(file.size) - file.size)]
    return b"".join([*parts, encoded, _tail(encoded)])


def open_stored(source: ShardSource) -> StoredShard:
    """Open a stored shard; without a request where its manifest is on this machine.

    Raises:
        NotFoundError: the store has no such shard.
        CorruptionError, FormatVersionError: its manifest is damaged, or newer than this custody.
        StorageError: the store refuses.
    """
    size = source.size_here()
    if size is not None:
        here = source.open(size)
        encoded = _manifest_in(here.view)
        if encoded is not None:
            return StoredShard(source, encoded, here)
    end = source.tail(_FIRST_TAIL_BYTES)
    wanted = _manifest_bytes(end, source.locate()) + _TAIL.size
    if wanted > len(end):
        end = source.tail(wanted)
    encoded = _manifest_in(memoryview(end))
    if encoded is None:
        raise CorruptionError(f"{source.locate()}: expected a shard's manifest with its checksum, got other bytes.")
    return StoredShard(source, encoded)


def padded(size: int) -> int:
    """Return the room of a file of this size."""
    return -(-size // ALIGNED_BYTES) * ALIGNED_BYTES


def _tail(encoded: bytes) -> bytes:
    return _TAIL.pack(len(encoded), hashlib.sha256(encoded).digest(), MAGIC)


def _manifest_bytes(end: bytes | memoryview, where: Path) -> int:
    """Return the length of the manifest by the last bytes of the object."""
    if len(end) >= _TAIL.size:
        length, _, magic = _TAIL.unpack(bytes(end[-_TAIL.size :]))
        if magic == MAGIC:
            return int(length)
        if magic[:-1] == MAGIC[:-1]:
            raise FormatVersionError(f"{where}: expected a stored shard of version 1, got {magic[-1]}.")
    raise CorruptionError(f"{where}: expected the tail of a stored shard, got other bytes.")


def _manifest_in(data: memoryview) -> bytes | None:
    """Return the manifest that lies before the tail; None where it is not whole."""
    if len(data) < _TAIL.size:
        return None
    length, digest, magic = _TAIL.unpack(bytes(data[-_TAIL.size :]))
    if magic != MAGIC or length > len(data) - _TAIL.size:
        return None
    encoded = bytes(data[len(data) - _TAIL.size - length : len(data) - _TAIL.size])
    return encoded if hashlib.sha256(encoded).digest() == digest else None
