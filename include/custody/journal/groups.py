"""Groups: the journals of one writer that were opened together, found on disk by their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from custody.errors import CorruptionError
from custody.format.names import ContainerPaths, JournalName
from custody.journal.file import JournalFile
from custody.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Group:
    """One writer's journals with a common first event id."""

    writer: str
    first_event_id: int
    sealed: tuple[Path, ...]
    open: tuple[Path, ...]

    @property
    def is_sealed(self) -> bool:
        """Whether no journal of the group can grow any more."""
        return not self.open


def writers(fs: FileSystem, containers: Iterable[Path]) -> list[str]:
    """Return the names of all writers that ever had a journal here."""
    return sorted({name for root in containers for name in fs.list(root) if fs.exists(root / name / "journals")})


def groups(fs: FileSystem, containers: Iterable[Path], writer: str) -> list[Group]:
    """Return a writer's groups over all containers, by first event id."""
    found: dict[int, tuple[list[Path], list[Path]]] = defaultdict(lambda: ([], []))
    for root in containers:
        folder = ContainerPaths(root, writer).journals
        for text in fs.list(folder):
            name = JournalName.parse(text)
            if name is not None:
                found[name.first_event_id][0 if name.sealed else 1].append(folder / text)
    return [Group(writer, first, tuple(found[first][0]), tuple(found[first][1])) for first in sorted(found)]


def read_sealed(fs: FileSystem, path: Path) -> JournalFile:
    """Read a sealed journal: it was cut to its intact part, so a torn tail is damage here.

    Raises:
        CorruptionError: the file is damaged or shorter than it was when it was sealed.
    """
    journal = JournalFile.read(fs, path)
    if journal.torn is not None or journal.header is None:
        offset = journal.torn.offset if journal.torn else 0
        raise CorruptionError(f"{path} @{offset}: expected a whole sealed journal, got a record that breaks off.")
    return journal


def read_group(fs: FileSystem, group: Group) -> pa.Table:
    """Return all events of a sealed group in event-id order."""
    table = pa.concat_tables([read_sealed(fs, path).table() for path in group.sealed])
    return table.sort_by("event_id")
