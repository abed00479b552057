"""Whether a log that no revision lists can be made again: only then may it go.

Such a log is what an attempt left that ended before its commit, and its journals are there. Or it is the last copy of
acknowledged events: its transaction is lost, and journals of later events happen to begin with the same id. First ids
prove nothing, so the events themselves are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from custody.errors import CorruptionError, CustodyError
from custody.eventlog import EventLog
from custody.eventlog.blocks import numbers, one_chunk
from custody.journal import JournalFile
from custody.model import EVENT_SCHEMA
from custody.workspace.workspace import Workspace

_PIECE_BYTES = 64 << 20


def can_be_made_again(
    workspace: Workspace, path: Path, others: Callable[[], Iterator[pa.Table]] = lambda: iter(())
) -> bool:
    """Whether the journals of its groups, or others, hold every event that can be read of a log, equal in all columns.

    A log that a disk or a newer custody withholds is not taken for one that can be made again.
    """
    try:
        try:
            log = EventLog(workspace.fs, path)
        except CorruptionError:
            return True  # nobody can read an event of it
        if (log.metadata.writer, log.metadata.database) != (workspace.writer, workspace.database):
            return False
        events = log.read(on_damage=lambda _: None).select(EVENT_SCHEMA.names)
        journals = [
            journal for group in workspace.groups(log.metadata.groups) for journal in (*group.sealed, *group.open)
        ]
        held = np.zeros(events.num_rows, np.bool_)
        for journal in journals:
            for piece in JournalFile.read(workspace.fs, journal).tables(_PIECE_BYTES):
                held |= _equal(events, piece.select(EVENT_SCHEMA.names))
        for piece in () if held.all() else others():
            held |= _equal(events, piece.select(EVENT_SCHEMA.names))
    # Whatever is wrong with log or journals, nothing is proven.
    except (CustodyError, OSError, pa.ArrowException, ValueError, KeyError):
        return False
    return bool(held.all())


def _equal(events: pa.Table, others: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which of some events are among others under the same id; all or none of those with a common id."""
    ids = one_chunk(events.column("event_id"))
    is_common = pc.is_in(ids, one_chunk(others.column("event_id")))
    mine = events.filter(is_common)
    theirs = others.filter(pc.is_in(one_chunk(others.column("event_id")), ids)).sort_by("event_id")
    if mine.num_rows != theirs.num_rows or not mine.sort_by("event_id").equals(theirs):
        return np.zeros(len(numbers(ids, np.int64)), np.bool_)
    return np.asarray(is_common)
