"""Questions about the past of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from custody.catalog.codec import decode
from custody.catalog.conflict import PrunedError
from custody.catalog.objects import Objects
from custody.catalog.state import CatalogState
from custody.catalog.transaction_pb2 import AddFile, AddShard
from custody.errors import CorruptionError, NotFoundError


@dataclass(frozen=True, slots=True)
class Difference:
    """What became live and what ceased to be between two revisions."""

    added: Mapping[str, AddFile]
    removed: Mapping[str, AddFile]
    shards_added: Mapping[str, AddShard]
    shards_removed: Mapping[str, AddShard]


def revision_at(objects: Objects, newest: CatalogState, time_ms: int) -> int:
    """Return the last revision that was committed at or before a time; reads a logarithmic number of them.

    Raises:
        NotFoundError: the catalog begins later.
        PrunedError: what is kept of it does.
    """
    low, high = newest.floor, newest.revision
    if high < 0 or _commit_time(objects, low) > time_ms:
        if newest.floor:
            raise PrunedError(f"{objects}: that time was pruned, the earliest revision is {low}.", low)
        raise NotFoundError(f"{objects}: nothing was committed at that time yet.")
    while low < high:
        middle = (low + high + 1) // 2
        if _commit_time(objects, middle) <= time_ms:
            low = middle
        else:
            high = middle - 1
    return low


def _commit_time(objects: Objects, revision: int) -> int:
    # The transaction first: a checkpoint beside it may be damaged, and stands in only where it is lost.
    for item in sorted(objects.at(revision), key=lambda item: item.is_checkpoint):
        return decode(objects.store.get(item.key), objects.store.locate(item.key)).commit_time_ms
    raise CorruptionError(f"{objects}: expected revision {revision}, got no file.")
