"""Marking: one transaction a writer takes what the plan chose out of the catalog. Nothing is deleted here.

From that transaction on no reader finds the events; one that has begun still finds the files. The transaction says
which holds it knew, so that it does not apply when another was made meanwhile. Its mark names the files until they are
deleted, and the journal groups for as long as a rollover that was held up could bring them back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping

from custody.catalog import (
    EXPIRED,
    Action,
    AddFile,
    AddMark,
    MarkedShard,
    RemoveFile,
    RemoveShard,
    RemoveTombstone,
    RespectHolds,
)
from custody.retention.planning import Choice
from custody.retention.survey import Surveyed, files_of


def mark(choice: Choice) -> dict[str, int]:
    """Carry out what was chosen; return the revision of each writer's transaction.

    Durability: on return the transactions survive power loss. On raise some writers may be done: plan again.

    Raises:
        ConflictError: a log was compacted, or a hold was made, in the meantime; that writer's catalog is unchanged.
    """
    revisions = {}
    for name, writer in choice.writers.items():
        writer.workspace.catalog.settle()  # what a process committed that died may be all that there is to do
        actions = list(_actions(writer, choice.gone.get(name, {}), choice.plan.now_ms))
        if actions:
            respected = Action(respect_holds=RespectHolds(names=sorted(writer.state.holds)))
            revisions[name] = writer.workspace.catalog.commit([*actions, respected]).revision
    return revisions


def _actions(writer: Surveyed, gone: Mapping[str, AddFile], now_ms: int) -> Iterator[Action]:
    if gone:
        shards = writer.leaving(list(gone), gone)
        yield from (Action(remove_file=RemoveFile(path=path, reason=EXPIRED)) for path in sorted(gone))
        yield from (Action(remove_shard=RemoveShard(name=shard.name, reason=EXPIRED)) for shard in shards)
        left = {group for path, file in writer.state.files.items() if path not in gone for group in file.groups}
        yield Action(
            add_mark=AddMark(
                id=uuid.uuid4().bytes,
                paths=sorted(path for file in gone.values() for path in files_of(file)),
                shards=[MarkedShard(name=shard.name, container=shard.container) for shard in shards],
                groups=sorted({group for file in gone.values() for group in file.groups} - left),
                events=sum(file.rows for file in gone.values()),
                size_bytes=sum(writer.room(file, ()) for file in gone.values()),
                created_ms=now_ms,
            )
        )
    dropped, added = writer.hiding
    yield from (Action(remove_tombstone=RemoveTombstone(id=stone.id)) for stone in dropped)
    yield from (Action(add_tombstone=stone) for stone in added)
