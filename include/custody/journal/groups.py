"""Groups: the journals of one writer that were opened together, found on disk by their names."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from custody.format.names import ID_DIGITS, JournalName, container_paths
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
    # Other folders may lie on a disk, such as lost+found.
    return sorted(
        {name for root in containers for name in fs.list(root) if fs.exists(container_paths(root, name).journals)}
    )


def groups(
    fs: FileSystem, containers: Iterable[Path], writer: str, among: Collection[int] | None = None
) -> list[Group]:
    """Return a writer's groups over all containers, by first event id; `among` limits them to some first ids."""
    prefixes = None if among is None else {f"{first:0{ID_DIGITS}d}" for first in among}
    journals: dict[int, tuple[list[Path], list[Path]]] = defaultdict(lambda: ([], []))
    for root in containers:
        folder = container_paths(root, writer).journals
        for text in fs.list(folder):
            if prefixes is not None and text[:ID_DIGITS] not in prefixes:
                continue
            name = JournalName.parse(text)
            if name is not None:
                journals[name.first_event_id][0 if name.sealed else 1].append(folder / text)
    return [Group(writer, first, tuple(sealed), tuple(open_)) for first, (sealed, open_) in sorted(journals.items())]
