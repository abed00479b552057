"""The writing of checkpoints: the whole state beside its transaction, a table of statistics, and the hint.

A checkpoint is read back before it counts. The hint names the newest checkpoint, so that a reader need not list the
catalog; it may be old or lost, and no reader relies on it.
"""

from __future__ import annotations

from custody.catalog.chain import Chain
from custody.catalog.codec import decode, digest, encode
from custody.catalog.keys import CatalogObjects
from custody.catalog.state import CatalogState
from custody.catalog.statistics import statistics_table, table_key, write_statistics
from custody.catalog.transaction_pb2 import Transaction
from custody.errors import CorruptionError, CustodyError
from custody.store import ObjectInfo

# Others may write hints at the same time; a hint that is still old after so many tries costs readers a listing only.
_HINT_ATTEMPTS = 10


def checkpoint_message(state: CatalogState) -> Transaction:
    """Return what a checkpoint of a state says; equal states give equal messages."""
    # Sorted, so that two processes that write the checkpoint of one revision write the same bytes.
    paths = sorted(state.files)
    return Transaction(
        revision=state.revision,
        uuid=state.uuid.bytes,
        previous_digest=state.digest,
        commit_time_ms=state.commit_time_ms,
        encoding=Transaction.FULL,
        catalog_id=state.catalog_id.bytes,
        next_event_id=state.next_event_id,
        reader_features=sorted(state.reader_features),
        writer_features=sorted(state.writer_features),
        naming=state.naming,  # type: ignore[arg-type]
        epoch=state.epoch,
        behind_first=state.behind.first,
        behind_last=state.behind.last,
        behind_clock_ms=state.behind.clock_ms,
        live_paths=paths,
        live_files=[state.files.encoded(path) for path in paths],
        actions=state.other_actions(),
    )


def write_checkpoint(objects: CatalogObjects, state: CatalogState) -> ObjectInfo:
    """Write a state's checkpoint, verify it, and write table and hint; a whole one that is there is kept.

    Durability: on return the checkpoint survives power loss.

    Raises:
        CorruptionError: what was read back is not what was written.
    """
    key = objects.key(state.revision, state.uuid, checkpoint=True)
    data = encode(checkpoint_message(state))
    store = objects.store
    if not store.put_if_absent(key, data) and not _is_whole(objects, key, state):
        store.put(key, data)  # nobody can read the damaged one that is there, so nothing is lost by replacing it
    # Read back before the hint names it: later prunings may leave this checkpoint as the only start.
    read_back = store.get(key)
    # A whole checkpoint that was there already is kept, and may have other bytes for the same state.
    if read_back != data:
        decode(read_back, store.locate(key))
        if not _is_whole(objects, key, state):
            raise CorruptionError(f"{store.locate(key)}: read back another checkpoint than was written.")
    # The table and the hint only save work. They come after the checkpoint, so that a crash leaves nothing that
    # misleads.
    write_statistics(objects, state, statistics_table(objects, state))
    write_newest_hint(objects, Chain(objects), state)
    return ObjectInfo(key, len(read_back), state.commit_time_ms)


def write_newest_hint(objects: CatalogObjects, chain: Chain, state: CatalogState | None = None) -> None:
    """Write the hint, which names the newest checkpoint: it spares a listing, and shows that a tail was lost.

    The hint never moves back: it names a newer checkpoint than that of `state` where there is one, also when others
    write one meanwhile. A process that ends in between leaves an older hint, which readers pass over.
    """
    for _ in range(_HINT_ATTEMPTS):
        newest = _newest_behind(objects, chain, -1 if state is None else state.revision)
        # Looked up in each turn: a hint that another process wrote meanwhile must not be moved back.
        if newest is not None:
            state = newest
        if state is None or _is_hinted(chain, state):
            return
        write_hint(objects, state)


def write_hint(objects: CatalogObjects, state: CatalogState) -> None:
    """Write that the newest checkpoint is that of a state."""
    hint = Transaction(
        revision=state.revision, uuid=state.uuid.bytes, previous_digest=state.digest, catalog_id=state.catalog_id.bytes
    )
    objects.store.put(objects.hint, encode(hint))


def remove_checkpoint(objects: CatalogObjects, state: CatalogState) -> None:
    """Delete the checkpoint of a state that is none of the catalog's any more, and its table of statistics."""
    # The table first: a crash in between leaves a checkpoint without a table, which readers can do without.
    objects.store.delete(table_key(objects, state))
    objects.store.delete(objects.key(state.revision, state.uuid, checkpoint=True))
    objects.store.drop_folder(objects.folder(state.revision))


def checkpoint_digest(objects: CatalogObjects, state: CatalogState) -> bytes:
    """Return the SHA-256 of the checkpoint object at a state's revision."""
    return digest(objects.store.get(objects.key(state.revision, state.uuid, checkpoint=True)))


def _newest_behind(objects: CatalogObjects, chain: Chain, revision: int) -> CatalogState | None:
    """Return the state of the newest checkpoint behind a revision that can be read, None without any."""
    for item in reversed([item for item in objects.list(after=revision) if item.is_checkpoint]):
        try:
            checkpoint = chain.checkpoint(item, [])
        except CorruptionError:
            continue
        if checkpoint is not None:
            return checkpoint.state
    return None


def _is_hinted(chain: Chain, state: CatalogState) -> bool:
    hint = chain.hinted()
    return hint is not None and (hint.uuid, hint.previous_digest) == (state.uuid.bytes, state.digest)


def _is_whole(objects: CatalogObjects, key: str, state: CatalogState) -> bool:
    try:
        message = decode(objects.store.get(key), objects.store.locate(key))
    except CustodyError:
        return False
    return message.revision == state.revision and message.previous_digest == state.digest
