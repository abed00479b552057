"""The ledger of the landing folders: an entry for each file that was ingested, with the result.

It saves reading a file again, and tells what happened to it. It does not keep events from being stored twice: their
identity does, so a lost ledger costs time and nothing else.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from custody.errors import CorruptionError, FormatVersionError
from custody.format.checked_json import is_changed, with_checksum
from custody.vfs import FileSystem

# Of an entry on disk; part of its format.
_VERSION = 1
# Digits of the digest that name the folder: 256 folders. Part of the layout: with another number no entry is found.
_FAN_OUT = 2


class LedgerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was ingested to its end: its size and time then, and the counts of its events."""

    file: str
    bytes: int
    modified_ms: int
    writer: str
    read: int
    stored: int
    repeated: int
    rejected: int
    taken_ms: int
    run_id: str | None = None
    version: int = _VERSION


_ENTRY = msgspec.json.Decoder(LedgerEntry)


class LandingLedger:
    """The ledger in a folder: one small file a landed file, named by a digest of its path."""

    def __init__(self, fs: FileSystem, folder: Path) -> None:
        self._fs = fs
        self._folder = folder

    def path(self, file: Path) -> Path:
        """Return the path of a file's entry; a name from outside never becomes part of it."""
        digest = hashlib.sha256(str(file).encode("utf-8", "surrogateescape")).hexdigest()[:32]
        return self._folder / digest[:_FAN_OUT] / f"{digest}.json"

    def find(self, file: Path) -> LedgerEntry | None:
        """Return the entry of a file, or None.

        Raises:
            CorruptionError: the entry cannot be read.
            FormatVersionError: a newer custody wrote it.
        """
        path = self.path(file)
        if not self._fs.exists(path):
            return None
        return decode_ledger_entry(self._fs.read(path), path)

    def add(self, file: Path, entry: LedgerEntry) -> None:
        """Write the entry of a file.

        Durability: on return the entry survives power loss.
        """
        path = self.path(file)
        self._fs.make_directory(path.parent)
        self._fs.write_durably(path, with_checksum(msgspec.json.encode(entry)))


def decode_ledger_entry(data: bytes, path: Path) -> LedgerEntry:
    """Return an entry.

    Raises:
        CorruptionError: it cannot be read, or is not as it was written.
        FormatVersionError: a newer custody wrote it.
    """
    advice = "Remove it: the file is then read again, and no event is stored twice."
    # Entries of older releases have no checksum: they count as unchanged.
    if is_changed(data):
        raise CorruptionError(f"{path}: expected an entry of the ledger with its checksum, got other bytes. {advice}")
    try:
        entry = _ENTRY.decode(data)
    except msgspec.DecodeError as error:
        raise CorruptionError(f"{path}: expected an entry of the ledger: {error}. {advice}") from error
    if entry.version != _VERSION:
        raise FormatVersionError(
            f"{path}: expected version {_VERSION} of a ledger entry, got {entry.version}. Use a newer custody."
        )
    return entry
