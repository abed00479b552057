"""Repairs of what holds no live event: entries of the quarantine, and small files that remember something.

What cannot be read is kept in the quarantine under a new entry before it is removed.
"""

from __future__ import annotations

from pathlib import Path

from custody.maintenance.repair.actions import quarantine_bytes
from custody.quarantine import Quarantine
from custody.workspace import Workspace


def mend_quarantine(workspace: Workspace, key: str, reason: str) -> str:
    """Keep the piece of a damaged entry, and its envelope, each under a new one, then remove it."""
    fs, folder = workspace.fs, workspace.settings.quarantine
    raw = folder / f"{key}.raw"
    data = fs.read(raw) if fs.exists(raw) else b""
    entry = quarantine_bytes(workspace, data, code="quarantine-damage", message=reason, path=str(raw), offset=0)
    _keep_envelope(workspace, key, reason)
    # Last: a crash before it leaves the damaged entry beside its new one, and a repetition keeps the same bytes once.
    Quarantine(fs, folder).discard(key)
    return f"kept as {entry.key}"


def drop_entry(workspace: Workspace, key: str, reason: str) -> str:
    """Remove an entry whose piece is gone; its envelope becomes a piece."""
    _keep_envelope(workspace, key, reason)
    Quarantine(workspace.fs, workspace.settings.quarantine).discard(key)
    return "removed; its envelope is kept as a piece"


def drop_record(workspace: Workspace, path: Path, reason: str) -> str:
    """Remove a small file that remembers something and cannot be read; its bytes are kept in the quarantine."""
    fs = workspace.fs
    entry = quarantine_bytes(workspace, fs.read(path), code="record-damage", message=reason, path=str(path), offset=0)
    # The quarantine has the bytes durably: only now may the file go.
    fs.remove(path)
    fs.sync_directory(path.parent)
    return f"kept as {entry.key}, and removed"


def _keep_envelope(workspace: Workspace, key: str, reason: str) -> None:
    path = workspace.settings.quarantine / f"{key}.json"
    data = workspace.fs.read(path)
    quarantine_bytes(workspace, data, code="quarantine-envelope", message=reason, path=str(path), offset=0)
