"""Room `journal`: acknowledged events, durable before anything else happens to them."""

from custody.journal.container_health import ROOM_BYTES_MIN
from custody.journal.groups import Group, groups, writers
from custody.journal.incarnations import (
    ARCHIVE,
    RETIRED,
    Claim,
    Incarnations,
    holds_group,
    left_to_original,
    purpose_of,
)
from custody.journal.journal_file import JournalDamage, JournalFile, begun_ms, read_header
from custody.journal.journal_writer import JournalOptions, JournalWriter, lock_path
from custody.journal.merge import MergeRange, MergeReader, RangeReader, SlicedJournal
from custody.journal.open_group import SyncPolicy
from custody.journal.sealing import (
    KeepCut,
    PendingEvents,
    SealedJournal,
    count_pending,
    discard_cut,
    read_end,
    seal_abandoned,
)
from custody.journal.writer_state import (
    MissingContainer,
    WriterContainers,
    check_containers,
    decode_state,
    drop_container,
    encode_state,
    missing_containers,
    unmounted_suspects,
    writer_states,
)

__all__ = [
    "ARCHIVE",
    "RETIRED",
    "ROOM_BYTES_MIN",
    "Claim",
    "Group",
    "Incarnations",
    "JournalDamage",
    "JournalFile",
    "JournalOptions",
    "JournalWriter",
    "KeepCut",
    "MergeRange",
    "MergeReader",
    "MissingContainer",
    "PendingEvents",
    "RangeReader",
    "SealedJournal",
    "SlicedJournal",
    "SyncPolicy",
    "WriterContainers",
    "begun_ms",
    "check_containers",
    "count_pending",
    "decode_state",
    "discard_cut",
    "drop_container",
    "encode_state",
    "groups",
    "holds_group",
    "left_to_original",
    "lock_path",
    "missing_containers",
    "purpose_of",
    "read_end",
    "read_header",
    "seal_abandoned",
    "unmounted_suspects",
    "writer_states",
    "writers",
]
