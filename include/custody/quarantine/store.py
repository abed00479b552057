"""The quarantine: for each body with bad input one file, `<key>.rejected`, with its bad pieces and the reasons.

A body is what came at once: a request, a packet, the bad part of a file. Its key is a digest of its pieces, their
places and the reasons, so that the same bad body again adds nothing. No piece leaves by itself.

Bad input from outside is bounded by a quota of what the files take on a disk, inodes among it: it fills no disk, and is
refused rather than lost silently. What custody itself puts aside (unreadable bytes, a torn tail before it is cut:
`keep_evidence`, `keep_cut`) is always kept, because it would be gone otherwise. It is bounded by its origin, a block, a
record or a write, and is kept once.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from custody.errors import (
    BackpressureError,
    CorruptionError,
    CustodyError,
    FormatVersionError,
    NotFoundError,
    StorageError,
)
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.vfs import FileSystem, bytes_on_disk

SUFFIX = ".rejected"
_MEASURE_PART = 64
"""The folder is measured again after this part of the quota was used: other processes add entries, too."""
_MEASURE_SECONDS = 1.0
"""A full folder is not measured more often than this, however much bad input comes."""


class Quota:
    """A bound on the room of a folder's files, which each of several processes may exceed by a sixty-fourth.

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
        """Reserve room for files of these sizes that are about to be written; return for each None, or the refusal."""
        sizes = tuple(map(bytes_on_disk, sizes))
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
            return bytes_on_disk(self._fs.size(self._folder / name))
        except StorageError:
            return 0  # it has just been removed


# As `entry_key` and `_key_of` make them. A key that a user gives becomes part of a path only if it looks like this.
_KEY_DIGITS = 16
_KEY = re.compile(r"([0-9a-f]{16})(?:-[0-9]{1,6})?")
_FILE = re.compile(r"([0-9a-f]{16})\.rejected")
_HEAD = b"custody rejected input 1, envelope of %010d bytes\n"
_HEAD_FORM = re.compile(rb"custody rejected input ([0-9]+), envelope of ([0-9]{10}) bytes\n")
_HEAD_BYTES = len(_HEAD % 0)


class QuarantineEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A piece: why it was rejected, and where it came from."""

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
    pieces: int = 1
    """How many pieces it holds: beyond a number, those of a body are kept as one text."""

    @property
    def is_stored(self) -> bool:
        """Whether the event was stored all the same: a warning, not an error.

        The warning came first. Where the process died in between, the event comes when its sender sends it again.
        """
        return self.severity == "warning"


class EnvelopePiece(msgspec.Struct, frozen=True, kw_only=True):
    """What an envelope has of each piece."""

    key: str
    code: str
    message: str
    index: int | None
    offset: int
    size_bytes: int
    sha256: str
    pieces: int = 1


class QuarantineEnvelope(msgspec.Struct, frozen=True, kw_only=True):
    """What a file has of its body; the bytes of the pieces follow in their order."""

    key: str
    severity: str
    file: str
    node: str | None
    received_ms: int
    format: str
    pieces: tuple[EnvelopePiece, ...]


_ENVELOPE = msgspec.json.Decoder(QuarantineEnvelope)
_OF_PIECE, _OF_BODY = EnvelopePiece.__struct_fields__, ("severity", "file", "node", "received_ms", "format")


class BadPiece(NamedTuple):
    """A piece that is to be kept, and its entry."""

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
    pieces: int = 1,
) -> BadPiece:
    """Return a piece with its entry; the arguments are the fields of that."""
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
        pieces=pieces,
    )
    return BadPiece(raw, entry)


class Quarantine:
    """The rejected input of one repository."""

    def __init__(self, fs: FileSystem, folder: Path, bytes_max: int | None = None) -> None:
        """Keep bodies in a folder; `bytes_max` bounds input from outside."""
        self._fs = fs
        self._folder = folder
        self._quota = None if bytes_max is None else Quota(fs, folder, bytes_max)

    def add(self, piece: BadPiece, *, always: bool = False) -> QuarantineEntry:
        """Keep a piece that is a body of its own; the same piece from the same place, with the same reason, once.

        With `always`, it is kept beyond the quota: for what custody itself puts aside, which is bounded elsewhere.

        Durability: on return the piece survives power loss.

        Raises:
            BackpressureError: the quota is used up; nothing was kept.
        """
        [entries] = self.add_bodies([[piece]], always=always)
        if isinstance(entries, BackpressureError):
            raise entries
        return entries[0]

    def add_bodies(
        self, bodies: Sequence[Sequence[BadPiece]], *, always: bool = False
    ) -> list[list[QuarantineEntry] | BackpressureError]:
        """Keep the pieces of bodies, each body in one file; return the entries of each, or why it was not kept.

        The pieces of a body share its file, node, time, format and severity. There is at least one of them.

        Durability: on return the bodies that have entries survive power loss.
        """
        results: dict[str, list[QuarantineEntry] | BackpressureError] = {}
        new: dict[str, bytes] = {}
        keys = [_key_of(pieces) for pieces in bodies]
        for key, pieces in zip(keys, bodies, strict=True):
            if key in results:
                continue  # the same body once more
            if self._fs.exists(self.path(key)):
                results[key] = self.entries_of(key)
                continue
            kept = _numbered(key, pieces)
            results[key] = [piece.entry for piece in kept]
            new[key] = encode_body(key, kept)
        # Behind the look for the same bodies: one that comes again takes no room.
        if self._quota is not None and not always:
            refusals = self._quota.take(*map(len, new.values()))
            for key, refusal in zip([*new], refusals, strict=True):
                if refusal is not None:
                    results[key] = refusal
                    del new[key]
        if new:
            self._fs.make_directory(self._folder)
            files = {f"{key}{SUFFIX}": data for key, data in new.items()}
            self._fs.write_all_durably(self._folder, [files])
        elif any(not isinstance(result, BackpressureError) for result in results.values()):
            # Its first writer may have died before the name was durable.
            self._fs.sync_directory(self._folder)
        return [results[key] for key in keys]

    def entries(self) -> Iterator[QuarantineEntry]:
        """Yield all entries, by body.

        Raises:
            CorruptionError: the envelope of a body cannot be read.
        """
        for body in self.bodies():
            with suppress(NotFoundError):  # removed since the folder was listed
                yield from self.entries_of(body)

    def known_keys(self) -> Iterator[str]:
        """Yield the keys of all entries; of a body whose envelope is damaged, the body's."""
        for body in self.bodies():
            try:
                keys = [entry.key for entry in self.entries_of(body)]
            except NotFoundError:
                continue  # removed since the folder was listed
            except CustodyError:
                keys = [body]
            yield from keys

    def bodies(self) -> Iterator[str]:
        """Yield the keys of all bodies, those of damaged files included."""
        for name in self._fs.list(self._folder):
            if is_body_file(name):
                yield name.removesuffix(SUFFIX)

    def get(self, key: str) -> QuarantineEntry:
        """Return one entry.

        Raises:
            NotFoundError: no entry has this key.
            CorruptionError: its envelope cannot be read.
        """
        if not _KEY.fullmatch(key):
            raise _no_entry(key)
        for entry in self.entries_of(body_of(key)):
            if entry.key == key:
                return entry
        raise _no_entry(key)

    def raw(self, key: str) -> bytes:
        """Return the piece as it was; raises CorruptionError when its bytes have changed."""
        if not _KEY.fullmatch(key):
            raise _no_entry(key)
        found = [piece for piece in self.pieces(body_of(key)) if piece.entry.key == key]
        return self.checked(found[0] if found else None, key).raw

    def checked(self, piece: BadPiece | None, key: str) -> BadPiece:
        """Return a piece that `pieces` returned, if its bytes are as they were.

        Raises:
            NotFoundError: there is none with this key.
            CorruptionError: they have changed.
        """
        if piece is None:
            raise _no_entry(key)
        # A piece is resubmitted from here: changed bytes must not become events.
        if not is_intact(piece):
            raise CorruptionError(
                f"{self.path(body_of(key))}: expected the piece {key} with SHA-256 {piece.entry.sha256}, "
                "got other bytes"
            )
        return piece

    def pieces(self, body: str) -> list[BadPiece]:
        """Return the pieces of a body with their bytes, whether these are as they were or not.

        Raises:
            NotFoundError: there is no such body.
            CorruptionError: its envelope cannot be read.
        """
        path = self.path(body)
        if not _KEY.fullmatch(body) or not self._fs.exists(path):
            raise _no_entry(body)
        data = self._fs.read(path)
        entries, place = decode_envelope(data, path)
        found = []
        for entry in entries:
            found.append(BadPiece(data[place : place + entry.size_bytes], entry))
            place += entry.size_bytes
        return found

    def remove(self, *keys: str) -> None:
        """Remove entries, because their pieces were stored or a user wants them gone.

        Durability: on return they stay away after power loss. A crash leaves whole bodies, with or without the entries.

        Raises:
            NotFoundError: no entry has one of these keys; nothing was removed.
        """
        if not keys:
            return
        of_bodies: dict[str, set[str]] = defaultdict(set)
        for key in keys:
            if not _KEY.fullmatch(key):
                raise _no_entry(key)
            of_bodies[body_of(key)].add(key)
        for body, gone in of_bodies.items():
            for key in gone.difference(entry.key for entry in self.entries_of(body)):
                raise _no_entry(key)
        for body, gone in of_bodies.items():
            left = [piece for piece in self.pieces(body) if piece.entry.key not in gone]
            if left:
                self._fs.write_durably(self.path(body), encode_body(body, left))
            else:
                self._fs.remove(self.path(body))
        self._fs.sync_directory(self._folder)

    def discard(self, key: str) -> None:
        """Remove an entry, or the whole body where that is unreadable; one that is not there is no error."""
        if not _KEY.fullmatch(key):
            raise _no_entry(key)
        try:
            self.remove(key)
        except NotFoundError:
            return
        except CorruptionError:
            self._fs.remove(self.path(body_of(key)))
            self._fs.sync_directory(self._folder)

    def replace(self, body: str, pieces: Sequence[BadPiece]) -> None:
        """Leave these pieces of a body, or nothing of it; what is in its file now is not looked at.

        Durability: on return it survives power loss.
        """
        if pieces:
            self._fs.write_durably(self.path(body), encode_body(body, pieces))
        else:
            self._fs.remove(self.path(body))
            self._fs.sync_directory(self._folder)

    def entries_of(self, body: str) -> list[QuarantineEntry]:
        """Return the entries of one body, in the order of its pieces; raises as `get`."""
        path = self.path(body)
        if not self._fs.exists(path):
            raise _no_entry(body)
        # Mapped: a list of all entries reads the envelopes, and not the pieces behind them.
        view = self._fs.view(path)
        try:
            entries, _ = decode_envelope(view, path)
        finally:
            view.release()
        return entries

    def path(self, body: str) -> Path:
        """Return the file of a body, whether it is there or not."""
        return self._folder / f"{body}{SUFFIX}"


