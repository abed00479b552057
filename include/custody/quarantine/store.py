"""The quarantine: for each rejection an envelope (`<key>.json`) and the rejected piece as it was (`<key>.raw`).

The key is a digest of the piece, its place and the reason, so that the same bad file ingested again adds nothing. An
envelope is written after its piece, so that every listed entry can be read, and ends with a checksum. No entry leaves
by itself.

Bad input from outside is bounded by a quota: it fills no disk, and is refused rather than lost silently. What custody
itself puts aside (unreadable bytes, a torn tail before it is cut: `keep_evidence`, `keep_cut`) is always kept, because
it would be gone otherwise. It is bounded by its origin, a block, a record or a write, and is kept once.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from custody.errors import BackpressureError, CorruptionError, NotFoundError, StorageError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.vfs import FileSystem

_MEASURE_PART = 64
"""The folder is measured again after this part of the quota was used: other processes add entries, too."""
_MEASURE_SECONDS = 1.0
"""A full folder is not measured more often than this, however much bad input comes."""


class Quota:
    """A bound on the bytes of a folder, which each of several processes may exceed by a sixty-fourth.

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
        self._measured: int | None = None
        self._reserved = 0
        self._measured_at = 0.0

    def take(self, *sizes: int) -> list[BackpressureError | None]:
        """Reserve room for pieces that are about to be kept; return for each None, or why it does not fit."""
        # All at once: a look at the folder shows none of them yet.
        if self._measured is None or self._reserved * _MEASURE_PART > self._bytes_max:
            self._measure()
        if self._used + sum(sizes) > self._bytes_max and self._now() - self._measured_at >= _MEASURE_SECONDS:
            self._measure()  # entries may have been removed
        return [self._take(size) for size in sizes]

    def _take(self, size: int) -> BackpressureError | None:
        if self._used + size > self._bytes_max:
            return BackpressureError(
                f"{self._folder}: expected room for {size} bytes, got {self._used} of {self._bytes_max} in use "
                "(repository.quarantine_bytes_max). Look at what is there with custody quarantine list, resubmit or "
                "remove it, or raise the limit."
            )
        self._reserved += size
        return None

    @property
    def _used(self) -> int:
        return (self._measured or 0) + self._reserved

    def _measure(self) -> None:
        used = sum(self._size(name) for name in self._fs.list(self._folder))
        self._measured, self._reserved, self._measured_at = used, 0, self._now()

    def _size(self, name: str) -> int:
        try:
            return self._fs.size(self._folder / name)
        except StorageError:
            return 0  # it has just been removed


# As `entry_key` makes them. A key that a user gives becomes part of a path only if it looks like this.
_KEY = re.compile(r"[0-9a-f]{16}")


class QuarantineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The envelope of a piece: why it was rejected, and where it came from."""

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
    """The format that the file was read as."""

    @property
    def is_stored(self) -> bool:
        """Whether the event was stored all the same: a warning, not an error.

        The warning came first. Where the process died in between, the event comes when its sender sends it again.
        """
        return self.severity == "warning"


_ENTRY = msgspec.json.Decoder(QuarantineEntry)


class BadPiece(NamedTuple):
    """A piece that is to be kept, and its envelope."""

    raw: bytes
    entry: QuarantineEntry


def bad_piece(
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
) -> BadPiece:
    """Return a piece with its envelope; the arguments are the keys of that."""
    digest = hashlib.sha256(raw).hexdigest()
    entry = QuarantineEntry(
        key=entry_key(digest, code, file, index, offset),
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
    return BadPiece(raw, entry)


class Quarantine:
    """The rejected input of one repository."""

    def __init__(self, fs: FileSystem, folder: Path, bytes_max: int | None = None) -> None:
        """Keep entries in a folder; `bytes_max` bounds input from outside."""
        self._fs = fs
        self._folder = folder
        self._quota = None if bytes_max is None else Quota(fs, folder, bytes_max)

    def add(self, piece: BadPiece, *, always: bool = False) -> QuarantineEntry:
        """Keep a piece; the same piece from the same place, rejected for the same reason, is kept once.

        With `always`, it is kept beyond the quota: for what custody itself puts aside, which is bounded elsewhere.

        Durability: on return the piece survives power loss.

        Raises:
            BackpressureError: the quota is used up; nothing was kept.
        """
        [entry] = self.add_all([piece], always=always)
        if isinstance(entry, BackpressureError):
            raise entry
        return entry

    def add_all(self, pieces: Sequence[BadPiece], *, always: bool = False) -> list[QuarantineEntry | BackpressureError]:
        """Keep pieces as `add` does, with few syncs for all; return the entry of each, or why it was not kept.

        Durability: on return the pieces that have an entry survive power loss.
        """
        results: dict[str, QuarantineEntry | BackpressureError] = {}
        new: dict[str, tuple[bytes, bytes]] = {}
        for raw, entry in pieces:
            if entry.key in results:
                continue  # the same piece once more
            if self._fs.exists(self._folder / f"{entry.key}.json"):
                results[entry.key] = self.get(entry.key)
                continue
            results[entry.key] = entry
            new[entry.key] = raw, encode_entry(entry)
        # Behind the look for the same entries: a repeated rejection takes no room.
        if self._quota is not None and not always:
            refusals = self._quota.take(*(len(raw) + len(envelope) for raw, envelope in new.values()))
            for key, refusal in zip([*new], refusals, strict=True):
                if refusal is not None:
                    results[key] = refusal
                    del new[key]
        if new:
            self._fs.make_directory(self._folder)
            # The pieces first: after a crash in between, nothing is listed that cannot be read.
            raws = {f"{key}.raw": raw for key, (raw, _) in new.items()}
            envelopes = {f"{key}.json": envelope for key, (_, envelope) in new.items()}
            self._fs.write_all_durably(self._folder, [raws, envelopes])
        elif any(isinstance(result, QuarantineEntry) for result in results.values()):
            # Its first writer may have died before the name was durable.
            self._fs.sync_directory(self._folder)
        return [results[piece.entry.key] for piece in pieces]

    def entries(self) -> Iterator[QuarantineEntry]:
        """Yield all entries, by key."""
        for key in self.known_keys():
            yield self.get(key)

    def known_keys(self) -> Iterator[str]:
        """Yield the keys of all entries, those of damaged envelopes included."""
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
        """Return the piece as it was; raises CorruptionError when its bytes have changed."""
        data = self._fs.read(self._path(key, "raw"))
        entry = self.get(key)
        # A piece is resubmitted from here: changed bytes must not become events.
        if hashlib.sha256(data).hexdigest() != entry.sha256:
            raise CorruptionError(f"{self._path(key, 'raw')}: expected SHA-256 {entry.sha256}, got other bytes")
        return data

    def remove(self, key: str) -> None:
        """Remove an entry, because its piece was stored or a user wants it gone."""
        self._path(key, "json")
        self.discard(key)

    def discard(self, key: str) -> None:
        """Remove all files of a key, unreadable ones too."""
        if not _KEY.fullmatch(key):
            raise NotFoundError(f"no quarantine entry {key!r}. List them: custody quarantine list")
        # The envelope first: an entry that is listed never lacks its piece.
        self._fs.remove(self._folder / f"{key}.json")
        self._fs.remove(self._folder / f"{key}.raw")
        self._fs.sync_directory(self._folder)

    def _path(self, key: str, suffix: str) -> Path:
        path = self._folder / f"{key}.{suffix}"
        if not _KEY.fullmatch(key) or not self._fs.exists(path):
            raise NotFoundError(f"no quarantine entry {key!r}. List them: custody quarantine list")
        return path


def entry_key(sha256: str, code: str, file: str, index: int | None, offset: int) -> str:
    """Return the key of a piece with this digest, rejected for this reason, at this place."""
    # The file's name without its folder: the same file from another place adds nothing. The digest is a name on disk:
    # with another one, every piece would be kept again.
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
        return _ENTRY.decode(data)
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
    """Put bytes into the quarantine of a folder; the same bytes from the same place are kept once.

    Durability: on return they survive power loss.
    """
    return Quarantine(fs, folder).add(
        bad_piece(
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
