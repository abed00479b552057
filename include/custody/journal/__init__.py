"""Room `journal`: acknowledged events, durable before anything else happens to them."""

from custody.journal.container_health import ROOM_BYTES_MIN
from custody.journal.groups import Group, groups, writers
from custody.journal.incarnations import Claim, Incarnations, is_own
from custody.journal.journal_file import Damage, JournalFile, read_header
from custody.journal.journal_writer import JournalOptions, JournalWriter, lock_path
from custody.journal.merge import MergeReader
from custody.journal.open_group import SyncPolicy
from custody.journal.sealing import Sealed, Waiting, count_waiting, read_end, seal_abandoned
from custody.journal.writer_state import (
    Missing,
    WriterContainers,
    check_containers,
    decode_state,
    drop_container,
    encode_state,
    missing_of,
    suspects,
    writer_states,
)

__all__ = [
    "ROOM_BYTES_MIN",
    "Claim",
    "Damage",
    "Group",
    "Incarnations",
    "JournalFile",
    "JournalOptions",
    "JournalWriter",
    "MergeReader",
    "Missing",
    "Sealed",
    "SyncPolicy",
    "Waiting",
    "WriterContainers",
    "check_containers",
    "count_waiting",
    "decode_state",
    "drop_container",
    "encode_state",
    "groups",
    "is_own",
    "lock_path",
    "missing_of",
    "read_end",
    "read_header",
    "seal_abandoned",
    "suspects",
    "writer_states",
    "writers",
]
