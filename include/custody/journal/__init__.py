"""Room `journal`: acknowledged events, durable before anything else happens to them."""

from custody.journal.file import Damage, JournalFile, read_header
from custody.journal.groups import Group, groups, writers
from custody.journal.incarnations import Claim, Incarnations, is_own
from custody.journal.infirmary import ROOM_BYTES_MIN
from custody.journal.keeping import JournalOptions
from custody.journal.lane import SyncPolicy
from custody.journal.membership import (
    Membership,
    Missing,
    check_containers,
    decode_state,
    drop_container,
    encode_state,
    missing_of,
    suspects,
    writer_states,
)
from custody.journal.merge import MergeReader
from custody.journal.sealing import Sealed, read_end, seal_abandoned
from custody.journal.waiting import Waiting, count_waiting
from custody.journal.writer import JournalWriter, lock_path

__all__ = [
    "ROOM_BYTES_MIN",
    "Claim",
    "Damage",
    "Group",
    "Incarnations",
    "JournalFile",
    "JournalOptions",
    "JournalWriter",
    "Membership",
    "MergeReader",
    "Missing",
    "Sealed",
    "SyncPolicy",
    "Waiting",
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
