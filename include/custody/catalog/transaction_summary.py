"""What a transaction did, counted: for listings."""

from __future__ import annotations

from uuid import UUID

import msgspec

from custody.catalog.transaction_pb2 import Transaction

_COUNTED = ("add_file", "add_shard", "remove_file", "remove_shard")


class TransactionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One transaction of a catalog; its time in ms since the epoch."""

    revision: int
    commit_time_ms: int
    uuid: str
    previous_digest: str
    """SHA-256 of the transaction before, hexadecimal."""
    files_added: int
    events_added: int
    shards_added: int
    removed: int
    other: tuple[str, ...]
    """The kinds of its other actions."""


def summary_of(transaction: Transaction) -> TransactionSummary:
    """Return what a transaction did."""
    kinds = [str(action.WhichOneof("kind")) for action in transaction.actions]
    return TransactionSummary(
        revision=transaction.revision,
        commit_time_ms=transaction.commit_time_ms,
        uuid=str(UUID(bytes=transaction.uuid)),
        previous_digest=transaction.previous_digest.hex(),
        files_added=kinds.count("add_file"),
        events_added=sum(action.add_file.rows for action in transaction.actions if action.HasField("add_file")),
        shards_added=kinds.count("add_shard"),
        removed=kinds.count("remove_file") + kinds.count("remove_shard"),
        other=tuple(kind for kind in kinds if kind not in _COUNTED),
    )
