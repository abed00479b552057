"""The first event id that a writer may give out when it starts: above all that any journal holds, or may have held."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from custody.errors import StorageError
from custody.format.names import ContainerPaths
from custody.journal.groups import Group, groups
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

    Raises:
        StorageError: a container went away meanwhile: ids that its journals hold would be given out again.
    """
    uncertain = any(done.may_have_lost for done in recovered)
    least = 0
    for group in _groups_of_all(fs, containers, writer):
        uncertain = uncertain or not group.is_sealed  # its disk was away when the others were sealed
        for path in group.sealed:
            end = read_end(fs, path)
            uncertain = uncertain or end is None
            least = max(least, group.first_event_id)
            if end is not None and end.last_event_id is not None:
                least = max(least, end.last_event_id + 1)
    if uncertain:
        membership.raise_floor(max(membership.reserved, least))
    return max(least, membership.floor)


def _groups_of_all(fs: FileSystem, containers: Sequence[Path], writer: str) -> Iterator[Group]:
    """Yield the groups of each container, one that lies on several with its part on each."""
    for root in containers:
        state = ContainerPaths(root, writer).state  # written by now, and not at the place where a disk is mounted
        was_there = fs.exists(state)
        found = groups(fs, (root,), writer)
        if not (was_there and fs.exists(state)):
            raise StorageError(f"writer {writer!r}: the container {root} went away just now. Mount it and try again.")
        yield from found
