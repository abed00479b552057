"""The first event id that a writer may give out when it starts: above all that any journal holds, or may have held."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from custody.journal.groups import groups
from custody.journal.membership import Membership
from custody.journal.sealing import Sealed, read_end
from custody.vfs import FileSystem


def least_free_id(
    fs: FileSystem,
    containers: Sequence[Path],
    writer: str,
    membership: Membership,
    recovered: Sequence[Sealed],
) -> int:
    """Return the first id that no journal holds; one that certainly none ever held, if they cannot tell.

    All journals are sealed, `recovered` by the caller just now. Only their end records are read.
    """
    uncertain = any(done.may_have_lost for done in recovered)
    least = 0
    for group in groups(fs, containers, writer):
        for path in group.sealed:
            end = read_end(fs, path)
            uncertain = uncertain or end is None
            least = max(least, group.first_event_id)
            if end is not None and end.last_event_id is not None:
                least = max(least, end.last_event_id + 1)
    if uncertain:
        membership.raise_floor(max(membership.reserved, least))
    return max(least, membership.floor)
