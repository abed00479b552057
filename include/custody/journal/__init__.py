"""Room `journal`: acknowledged events, durable before anything else happens to them."""

from custody.journal.file import JournalFile
from custody.journal.groups import Group, groups, read_group, read_sealed, writers
from custody.journal.sealing import Sealed, seal_abandoned
from custody.journal.writer import JournalWriter, lock_path

__all__ = [
    "Group",
    "JournalFile",
    "JournalWriter",
    "Sealed",
    "groups",
    "lock_path",
    "read_group",
    "read_sealed",
    "seal_abandoned",
    "writers",
]
