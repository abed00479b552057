"""Room `journal`: acknowledged events, durable before anything else happens to them."""

from custody.journal.file import Damage, JournalFile
from custody.journal.groups import Group, groups, writers
from custody.journal.infirmary import ROOM_BYTES_MIN
from custody.journal.keeping import JournalOptions
from custody.journal.lane import SyncPolicy
from custody.journal.membership import (
    check_containers,
    decode_state,
    drop_container,
    encode_state,
    writer_states,
)
from custody.journal.merge import MergeReader
from custody.journal.sealing import Sealed, read_end, seal_abandoned
from custody.journal.waiting import Waiting, count_waiting
from custody.journal.writer import JournalWriter, lock_path

__all__ = [
    "ROOM_BYTES_MIN",
    "Damage",
    "Group",
    "JournalFile",
    "JournalOptions",
    "JournalWriter",
    "MergeReader",
    "Sealed",
    "SyncPolicy",
    "Waiting",
    "check_containers",
    "count_waiting",
    "decode_state",
    "drop_container",
    "encode_state",
    "groups",
    "lock_path",
    "read_end",
    "seal_abandoned",
    "writer_states",
    "writers",
]