def is_body_file(name: str) -> bool:
    """Whether a file of this name is that of a body."""
    return _FILE.fullmatch(name) is not None


def is_intact(piece: BadPiece) -> bool:
    """Whether the bytes of a piece are as they were."""
    return hashlib.sha256(piece.raw).hexdigest() == piece.entry.sha256


def entry_key(sha256: str, code: str, file: str, index: int | None, offset: int) -> str:
    """Return the key of a body of one piece with this digest, rejected for this reason, at this place."""
    # The file's name without its folder: the same file from another place adds nothing. The digest is a name on disk:
    # with another one, every piece would be kept again.
    identity = msgspec.json.encode([sha256, code, Path(file).name, index, offset])
    return hashlib.sha256(identity).hexdigest()[:_KEY_DIGITS]


def _key_of(pieces: Sequence[BadPiece]) -> str:
    """Return the key of a body."""
    if len(pieces) == 1:
        return pieces[0].entry.key
    return hashlib.sha256(msgspec.json.encode([piece.entry.key for piece in pieces])).hexdigest()[:_KEY_DIGITS]


def _numbered(body: str, pieces: Sequence[BadPiece]) -> list[BadPiece]:
    """Return the pieces of a body with their keys in it."""
    if len(pieces) == 1:
        return list(pieces)
    return [
        BadPiece(raw, msgspec.structs.replace(entry, key=f"{body}-{number}"))
        for number, (raw, entry) in enumerate(pieces)
    ]


def body_of(key: str) -> str:
    """Return the key of the body that has the piece with this key."""
    return key[:_KEY_DIGITS]


def _no_entry(key: str) -> NotFoundError:
    return NotFoundError(f"no quarantine entry {key!r}. List them: custody quarantine list")


def encode_body(key: str, pieces: Sequence[BadPiece]) -> bytes:
    """Return the bytes of a body's file."""
    shared = {name: getattr(pieces[0].entry, name) for name in _OF_BODY}
    of_pieces = tuple(EnvelopePiece(**{name: getattr(entry, name) for name in _OF_PIECE}) for _, entry in pieces)
    envelope = with_checksum(msgspec.json.encode(QuarantineEnvelope(key=key, pieces=of_pieces, **shared)))
    return b"".join([_HEAD % len(envelope), envelope, b"\n", *(raw for raw, _ in pieces)])


def decode_envelope(data: bytes | memoryview, path: Path) -> tuple[list[QuarantineEntry], int]:
    """Return the entries of a body's file, and where the bytes of its pieces begin.

    Raises:
        CorruptionError: its bytes are not those that were written, as far as the envelope and their number show.
        FormatVersionError: they are of a version that is not known.
    """
    head = _HEAD_FORM.fullmatch(bytes(data[:_HEAD_BYTES]))
    if head is None:
        raise CorruptionError(f"{path}: expected rejected input with its envelope, got other bytes.")
    if head[1] != b"1":
        raise FormatVersionError(
            f"{path}: expected rejected input of version 1, got version {head[1].decode()}. Use a newer custody."
        )
    end = _HEAD_BYTES + int(head[2])
    document = bytes(data[_HEAD_BYTES:end])
    if not has_right_checksum(document) or bytes(data[end : end + 1]) != b"\n":
        raise CorruptionError(f"{path}: expected an envelope with its checksum, got other bytes.")
    try:
        envelope = _ENVELOPE.decode(document)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected an envelope, got {error}") from error
    if envelope.key != path.name.removesuffix(SUFFIX):
        raise CorruptionError(f"{path}: expected the envelope of this body, got that of {envelope.key}.")
    expected = end + 1 + sum(piece.size_bytes for piece in envelope.pieces)
    if len(data) != expected:
        raise CorruptionError(f"{path}: expected {expected} bytes, got {len(data)}.")
    shared = {name: getattr(envelope, name) for name in _OF_BODY}
    entries = [
        QuarantineEntry(**{name: getattr(piece, name) for name in _OF_PIECE}, **shared) for piece in envelope.pieces
    ]
    return entries, end + 1


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
