"""Questions about the past of a catalog."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from custody.catalog.chain import Chain
from custody.catalog.codec import decode
from custody.catalog.conflict import PrunedError
from custody.catalog.objects import Found, Objects
from custody.catalog.state import CatalogState
from custody.catalog.transaction_pb2 import AddFile, AddShard
from custody.catalog.wellformed import check_delta, check_full
from custody.errors import CorruptionError, CustodyError, NotFoundError, StorageError


@dataclass(frozen=True, slots=True)
class Difference:
    """What became live and what ceased to be between two revisions."""

    added: Mapping[str, AddFile]
    removed: Mapping[str, AddFile]
    shards_added: Mapping[str, AddShard]
    shards_removed: Mapping[str, AddShard]


def last_commit_ms(objects: Objects) -> int | None:
    """Return when the newest object that can be read was committed, in ms; None when none can be.

    For a catalog that cannot be opened: each object is trusted for its own checksum, none for its place in the chain.
    """
    for item in reversed(list(objects.list())):
        where = objects.store.locate(item.key)
        try:
            message = decode(objects.store.get(item.key), where)
            (check_full if item.is_checkpoint else check_delta)(message, where)
        except CustodyError:
            continue
        return message.commit_time_ms
    return None


def revision_at(chain: Chain, newest: CatalogState, time_ms: int) -> int:
    """Return the last revision that was committed at or before a time; reads a logarithmic number of them.

    Raises:
        NotFoundError: the catalog begins later.
        PrunedError: what is kept of it does.
    """
    low, high = newest.floor, newest.revision
    times = _Times(chain, newest)
    if high < 0 or times.of(low) > time_ms:
        if newest.floor:
            raise PrunedError(f"{chain.objects}: that time was pruned, the earliest revision is {low}.", low)
        raise NotFoundError(f"{chain.objects}: nothing was committed at that time yet.")
    while low < high:
        middle = (low + high + 1) // 2
        if times.of(middle) <= time_ms:
            low = middle
        else:
            high = middle - 1
    return low


class _Times:
    """When revisions were committed, by their own transactions: a foreign one beside them says nothing."""

    def __init__(self, chain: Chain, newest: CatalogState) -> None:
        self._chain = chain
        self._objects = chain.objects
        self._newest = newest

    def of(self, revision: int) -> int:
        """Return a commit time in ms.

        Raises:
            CorruptionError: neither the transaction nor a checkpoint beside it can be read.
        """
        if revision == self._newest.revision:
            return self._newest.commit_time_ms
        reasons = []
        # The transaction first: a checkpoint beside it may be damaged, and stands in only where it is lost.
        for item in sorted(self._own(revision), key=lambda item: item.is_checkpoint):
            where = self._objects.store.locate(item.key)
            try:
                message = decode(self._objects.store.get(item.key), where)
                (check_full if item.is_checkpoint else check_delta)(message, where)
            except (CorruptionError, NotFoundError, StorageError) as error:
                reasons.append(str(error))
            else:
                return message.commit_time_ms
        said = f" {reasons[0]}" if reasons else ""
        raise CorruptionError(f"{self._objects}: expected revision {revision}, got no file that can be read.{said}")

    def _own(self, revision: int) -> list[Found]:
        """Return the objects of the chain at a revision: only those when there are others beside them."""
        found = self._objects.at(revision)
        if len({item.uuid for item in found}) < 2:
            return found
        uuid = self._chain.at(revision).uuid
        return [item for item in found if item.uuid == uuid]
