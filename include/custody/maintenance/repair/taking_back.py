"""Losses that are taken back: of an intact copy of a log those events become live again that were lost.

One transaction replaces the live logs among whose ids the lost ones lie by a log that has both, and removes the loss.
What was forgotten since, or was ingested again meanwhile, does not come back.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from custody.catalog import Action as CatalogAction
from custody.catalog import (
    AddFile,
    AddLoss,
    AddTombstone,
    CatalogState,
    RemoveFile,
    RemoveLoss,
    RemoveShard,
    erased_among,
    is_remnant,
    visible,
)
from custody.errors import ConflictError, CustodyError, NotFoundError
from custody.eventlog import EventLog, log_metadata
from custody.format.names import attempt_suffix
from custody.maintenance.compaction import remove_shards, shards_covering
from custody.maintenance.repair.actions import loss_action
from custody.maintenance.rewriting import RewriteSurvey, open_event_log, write_new_log
from custody.maintenance.verification.check_losses import losses_of, recoverable_log
from custody.model import require_keeping
from custody.rollover.publish import add_file, add_shard
from custody.workspace import Workspace

_KEY = ["source_node", "source_ordinal"]
_SAME = [*_KEY, "event_time", "flowfile_uuid"]
"""What tells that two events are one: a source may use a number for a second one."""


def take_back(workspace: Workspace, path: str, *, accept_loss: bool) -> str:
    """Make the lost events of a log live again, by the intact copy in its place; return what became of them.

    Durability: on return the new log and the transaction survive power loss. A crash before leaves the loss noted.

    Raises:
        NotFoundError: the loss is noted no more, or there is no intact copy.
        ConflictError: the journals of the log are back and will be rolled over, or others changed the catalog.
        CorruptionError: a log among whose ids the lost ones lie is damaged itself.
    """
    state = workspace.catalog.settle()
    log, losses = recoverable_log(workspace, state, path), losses_of(state, path)
    if log is None:
        raise NotFoundError(f"{path}: no loss of it is noted, or no intact copy lies there. Nothing is left to do.")
    waiting = {group.first_event_id for group in workspace.groups()}
    if waiting.intersection(log.metadata.groups):
        raise ConflictError(f"{path}: its journals are there again: the next pass makes their events live.")
    is_known, removed = _tombstones_removed_since(workspace, losses)
    if not is_known and not accept_loss:
        raise ConflictError(f"{path}: what was forgotten since the loss is not known. Accept it with --accept-loss.")
    require_keeping(log.metadata.schema_version, workspace.log_path(path))
    lost = EventLog(workspace.fs, workspace.log_path(path)).read()
    lost = lost.filter(pa.array(_within(np.asarray(lost.column("event_id")), losses)))
    live = sorted(
        state.files.overlapping(log.metadata.first_event_id, log.metadata.last_event_id),
        key=lambda file: file.first_event_id,
    )
    tables = [_read(workspace, file) for file in live]
    held = [np.asarray(table.column("event_id")) for table in tables]
    lost = lost.filter(pa.array(~np.isin(np.asarray(lost.column("event_id")), np.concatenate([_NO_IDS, *held]))))
    lost = lost.filter(pa.array(~_ingested_again(workspace, state, lost)))
    forgotten = _forgotten(state, removed, lost)
    back = lost.filter(pc.invert(forgotten))
    actions = [CatalogAction(remove_loss=RemoveLoss(id=loss.id)) for loss in losses]
    gone = np.asarray(lost.filter(forgotten).column("event_id"))
    if len(gone):
        # Without a path: nobody is to take them back once more.
        said = f"they were in {path}, and were forgotten since"
        ranges = [(event_id, event_id) for event_id in gone.tolist()]
        actions.append(CatalogAction(add_loss=loss_action(ranges, len(gone), "", said, workspace.clock.now_ms())))
    if not back.num_rows:
        revision = workspace.catalog.commit(actions).revision
        return f"revision {revision}: no event came back, {len(gone)} of them were forgotten since"
    revision = _replace(workspace, state, live, pa.concat_tables([*tables, back]), log.metadata.groups, actions)
    return f"revision {revision}: {back.num_rows} events are live again, {len(gone)} were forgotten since"


def is_history_known(workspace: Workspace, path: str) -> bool:
    """Whether the history since the losses of a log were noted is kept, so that what was forgotten since is known."""
    try:
        return _tombstones_removed_since(workspace, losses_of(workspace.catalog.load(), path))[0]
    except CustodyError:
        return False


_NO_IDS: npt.NDArray[np.int64] = np.empty(0, np.int64)


def _replace(
    workspace: Workspace,
    state: CatalogState,
    live: Sequence[AddFile],
    events: pa.Table,
    groups: Sequence[int],
    actions: list[CatalogAction],
) -> int:
    """Replace live logs by one of some events, in one transaction with further actions; return its revision."""
    events = events.take(pc.sort_indices(events.column("event_id"))).combine_chunks()
    paths, attempt = [file.path for file in live], uuid.uuid4()
    survey = RewriteSurvey()
    survey.add(events)
    of_groups = sorted({*groups, *(group for file in live for group in file.groups)})
    metadata = log_metadata(events, workspace.writer, workspace.database, of_groups)
    metadata = msgspec.structs.replace(metadata, transaction=attempt, revision=state.revision + 1)
    stripe = workspace.choose_stripe(metadata.first_event_id, events.nbytes)
    new_files = workspace.files(metadata, attempt_suffix(attempt), stripe)
    # Files first, then the transaction: a crash in between leaves files that nothing lists.
    write_new_log(workspace, new_files, lambda: iter([events]), metadata)
    shards = shards_covering(state, paths)
    added = add_file(workspace, new_files, metadata, survey.sources)
    after = workspace.catalog.commit(
        [
            *(CatalogAction(remove_file=RemoveFile(path=path)) for path in paths),
            *(CatalogAction(remove_shard=RemoveShard(name=shard.name)) for shard in shards),
            CatalogAction(add_file=added),
            CatalogAction(add_shard=add_shard(workspace, new_files, metadata)),
            *actions,
        ],
        attempt=attempt,
    )
    # Last: until the transaction is durable, searches need the old shards.
    remove_shards(workspace, shards)
    return after.revision


def _read(workspace: Workspace, file: AddFile) -> pa.Table:
    require_keeping(file.schema_version, file.path)
    return open_event_log(workspace, file).read()


def _within(event_ids: npt.NDArray[np.int64], losses: Sequence[AddLoss]) -> npt.NDArray[np.bool_]:
    inside = np.zeros(len(event_ids), np.bool_)
    for loss in losses:
        for first, count in zip(loss.firsts, loss.counts, strict=True):
            inside |= (event_ids >= first) & (event_ids < first + count)
    return inside


def _tombstones_removed_since(workspace: Workspace, losses: Sequence[AddLoss]) -> tuple[bool, list[AddTombstone]]:
    """Return whether the transactions that noted some losses are kept, and the tombstones that were removed since.

    A tombstone goes when no event that it means is left, and the lost ones did not count.
    """
    catalog = workspace.catalog
    state = catalog.load()
    wanted, seen = {loss.id for loss in losses}, False
    stones = dict(catalog.at(state.floor).tombstones)
    removed: list[AddTombstone] = []
    for transaction in catalog.timeline(state.floor):
        for action in transaction.actions:
            if action.HasField("add_tombstone"):
                stones[action.add_tombstone.id.hex()] = action.add_tombstone
            elif action.HasField("remove_tombstone") and not wanted:
                stone = stones.get(action.remove_tombstone.id.hex())
                if stone is not None and not is_remnant(stone):
                    removed.append(stone)
        wanted.difference_update(action.add_loss.id for action in transaction.actions if action.HasField("add_loss"))
        seen = seen or not wanted
    return seen, removed


def _forgotten(state: CatalogState, removed: Sequence[AddTombstone], lost: pa.Table) -> pa.Array:
    """Return which events were forgotten by tombstones that are gone, or erased under another id: booleans."""
    hidden = ~np.asarray(visible(removed, lost)) if removed else np.zeros(lost.num_rows, np.bool_)
    stones = [stone for stone in state.tombstones.values() if stone.erased]
    nodes, ordinals = (lost.column(name).to_pylist() for name in _KEY)
    for node in set(nodes) - {None} if stones else ():
        own = [ordinal for at, ordinal in zip(nodes, ordinals, strict=True) if at == node and ordinal is not None]
        erased = erased_among(stones, node, own)
        hidden |= np.array([at == node and one in erased for at, one in zip(nodes, ordinals, strict=True)], np.bool_)
    return pa.array(hidden)


def _ingested_again(workspace: Workspace, state: CatalogState, lost: pa.Table) -> npt.NDArray[np.bool_]:
    """Return which events are live under another id: their sources delivered them again after they were lost."""
    bounds = RewriteSurvey()
    bounds.add(lost)
    found: set[tuple[object, ...]] = set()
    for file in state.files.values():
        if any(
            own.node == one.node and own.first_ordinal <= one.last_ordinal and one.first_ordinal <= own.last_ordinal
            for own in bounds.sources
            for one in file.sources
        ):
            found.update(_rows(open_event_log(workspace, file).read(_SAME)))
    return np.array([None not in row and row in found for row in _rows(lost)], np.bool_)


def _rows(events: pa.Table) -> Iterator[tuple[object, ...]]:
    return zip(*(events.column(name).to_pylist() for name in _SAME), strict=True)
