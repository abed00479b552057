"""The table `transactions` of SQL: what the catalogs' transactions that are kept did, counted."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import pyarrow as pa

from custody.rollover import Workspace

NAME = "transactions"
SCHEMA = pa.schema(
    [
        ("writer", pa.string()),
        ("revision", pa.int64()),
        ("committed", pa.timestamp("ms", tz="UTC")),
        ("uuid", pa.string()),
        ("previous_digest", pa.string()),
        ("next_event_id", pa.int64()),
        ("files_added", pa.int64()),
        ("events_added", pa.int64()),
        ("bytes_added", pa.int64()),
        ("shards_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("shards_removed", pa.int64()),
        ("other", pa.list_(pa.string())),
    ]
)
_COUNTED = ("add_file", "add_shard", "remove_file", "remove_shard")


def transactions(workspaces: Sequence[Workspace]) -> pa.Table:
    """Return the transactions of all writers; each was checked against its predecessor.

    Raises:
        CorruptionError: a transaction is damaged or missing.
    """
    rows = [row for workspace in workspaces for row in _rows(workspace)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _rows(workspace: Workspace) -> Iterator[dict[str, object]]:
    if workspace.catalog.load().revision < 0:
        return
    for transaction in workspace.catalog.timeline():
        kinds = [action.WhichOneof("kind") for action in transaction.actions]
        files = [action.add_file for action in transaction.actions if action.HasField("add_file")]
        yield {
            "writer": workspace.writer,
            "revision": transaction.revision,
            "committed": transaction.commit_time_ms,
            "uuid": str(UUID(bytes=transaction.uuid)),
            "previous_digest": transaction.previous_digest.hex(),
            "next_event_id": transaction.next_event_id,
            "files_added": len(files),
            "events_added": sum(file.rows for file in files),
            "bytes_added": sum(file.size_bytes for file in files),
            "shards_added": kinds.count("add_shard"),
            "files_removed": kinds.count("remove_file"),
            "shards_removed": kinds.count("remove_shard"),
            "other": [kind for kind in kinds if kind not in _COUNTED],
        }
