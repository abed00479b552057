"""Repairs of what holds no live event: entries of the quarantine, and small files that remember something.

What cannot be read is kept in the quarantine under a new entry before it is removed.
"""

from __future__ import annotations

from pathlib import Path

from custody.errors import CorruptionError
from custody.maintenance.repair.actions import quarantine_bytes
from custody.quarantine import Quarantine, QuarantineEntry, is_intact
from custody.workspace import Workspace


def mend_quarantine(workspace: Workspace, body: str, reason: str) -> str:
    """Keep the damaged pieces of a body, or all of its file, under new entries; the intact pieces stay."""
    fs, folder = workspace.fs, workspace.settings.quarantine
    quarantine = Quarantine(fs, folder)
    path = quarantine.path(body)
    try:
        pieces = quarantine.pieces(body)
    except CorruptionError:
        entry = _keep(workspace, fs.read(path), reason, path, 0)
        # Last: a crash before it leaves the damaged body beside its new entry, and a repetition keeps it once.
        quarantine.replace(body, [])
        return f"kept as {entry.key}"
    intact = [piece for piece in pieces if is_intact(piece)]
    damaged = [piece for piece in pieces if not is_intact(piece)]
    kept = [
        _keep(workspace, piece.raw, f"{reason} It was: {piece.entry.message}", path, number).key
        for number, piece in enumerate(damaged)
    ]
    quarantine.replace(body, intact)
    return f"kept as {', '.join(kept)}"


def drop_record(workspace: Workspace, path: Path, reason: str) -> str:
    """Remove a small file that remembers something and cannot be read; its bytes are kept in the quarantine."""
    fs = workspace.fs
    entry = quarantine_bytes(workspace, fs.read(path), code="record-damage", message=reason, path=str(path), offset=0)
    # The quarantine has the bytes durably: only now may the file go.
    fs.remove(path)
    fs.sync_directory(path.parent)
    return f"kept as {entry.key}, and removed"


def _keep(workspace: Workspace, data: bytes, reason: str, path: Path, offset: int) -> QuarantineEntry:
    return quarantine_bytes(workspace, data, code="quarantine-damage", message=reason, path=str(path), offset=offset)
