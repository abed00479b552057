"""Marks: how a folder that may be a disk of its own is told from the empty place where its disk is not mounted.

Three files have the same bytes: a record in the store, the mark in the folder, and last a sign beside the record. Files
are written to the folder only after the sign is durable. So a crash in between is told from a disk that is away, and
only a folder with the very mark of its record is the disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Protocol, TypeVar

import msgspec

from custody.errors import ConfigurationError, CorruptionError, FormatVersionError, NotFoundError, StorageError
from custody.format.framing import Frame, frame, frames
from custody.format.names import MARKED_SUFFIX
from custody.store.base import ObjectStore
from custody.vfs import FileSystem

# The kind of the only frame; part of the formats.
_KIND = 1


class MarkDocument(Protocol):
    """What a mark says, a msgspec structure."""

    @property
    def whose(self) -> str:
        """Whose folder it marks, in words that follow `it is`."""
        ...


Document = TypeVar("Document", bound=MarkDocument)


@dataclass(frozen=True, slots=True)
class MarkFormat(Generic[Document]):
    """The bytes of one kind of mark: a preamble, whose eighth byte is the version, and one framed JSON document."""

    preamble: bytes
    decoder: msgspec.json.Decoder[Document]
    name: str
    """In messages, such as `the mark of a stripe`."""

    def encode(self, document: Document) -> bytes:
        """Return the file's bytes."""
        return self.preamble + frame(_KIND, msgspec.json.encode(document))

    def decode(self, data: bytes, where: object) -> Document:
        """Return the document in a file's bytes.

        Raises:
            FormatVersionError: it is of another version.
            CorruptionError: the bytes are not what was written.
        """
        first = self.preamble
        if data[:7] == first[:7] and data[7:8] not in (b"", first[7:8]):
            raise FormatVersionError(f"{where} @7: expected {self.name}, version {first[7]}, got {data[7:8]!r}.")
        records = list(frames(data, len(first))) if data.startswith(first) else []
        if len(records) != 1 or not isinstance(records[0], Frame):
            raise CorruptionError(f"{where} @0: expected {self.name} with its checksum, got other bytes.")
        try:
            return self.decoder.decode(records[0].payload)
        except msgspec.DecodeError as error:
            raise CorruptionError(f"{where} @8: expected {self.name}, got {error}.") from error


class DiskMark(Generic[Document]):
    """The mark of one folder, with its record and its sign.

    Args:
        fs: the file system of the folder.
        store: where record and sign lie.
        key: of the record.
        path: the file of the mark.
        format: of their bytes.
    """

    def __init__(self, fs: FileSystem, store: ObjectStore, key: str, path: Path, format: MarkFormat[Document]) -> None:
        self._fs = fs
        self._store = store
        self._key = key
        self._format = format
        self.path = path
        self._is_settled = False

    @property
    def sign(self) -> str:
        """The key of the sign."""
        return self._key + MARKED_SUFFIX

    def record(self) -> bytes | None:
        """Return the record of a folder that was taken into use, None for any other.

        Raises:
            CorruptionError, FormatVersionError: neither the record nor the sign can be read.
        """
        try:
            # Whoever wrote the sign made the record durable before.
            sign = self._store.get(self.sign)
        except NotFoundError:
            return None
        try:
            record = self._store.get(self._key)
            self._format.decode(record, self._store.locate(self._key))
        except (CorruptionError, NotFoundError):
            # The sign has the same bytes: one of the two is enough.
            self._format.decode(sign, self._store.locate(self.sign))
            return sign
        return record

    def difference(self, record: bytes) -> str | None:
        """Return why the folder is not that of a record; None where it has the very mark."""
        try:
            mark = self._fs.read(self.path)
        except StorageError as error:
            return f"{self.path} is not there" if error.errno in (errno.ENOENT, errno.ENOTDIR) else str(error)
        return None if mark == record else self._other(mark)

    def settle(self) -> None:
        """Make the sign durable: whoever wrote it may have died before its name was, and files will rely on it."""
        if not self._is_settled:
            self._store.settle(self.sign)
            self._is_settled = True

    def take(self, new: Callable[[], Document], what: str) -> None:
        """Take a folder that has no sign into use; `what` names it in messages.

        Durability: on return record, mark and sign survive power loss.

        Raises:
            ConfigurationError: the folder has another mark.
        """
        # The record first: should the process die, the next one goes on with its id and knows the mark for its own.
        record = self._recorded(new)
        self._fs.make_directory(self.path.parent)
        if not self._fs.publish_if_absent(self.path, record):
            mark = self._fs.read(self.path)
            if mark != record:
                raise ConfigurationError(f"{what}: {self._other(mark)}.")
        self._store.put_if_absent(self.sign, record)

    def expect(self, new: Callable[[], Document]) -> None:
        """Take a folder into use whose disk is away, without a mark: it is missing from here on.

        Durability: on return record and sign survive power loss.
        """
        self._store.put_if_absent(self.sign, self._recorded(new))

    def _recorded(self, new: Callable[[], Document]) -> bytes:
        store, key = self._store, self._key
        data = self._format.encode(new())
        record = data if store.put_if_absent(key, data) else store.get(key)
        self._format.decode(record, store.locate(key))
        return record

    def _other(self, mark: bytes) -> str:
        record = self._store.locate(self._key)
        try:
            other = self._format.decode(mark, self.path)
        except (CorruptionError, FormatVersionError) as error:
            return f"{error} If this is the right disk, copy {record} over it"
        return f"{self.path} says that it is {other.whose}"


def mark_damage(store: ObjectStore, prefix: str, format: MarkFormat[Document]) -> Iterator[tuple[str, str]]:
    """Yield where a record or a sign below a prefix is not as it was written, and what is wrong with it."""
    for key in list(store.keys(prefix)):
        where, other = store.locate(key), store.locate(key.removesuffix(MARKED_SUFFIX))
        data = store.get(key)
        try:
            format.decode(data, where)
        except (CorruptionError, FormatVersionError) as error:
            yield where, str(error)
            continue
        # What no checksum covers: the two have the same bytes.
        if where != other and data != store.get(key.removesuffix(MARKED_SUFFIX)):
            yield where, f"{where}: expected the bytes of {other}, got others."
