"""Sealing: a journal gets its final name, after which nobody appends to it.

The caller holds the writer's lock, so that the journal cannot grow meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from custody.format.names import ContainerPaths, JournalName
from custody.journal.file import JournalFile
from custody.journal.groups import groups
from custody.vfs import TEMPORARY_SUFFIX, FileSystem


@dataclass(frozen=True, slots=True)
class Sealed:
    """What sealing a dead writer's journal found."""

    path: Path
    """Its name from now on; the old name when the journal was removed."""
    lost_bytes: int
    """Bytes of a torn tail: an append that nobody was told of."""
    removed: bool
    """The journal held nothing at all."""


def seal(fs: FileSystem, path: Path) -> Path:
    """Give a synced journal its final name.

    Durability: on return the name survives power loss.
    """
    name = JournalName.parse(path.name)
    if name is None or name.sealed:
        raise ValueError(f"{path} is not an open journal")
    target = path.with_name(str(JournalName(name.first_event_id, name.number, sealed=True)))
    fs.rename(path, target)
    fs.sync_directory(path.parent)
    return target


def seal_abandoned(fs: FileSystem, containers: Iterable[Path], writer: str) -> list[Sealed]:
    """Seal what a dead writer left open: cut the torn tail, sync, rename; an empty journal is removed.

    Journals that never got their name are removed too.

    Raises:
        CorruptionError: a journal is damaged in its middle; it is left as it is.
    """
    containers = tuple(containers)
    _remove_unnamed(fs, containers, writer)
    done = []
    for group in groups(fs, containers, writer):
        for path in group.open:
            journal = JournalFile.read(fs, path)
            lost = journal.torn.lost_bytes if journal.torn else 0
            if journal.is_empty:
                fs.remove(path)
                fs.sync_directory(path.parent)
                done.append(Sealed(path, lost, removed=True))
                continue
            if journal.torn is not None:
                fs.truncate(path, journal.intact_bytes)
            fs.sync_file(path)
            done.append(Sealed(seal(fs, path), lost, removed=False))
    return done


def _remove_unnamed(fs: FileSystem, containers: Iterable[Path], writer: str) -> None:
    for root in containers:
        folder = ContainerPaths(root, writer).journals
        for name in fs.list(folder):
            if name.endswith(TEMPORARY_SUFFIX):
                fs.remove(folder / name)
