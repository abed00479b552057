"""How many events wait in journals, and up to which id: from what sealed journals say of themselves at their end.

Gigabytes may wait when no rollover ran for hours; of those only the journals that still grow are read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from custody.journal.file import JournalFile
from custody.journal.groups import Group
from custody.journal.sealing import read_end
from custody.vfs import FileSystem


@dataclass(frozen=True, slots=True)
class Waiting:
    """What some groups hold; of a sealed journal what it held when it was sealed, whatever was damaged since."""

    events: int
    next_event_id: int
    """One more than the greatest id; 0 when there is no event."""


def count_waiting(fs: FileSystem, groups: Iterable[Group]) -> Waiting:
    """Count the events of some groups.

    Raises:
        StorageError: a journal is gone: it was sealed or swept in this moment.
    """
    paths = [path for group in groups for path in (*group.sealed, *group.open)]
    ends = [read_end(fs, path) or JournalFile.read(fs, path).counted() for path in paths]
    last = max((end.last_event_id for end in ends if end.last_event_id is not None), default=-1)
    return Waiting(sum(end.events for end in ends), last + 1)
