"""What custody itself puts aside: bytes that cannot be read, or that it is about to cut, as they were.

There is always room for them, whatever `repository.quarantine_bytes_max` says: what is not kept here is gone. They are
bounded by what they come from, a block, a record, a write, and are kept once, however often they are put aside.
"""

from __future__ import annotations

from pathlib import Path

from custody.quarantine.store import Entry, Quarantine
from custody.vfs import FileSystem


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
) -> Entry:
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


def keep_cut(fs: FileSystem, folder: Path, now_ms: int, path: Path, offset: int, data: bytes, what: str) -> Entry:
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
