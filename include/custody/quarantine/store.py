"""How much a quarantine may hold: bad input that somebody sends for ever fills no disk, and none is lost silently.

The quarantine: one envelope (`<key>.json`) and one piece of input as it was (`<key>.raw`) for each rejection.

The key is a digest of the piece, its place and the reason, so that the same bad file ingested again adds nothing.
An envelope is written after its piece, so that what is listed can be read, and ends with the checksum of all that is
before it. Nothing leaves by itself.

What custody itself puts aside: bytes that cannot be read, or that it is about to cut, as they were.

There is always room for them, whatever `repository.quarantine_bytes_max` says: what is not kept here is gone. They are
bounded by what they come from, a block, a record, a write, and are kept once, however often they are put aside.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from custody.errors import BackpressureError, CorruptionError, NotFoundError, StorageError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.vfs import FileSystem

_LOOK_PART = 64
"""After this part of all room was given away it is looked at again: other processes add, too."""
_LOOK_SECONDS = 1.0
"""Nobody who sends bad input makes a full folder be looked at more often."""


class Quota:
    """The bytes of a folder, with a bound that each of several processes may pass by a sixty-fourth.

    Args:
        fs: holds the folder.
        folder: whose files count.
        bytes_max: of all of them.
        now: tells seconds.
    """

    def __init__(self, fs: FileSystem, folder: Path, bytes_max: int, now: Callable[[], float] = time.monotonic) -> None:
        self._fs = fs
        self._folder = folder
        self._bytes_max = bytes_max
        self._now = now
        self._there: int | None = None
        self._given = 0
        self._looked = 0.0

    def take(self, size: int) -> None:
        """Count a piece in that is about to be kept.

        Raises:
            BackpressureError: it does not fit; nothing was counted.
        """
        if self._there is None or self._given * _LOOK_PART > self._bytes_max:
            self._look()
        if self._used + size > self._bytes_max and self._now() - self._looked >= _LOOK_SECONDS:
            self._look()  # somebody may have removed something
        if self._used + size > self._bytes_max:
            raise BackpressureError(
                f"{self._folder}: expected room for {size} bytes, got {self._used} of {self._bytes_max} in use "
                "(repository.quarantine_bytes_max). Look at what is there with custody quarantine list, resubmit or "
                "remove it, or raise the limit."
            )
        self._given += size

    @property
    def _used(self) -> int:
        return (self._there or 0) + self._given

    def _look(self) -> None:
        there = sum(self._size(name) for name in self._fs.list(self._folder))
        self._there, self._given, self._looked = there, 0, self._now()

    def _size(self, name: str) -> int:
        try:
            return self._fs.size(self._folder / name)
        except StorageError:
            return 0  # somebody has just removed it


_KEY = re.compile(r"[0-9a-f]{16}")


class QuarantineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Why a piece of input is here, and where it came from."""

    key: str
    severity: str
    code: str
    message: str
    file: str
    index: int | None
    offset: int
    size_bytes: int
    sha256: str
    node: str | None
    received_ms: int
    format: str = "nifi"
    """What the file was read as."""

    @property
    def kept(self) -> bool:
        """Whether the event was stored all the same: a warning, not an error."""
        return self.severity == "warning"


