"""Cursors of an export: by writer, the id of the next event to deliver. docs/formats/export-cursors.md.

The file is replaced after each delivery and never before, so a crash repeats the last delivery and loses none. It is
written through the file system of the export's lease: an attempt that another one took over from moves no cursor back.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from custody.errors import CorruptionError, EarlierStateError, FormatVersionError
from custody.format.checked_json import has_right_checksum, with_checksum
from custody.vfs import FileSystem

CURSORS_FILE = "cursors.json"
_VERSION = 1


class Cursors(msgspec.Struct, frozen=True, kw_only=True):
    """How far an export is."""

    format_version: int = _VERSION
    export: str
    updated_ms: int = 0
    next_event_ids: dict[str, int] = {}
    delivered: int = 0
    """Events that were delivered, repetitions included."""
    refused: int = 0
    """Events that the receiver refused and the quarantine has."""

    def encode(self) -> bytes:
        """Return the file's bytes."""
        return with_checksum(msgspec.json.encode(self, order="sorted"))


_CURSORS = msgspec.json.Decoder(Cursors)


def read_cursors(fs: FileSystem, folder: Path, export: str) -> Cursors | None:
    """Return how far an export is; None before its first delivery.

    Raises:
        CorruptionError: the file is damaged, or belongs to another export.
        FormatVersionError: it is of a version that this code does not know.
    """
    path = folder / CURSORS_FILE
    if not fs.exists(path):
        return None
    data = fs.read(path)
    if not has_right_checksum(data):
        raise _unusable(path, export, "cursors with their checksum, got other bytes")
    try:
        cursors = _CURSORS.decode(data)
    except msgspec.DecodeError as error:
        raise _unusable(path, export, f"cursors, got {error}") from error
    if cursors.format_version != _VERSION:
        raise FormatVersionError(f"{path}: expected format_version {_VERSION}, got {cursors.format_version}.")
    if cursors.export != export:
        raise _unusable(path, export, f"cursors of the export {export!r}, got those of {cursors.export!r}")
    return cursors


def require_known(fs: FileSystem, home: Path, writer: str, next_event_id: int) -> None:
    """Raise EarlierStateError where an export has delivered events of a writer that get their ids only now.

    `home` is the folder of all exports; cursors that cannot be read tell nothing.
    """
    for name in fs.list(home):
        cursors = None
        with suppress(CorruptionError, FormatVersionError):
            cursors = read_cursors(fs, home / name, name)
        position = 0 if cursors is None else cursors.next_event_ids.get(writer, 0)
        if position > next_event_id:
            raise EarlierStateError(
                f"writer {writer!r}: its events are of an earlier moment: expected ids up to {position - 1}, which "
                f"export {name!r} has delivered by {home / name}, got ids up to {next_event_id - 1}. Nothing is "
                f"written. Bring the newer state back. To go on from the earlier one for good: custody export {name} "
                f"--rewind {writer}:{next_event_id}"
            )


def write_cursors(fs: FileSystem, folder: Path, cursors: Cursors) -> None:
    """Replace the cursors of an export. Durability: on return they survive power loss."""
    fs.make_directory(folder)
    fs.write_durably(folder / CURSORS_FILE, cursors.encode())


def _unusable(path: Path, export: str, what: str) -> CorruptionError:
    return CorruptionError(
        f"{path}: expected {what}. Bring it back from a backup, or say where to go on, for each writer: "
        f"custody export {export} --rewind WRITER:EVENT_ID"
    )
