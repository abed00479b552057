"""Writing checkpoints: the whole state beside its transaction, a table of statistics, and the hint where to start."""

from __future__ import annotations

from custody.catalog.codec import decode, digest, encode
from custody.catalog.objects import Objects
from custody.catalog.state import CatalogState
from custody.catalog.statistics import statistics_table, write_statistics
from custody.catalog.transaction_pb2 import Transaction
from custody.errors import CorruptionError, CustodyError
from custody.store import ObjectInfo


def checkpoint_message(state: CatalogState) -> Transaction:
    """Return what a checkpoint of a state says; equal states give equal messages."""
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
        live_paths=paths,
        live_files=[state.files.encoded(path) for path in paths],
        actions=state.other_actions(),
    )


def write_checkpoint(objects: Objects, state: CatalogState) -> ObjectInfo:
    """Write a state's checkpoint, verify it, and write table and hint; a whole one that is there is kept.

    Durability: on return the checkpoint survives power loss.

    Raises:
        CorruptionError: what was read back is not what was written.
    """
    key = objects.key(state.revision, state.uuid, checkpoint=True)
    data = encode(checkpoint_message(state))
    store = objects.store
    if not store.put_if_absent(key, data) and not _is_whole(objects, key, state):
        store.put(key, data)  # a damaged one: nobody can read it, so nobody misses it
    found = store.get(key)
    if found != data:
        decode(found, store.locate(key))
        if not _is_whole(objects, key, state):
            raise CorruptionError(f"{store.locate(key)}: read back another checkpoint than was written.")
    write_statistics(objects, state, statistics_table(objects, state))
    write_hint(objects, state)
    return ObjectInfo(key, len(found), state.commit_time_ms)


def write_hint(objects: Objects, state: CatalogState) -> None:
    """Write where the newest checkpoint lies: it spares a listing, and shows a lost tail."""
    hint = Transaction(
        revision=state.revision, uuid=state.uuid.bytes, previous_digest=state.digest, catalog_id=state.catalog_id.bytes
    )
    objects.store.put(objects.hint, encode(hint))


def checkpoint_digest(objects: Objects, state: CatalogState) -> bytes:
    """Return the SHA-256 of the checkpoint object at a state's revision."""
    return digest(objects.store.get(objects.key(state.revision, state.uuid, checkpoint=True)))


def _is_whole(objects: Objects, key: str, state: CatalogState) -> bool:
    try:
        message = decode(objects.store.get(key), objects.store.locate(key))
    except CustodyError:
        return False
    return message.revision == state.revision and message.previous_digest == state.digest
