"""Room `journal`: acknowledged events, durable before anything else happens to them."""

from custody.journal.file import JournalFile
from custody.journal.groups import Group, groups, read_group, read_sealed, writers
from custody.journal.lane import SyncPolicy
from custody.journal.sealing import Sealed, seal_abandoned
from custody.journal.writer import JournalOptions, JournalWriter, lock_path

__all__ = [
    "Group",
    "JournalFile",
    "JournalOptions",
    "JournalWriter",
    "Sealed",
    "SyncPolicy",
    "groups",
    "lock_path",
    "read_group",
    "read_sealed",
    "seal_abandoned",
    "writers",
]
