"""The table `transactions` of SQL: what the catalogs' transactions that are kept did, counted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pyarrow as pa

from custody.catalog import Transaction
from custody.catalog.codec import decode
from custody.errors import CorruptionError, NotFoundError
from custody.eventlog import Damage
from custody.repository.found import Notices
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


def transactions(workspaces: Sequence[Workspace], notices: Notices) -> pa.Table:
    """Return the transactions of all writers; each was checked against its predecessor, as far as that is there.

    What cannot be read is left out and named: what a later transaction says is lost for good in any case, all else
    only if `notices` take note of it.

    Raises:
        CorruptionError: a transaction is damaged or missing, and `notices` are strict.
    """
    rows = [_row(workspace, each) for workspace in workspaces for each in _of(workspace, notices)]
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def _of(workspace: Workspace, notices: Notices) -> list[Transaction]:
    state = workspace.catalog.load()
    if state.revision < 0:
        return []
    try:
        return list(workspace.catalog.timeline())
    except (CorruptionError, NotFoundError) as error:
        whole, problems = _each(workspace, state.floor, state.revision)
        if not problems:  # all can be read, but one does not follow from the other
            notices(Damage(workspace.paths.home, None, None, None, str(error)))
        known = {lost for each in whole for action in each.actions for lost in action.note.lost_revisions}
        for revision, damage in problems.items():
            if revision in known:
                notices.note(f"{damage} A later revision says that revision {revision} is lost.")
            else:
                notices(damage)
        return whole


def _each(workspace: Workspace, first: int, last: int) -> tuple[list[Transaction], dict[int, Damage]]:
    """Return the transactions that can be read by themselves, and what is wrong with the others, by revision."""
    objects = workspace.catalog.objects
    whole: dict[int, Transaction] = {}
    problems = {
        revision: Damage(
            Path(objects.store.locate(objects.folder(revision).rstrip("/"))),
            None,
            None,
            None,
            f"revision {revision} has no transaction that can be read",
        )
        for revision in range(first, last + 1)
    }
    for item in objects.list():
        if item.is_checkpoint or item.revision not in problems:
            continue
        where = objects.store.locate(item.key)
        try:
            found = decode(objects.store.get(item.key), where)
        except (CorruptionError, NotFoundError) as error:
            problems[item.revision] = Damage(Path(where), None, None, None, str(error))
            continue
        if (found.revision, found.uuid) == (item.revision, item.uuid.bytes):
            whole[item.revision] = found
            del problems[item.revision]
    return [whole[revision] for revision in sorted(whole)], problems


def _row(workspace: Workspace, transaction: Transaction) -> dict[str, object]:
    kinds = [action.WhichOneof("kind") for action in transaction.actions]
    files = [action.add_file for action in transaction.actions if action.HasField("add_file")]
    return {
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
