"""The quarantine: envelopes with their checksums, and the pieces that they speak of."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from custody.errors import CustodyError
from custody.maintenance.findings import Finding, Level
from custody.quarantine import Quarantine
from custody.vfs import FileSystem


def check_quarantine(fs: FileSystem, folder: Path, level: Level) -> Iterator[Finding]:
    """Yield what is wrong with the entries of a quarantine."""
    quarantine = Quarantine(fs, folder)
    for key in quarantine.known_keys():
        try:
            entry = quarantine.get(key)
        except CustodyError as error:
            if fs.exists(folder / f"{key}.json"):
                yield _finding("quarantine-damaged", folder / f"{key}.json", str(error), key)
            continue
        path = folder / f"{key}.raw"
        if not fs.exists(path):
            yield _finding("quarantine-missing", path, f"{path}: expected the piece of an entry, found no file.", key)
            continue
        try:
            if level is not Level.QUICK:
                quarantine.raw(key)
            elif fs.size(path) != entry.size_bytes:
                text = f"{path}: expected {entry.size_bytes} bytes, got {fs.size(path)}."
                yield _finding("quarantine-damaged", path, text, key)
        except CustodyError as error:
            yield _finding("quarantine-damaged", path, str(error), key)


def _finding(kind: str, path: Path, text: str, key: str) -> Finding:
    return Finding(kind=kind, path=str(path), message=text, name=key)
