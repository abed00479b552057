"""What is live and what differs between two revisions, as people and programs are shown it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from custody.catalog.catalog import Catalog, Difference
from custody.catalog.tombstones import is_remnant
from custody.catalog.transaction_pb2 import AddFile, AddHold, AddLoss, AddShard, AddTombstone
from custody.catalog.transaction_summary import REPAIR_FINISHED, StatedReason, summary_of
from custody.model.masking import AttributeMask


class LogOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A live event log; times in ms since the epoch."""

    path: str
    events: int
    size_bytes: int
    first_event_id: int
    last_event_id: int
    first_event_time_ms: int
    last_event_time_ms: int
    sha256: str


class ShardOverview(msgspec.Struct, frozen=True, kw_only=True):
    """A live index shard, with the paths of the logs that it indexes."""

    name: str
    container: str
    documents: int
    size_bytes: int
    log_paths: tuple[str, ...]


class ReasonOverview(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that says why something is not given out, is kept, or is lost."""

    name: str
    """Of a tombstone or a loss its id, of a hold its name."""
    reason: str
    who: str | None
    created_ms: int
    events: int | None
    """How many events it names; None where it means them by a condition."""


class DifferenceSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What became live and what ceased to be; what was forgotten, held and lost, and what of that was taken back."""

    added: tuple[LogOverview, ...]
    removed: tuple[LogOverview, ...]
    shards_added: tuple[ShardOverview, ...]
    shards_removed: tuple[ShardOverview, ...]
    tombstones_added: tuple[ReasonOverview, ...]
    tombstones_removed: tuple[ReasonOverview, ...]
    holds_added: tuple[ReasonOverview, ...]
    holds_removed: tuple[ReasonOverview, ...]
    losses_added: tuple[ReasonOverview, ...]
    losses_removed: tuple[ReasonOverview, ...]
    repairs: tuple[StatedReason, ...] = ()
    """Which live files were mended in between, and which of that is done; oldest first."""


def difference_summary(
    difference: Difference, mask: AttributeMask | None = None, repairs: Sequence[StatedReason] = ()
) -> DifferenceSummary:
    """Return what is shown of a difference, each part by name; `mask` is of whoever it is shown to."""
    mask = mask or AttributeMask()
    return DifferenceSummary(
        added=_logs(difference.added),
        removed=_logs(difference.removed),
        shards_added=_shards(difference.shards_added),
        shards_removed=_shards(difference.shards_removed),
        tombstones_added=_tombstones(difference.tombstones_added, mask),
        tombstones_removed=_tombstones(difference.tombstones_removed, mask),
        holds_added=_holds(difference.holds_added),
        holds_removed=_holds(difference.holds_removed),
        losses_added=_losses(difference.losses_added),
        losses_removed=_losses(difference.losses_removed),
        repairs=tuple(repairs),
    )


def repairs_between(catalog: Catalog, former: int, later: int, revisions_max: int | None = None) -> list[StatedReason]:
    """Return what the transactions between two revisions tell of repairs of files, oldest first.

    Either revision may be the earlier one; with `revisions_max` only so many before the later one are looked at.
    Repairs change no state, so the difference of two states does not have them.
    """
    first, last = min(former, later) + 1, max(former, later)
    if revisions_max is not None:
        first = max(first, last - revisions_max + 1)
    transactions = catalog.timeline(first, last) if first <= last else ()
    reasons = (reason for transaction in transactions for reason in summary_of(transaction).reasons)
    return [reason for reason in reasons if reason.repair is not None or reason.kind == REPAIR_FINISHED]


def masked_reason(stone: AddTombstone, mask: AttributeMask) -> str:
    """Return why a tombstone hides events; a rule of retention is told there by its conditions, which are masked."""
    return mask.conditions(stone.reason, [(one.name, one.value) for one in stone.attributes])


def listed_log(file: AddFile) -> LogOverview:
    """Return what is shown of a live log."""
    return LogOverview(
        path=file.path,
        events=file.rows,
        size_bytes=file.size_bytes,
        first_event_id=file.first_event_id,
        last_event_id=file.last_event_id,
        first_event_time_ms=file.first_event_time_ms,
        last_event_time_ms=file.last_event_time_ms,
        sha256=file.sha256.hex(),
    )


def listed_shard(shard: AddShard) -> ShardOverview:
    """Return what is shown of a live shard."""
    return ShardOverview(
        name=shard.name,
        container=shard.container,
        documents=shard.documents,
        size_bytes=shard.size_bytes,
        log_paths=tuple(shard.log_paths),
    )


def _logs(files: Mapping[str, AddFile]) -> tuple[LogOverview, ...]:
    return tuple(listed_log(file) for _, file in sorted(files.items()))


def _shards(shards: Mapping[str, AddShard]) -> tuple[ShardOverview, ...]:
    return tuple(listed_shard(shard) for _, shard in sorted(shards.items()))


def _tombstones(stones: Mapping[str, AddTombstone], mask: AttributeMask) -> tuple[ReasonOverview, ...]:
    return tuple(
        ReasonOverview(
            name=name,
            reason=masked_reason(stone, mask),
            who=stone.who or None,
            created_ms=stone.created_ms,
            events=len(stone.event_ids) or None,
        )
        for name, stone in sorted(stones.items())
        # A remnant hides nothing: it only says what was erased already.
        if not is_remnant(stone)
    )


def _holds(holds: Mapping[str, AddHold]) -> tuple[ReasonOverview, ...]:
    return tuple(
        ReasonOverview(
            name=name,
            reason=hold.reason,
            who=hold.who,
            created_ms=hold.created_ms,
            events=len(hold.condition.event_ids) or None,
        )
        for name, hold in sorted(holds.items())
    )


def _losses(losses: Mapping[str, AddLoss]) -> tuple[ReasonOverview, ...]:
    return tuple(
        ReasonOverview(name=name, reason=loss.reason, who=None, created_ms=loss.created_ms, events=loss.events)
        for name, loss in sorted(losses.items())
    )
