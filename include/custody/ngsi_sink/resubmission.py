"""Entries of the quarantine that the sink made, and how a user submits one again.

The sink's catalog says what is quarantined or deferred; an entry of the quarantine shows it to people, and names the
object of the sink. To submit an entry again is to write a mark, a small file in the sink's folder: the next run of the
sink reads the marks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from custody.errors import InvalidInputError
from custody.ngsi_sink import batch_file
from custody.ngsi_sink.batch_file import DEFERRED
from custody.ngsi_sink.batch_plan import NOT_WRITTEN
from custody.quarantine import Quarantine, QuarantineEntry, bad_piece
from custody.quarantine.store import entry_key
from custody.vfs import FileSystem

FORMAT = "ngsi-sink"
"""The format of the sink's entries: they are no input, so an ingest does not read them."""
AGAIN = "again"
"""The folder of the marks."""


def is_removable(entry: QuarantineEntry) -> bool:
    """Whether an entry is rejected input, and not work of the sink that waits: without it a destination has a gap."""
    return entry.format != FORMAT


def require_removable(entries: Iterable[QuarantineEntry]) -> None:
    """Raise InvalidInputError where one is not to be removed."""
    for entry in entries:
        if not is_removable(entry):
            raise InvalidInputError(
                f"quarantine entry {entry.key}: expected rejected input, got what the sink of NGSI has still to write. "
                "Mend the target and resubmit it."
            )


def show_entry(quarantine: Quarantine, name: str, data: bytes, now_ms: int) -> None:
    """Show an object of the sink in the quarantine; done again it changes nothing.

    Durability: on return the entry survives power loss.
    """
    code, message, raw, offset = _entry_of(name, data)
    # A full quarantine must not hide it: the sink holds the bytes already.
    quarantine.add(
        bad_piece(
            raw,
            severity="error",
            code=code,
            message=message,
            file=name,
            index=None,
            offset=offset,
            node=None,
            received_ms=now_ms,
            format=FORMAT,
        ),
        always=True,
    )


def key_of_object(name: str, data: bytes) -> str:
    """Return the key of the entry that shows an object."""
    code, _, raw, offset = _entry_of(name, data)
    return entry_key(hashlib.sha256(raw).hexdigest(), code, name, None, offset)


def mark(fs: FileSystem, folder: Path, entry: QuarantineEntry) -> None:
    """Let the next run of the sink, whose folder this is, try an entry again.

    Durability: on return the mark survives power loss. Done again it changes nothing.
    """
    fs.make_directory(folder / AGAIN)
    # Named by the entry's key, so there is one mark however often the user asks.
    fs.write_durably(folder / AGAIN / entry.key, entry.file.encode())


def marks(fs: FileSystem, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the key of each entry that is to be tried again, and the name of the object that it shows."""
    for key in fs.list(folder / AGAIN):
        if "." not in key:  # a file that is still being written durably has a name with a point
            yield key, fs.read(folder / AGAIN / key).decode()


def settle(fs: FileSystem, folder: Path, quarantine: Quarantine, key: str) -> None:
    """Remove an entry that the sink has dealt with, and its mark; done again it changes nothing."""
    # The mark goes last: after a crash in between, the next run finds it and removes it.
    quarantine.discard(key)
    # There may be none: deferred bytes are also taken up unasked, and a crash may have come after the removal.
    if fs.exists(folder / AGAIN / key):
        unmark(fs, folder, key)


def unmark(fs: FileSystem, folder: Path, key: str) -> None:
    """Remove a mark: the entry was tried again and stays in the quarantine."""
    fs.remove(folder / AGAIN / key)
    fs.sync_directory(folder / AGAIN)


def _entry_of(name: str, data: bytes) -> tuple[str, str, bytes, int]:
    """Return what an entry says of an object: code, message, raw bytes, and their offset in the file."""
    if name.startswith(f"{DEFERRED}/"):
        batch = batch_file.decode(data, name)
        # Invariant: an object of deferred bytes has a single append.
        [part] = batch.manifest.parts
        return NOT_WRITTEN, f"{part.path}: {batch.manifest.problem}", bytes(batch.contents[0]), part.offset
    quarantined = batch_file.QUARANTINED_DECODER.decode(data)
    return quarantined.code, quarantined.message, data, 0