class Quarantine:
    """The rejected input of one repository."""

    def __init__(self, fs: FileSystem, folder: Path, bytes_max: int | None = None) -> None:
        """Keep entries in a folder; with `bytes_max`, no more than that of what others send."""
        self._fs = fs
        self._folder = folder
        self._room = None if bytes_max is None else Quota(fs, folder, bytes_max)

    def add(
        self,
        raw: bytes,
        *,
        severity: str,
        code: str,
        message: str,
        file: str,
        index: int | None,
        offset: int,
        node: str | None,
        received_ms: int,
        format: str = "nifi",
        always: bool = False,
    ) -> QuarantineEntry:
        """Keep a piece; one that is here already, for the same reason and from the same place, stays as it is.

        With `always`, also where there is no room: for what custody itself puts aside, which is bounded elsewhere.

        Durability: on return the piece survives power loss.

        Raises:
            BackpressureError: it holds as much as it may; nothing was kept.
        """
        digest = hashlib.sha256(raw).hexdigest()
        key = entry_key(digest, code, file, index, offset)
        envelope = self._folder / f"{key}.json"
        if self._fs.exists(envelope):
            # Who put it here may have died before its name was durable.
            self._fs.sync_directory(self._folder)
            return self.get(key)
        entry = QuarantineEntry(
            key=key,
            severity=severity,
            code=code,
            message=message,
            file=file,
            index=index,
            offset=offset,
            size_bytes=len(raw),
            sha256=digest,
            node=node,
            received_ms=received_ms,
            format=format,
        )
        encoded = encode_entry(entry)
        if self._room is not None and not always:
            self._room.take(len(raw) + len(encoded))
        self._fs.make_directory(self._folder)
        self._fs.write_durably(self._folder / f"{key}.raw", raw)
        self._fs.write_durably(envelope, encoded)
        return entry

    def entries(self) -> Iterator[QuarantineEntry]:
        """Yield what is here, by key."""
        for key in self.known_keys():
            yield self.get(key)

    def known_keys(self) -> Iterator[str]:
        """Yield the keys of what is here, also of envelopes that are damaged."""
        for name in self._fs.list(self._folder):
            if name.endswith(".json") and _KEY.fullmatch(name.removesuffix(".json")):
                yield name.removesuffix(".json")

    def get(self, key: str) -> QuarantineEntry:
        """Return one envelope.

        Raises:
            NotFoundError: no entry has this key.
            CorruptionError: the envelope cannot be read.
        """
        path = self._path(key, "json")
        entry = decode_entry(self._fs.read(path), path)
        if entry.key != key:
            raise CorruptionError(f"{path}: expected the envelope {key}, got {entry.key}.")
        return entry

    def raw(self, key: str) -> bytes:
        """Return the piece as it was; raises CorruptionError when its bytes have changed since."""
        data = self._fs.read(self._path(key, "raw"))
        entry = self.get(key)
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise CorruptionError(f"{self._path(key, 'raw')}: expected SHA-256 {entry.sha256}, got other bytes")
        return data

    def remove(self, key: str) -> None:
        """Forget an entry; called when its piece was stored, or when a user says so."""
        self._path(key, "json")
        self.discard(key)

    def discard(self, key: str) -> None:
        """Remove whatever there is under a key, also what cannot be read; the envelope goes first."""
        if not _KEY.fullmatch(key):
            raise NotFoundError(f"no quarantine entry {key!r}. List them: custody quarantine list")
        self._fs.remove(self._folder / f"{key}.json")
        self._fs.remove(self._folder / f"{key}.raw")
        self._fs.sync_directory(self._folder)

    def _path(self, key: str, suffix: str) -> Path:
        path = self._folder / f"{key}.{suffix}"
        if not _KEY.fullmatch(key) or not self._fs.exists(path):
            raise NotFoundError(f"no quarantine entry {key!r}. List them: custody quarantine list")
        return path


def entry_key(sha256: str, code: str, file: str, index: int | None, offset: int) -> str:
    """Return the key of a piece with this digest, rejected for this reason, from this place."""
    identity = msgspec.json.encode([sha256, code, Path(file).name, index, offset])
    return hashlib.sha256(identity).hexdigest()[:16]


def encode_entry(entry: QuarantineEntry) -> bytes:
    """Return an envelope's bytes."""
    return with_checksum(msgspec.json.encode(entry))


def decode_entry(data: bytes, path: Path) -> QuarantineEntry:
    """Return an envelope.

    Raises:
        CorruptionError: its bytes are not what was written.
    """
    if not has_right_checksum(data):
        raise CorruptionError(f"{path}: expected an envelope with its checksum, got other bytes.")
    try:
        return msgspec.json.decode(data, type=QuarantineEntry)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected an envelope, got {error}") from error


def keep_evidence(
    fs: FileSystem,
    folder: Path,
    data: bytes,
    *,
    code: str,
    message: str,
    file: str,
    offset: int,
    now_ms: int,
    format: str = "damage",
) -> QuarantineEntry:
    """Put bytes into the quarantine in a folder; those that are there already stay as they are.

    Durability: on return they survive power loss.
    """
    return Quarantine(fs, folder).add(
        data,
        severity="error",
        code=code,
        message=message,
        file=file,
        index=None,
        offset=offset,
        node=None,
        received_ms=now_ms,
        format=format,
    )


def keep_cut(
    fs: FileSystem, folder: Path, now_ms: int, path: Path, offset: int, data: bytes, what: str
) -> QuarantineEntry:
    """Put the end of a journal into the quarantine, before it is cut.

    Durability: on return it survives power loss.
    """
    message = f"{path} @{offset}: {what}"
    return keep_evidence(
        fs,
        folder,
        data,
        code="journal-torn",
        message=message,
        file=str(path),
        offset=offset,
        now_ms=now_ms,
        format="journal",
    )
