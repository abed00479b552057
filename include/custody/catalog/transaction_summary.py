"""What a transaction did, counted: for listings."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import msgspec

from custody.catalog.tombstones import is_remnant
from custody.catalog.transaction_pb2 import EXPIRED, Action, FileRepair, Note, Transaction

_MENDED = {Note.REPAIRED: "repaired", Note.REBUILT: "rebuilt"}
_REPAIRS = {
    FileRepair.LOG_RESTORED: "log-restored",
    FileRepair.TOC_REWRITTEN: "toc-rewritten",
    FileRepair.LOG_REWRITTEN: "log-rewritten",
    FileRepair.LOG_GIVEN_UP: "log-given-up",
    FileRepair.SHARD_REBUILT: "shard-rebuilt",
}
REPAIR_FINISHED = "repair-finished"
"""The kind of a stated reason that says that a repair is done."""
_COUNTED = ("add_file", "add_shard", "remove_file", "remove_shard")


class LostRange(msgspec.Struct, frozen=True, kw_only=True):
    """A run of event ids."""

    first_event_id: int
    last_event_id: int


class StatedRepair(msgspec.Struct, frozen=True, kw_only=True):
    """What a repair of a live file found, beside its reason in words; digests are hexadecimal."""

    id: str
    expected_sha256: str | None = None
    """As the catalog lists the file; None of an index shard."""
    found_sha256: str | None = None
    """Of what lay there; None if nothing did, or nobody looked."""
    offsets: tuple[int, ...] = ()
    """Where the file was damaged, in bytes."""
    lost: tuple[LostRange, ...] = ()
    """The ids of the events that are lost."""


class StatedReason(msgspec.Struct, frozen=True, kw_only=True):
    """Why something is not given out any more, is kept, or is lost, as a transaction says it."""

    kind: str
    """`forgotten`, `expired`, `held`, `released`, `lost`, `found-again`; `erased`: what was forgotten is off the disk,
    too; `repaired` or `rebuilt`: the catalog itself was damaged; `log-restored`, `toc-rewritten` or `shard-rebuilt`: a
    file was about to be mended, and `repair-finished` once that was done; `log-rewritten`, `log-given-up`: a damaged
    log was replaced, or taken off the list, by this transaction."""
    name: str
    """Of a hold its name, of a log its path, of a shard its name, else an id."""
    reason: str | None = None
    who: str | None = None
    events: int | None = None
    """How many are named, or were lost; None where a condition means them, and of a repair that lost none."""
    repair: StatedRepair | None = None
    """Of a repair of a file: what was found."""


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
    bytes_added: int
    """Of event logs and index shards."""
    waited_ms: int | None = None
    """For how long the oldest of the events that became live had waited, at most; None where nothing says it."""
    reasons: tuple[StatedReason, ...] = ()
    """What it forgot, held, released, lost, mended and let go, and why."""


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
        bytes_added=sum(
            action.add_file.size_bytes + action.add_shard.size_bytes  # of the one that it is not, 0
            for action in transaction.actions
        ),
        waited_ms=_waited_ms(transaction),
        reasons=tuple(reason for action in transaction.actions for reason in _reasons(action)),
    )


def _waited_ms(transaction: Transaction) -> int | None:
    since_ms = transaction.waiting_since_ms
    return max(transaction.commit_time_ms - since_ms, 0) if since_ms else None


def _loss(action: Action) -> StatedReason:
    if action.HasField("remove_loss"):
        return StatedReason(kind="found-again", name=action.remove_loss.id.hex())
    loss = action.add_loss
    return StatedReason(kind="lost", name=loss.id.hex(), reason=loss.reason, events=loss.events)


def _reasons(action: Action) -> Iterator[StatedReason]:
    match action.WhichOneof("kind"):
        case "add_tombstone" if not is_remnant(stone := action.add_tombstone):
            kind = "expired" if stone.by_retention else "forgotten"
            yield StatedReason(
                kind=kind,
                name=stone.id.hex(),
                reason=stone.reason or None,
                who=stone.who or None,
                events=len(stone.event_ids) or None,
            )
        case "remove_tombstone":
            yield StatedReason(kind="erased", name=action.remove_tombstone.id.hex())
        case "add_hold":
            hold = action.add_hold
            events = len(hold.condition.event_ids) or None
            yield StatedReason(kind="held", name=hold.name, reason=hold.reason, who=hold.who, events=events)
        case "remove_hold":
            end = action.remove_hold
            yield StatedReason(kind="released", name=end.name, reason=end.reason, who=end.who)
        case "add_loss" | "remove_loss":
            yield _loss(action)
        case "note" if action.note.kind in _MENDED:
            note = action.note
            lost = ", ".join(map(str, note.lost_revisions))
            name = f"revisions {lost}" if lost else ""
            yield StatedReason(kind=_MENDED[note.kind], name=name, reason=note.text or None)
        case "note":
            note = action.note
            yield from (_stated_repair(repair, note.who) for repair in note.repairs)
            for done in note.finished:
                yield StatedReason(
                    kind=REPAIR_FINISHED, name=done.hex(), reason=note.text or None, who=note.who or None
                )
        case "remove_file" if action.remove_file.reason == EXPIRED:
            yield StatedReason(kind="expired", name=action.remove_file.path)


def _stated_repair(repair: FileRepair, who: str) -> StatedReason:
    ranges = zip(repair.firsts, repair.counts, strict=True)
    return StatedReason(
        # A newer custody may mend in ways that this one has no word for.
        kind=_REPAIRS.get(repair.kind, "mended"),
        name=repair.name,
        reason=repair.reason or None,
        who=who or None,
        events=repair.events or None,
        repair=StatedRepair(
            id=repair.id.hex(),
            expected_sha256=repair.expected_sha256.hex() or None,
            found_sha256=repair.found_sha256.hex() or None,
            offsets=tuple(repair.offsets),
            lost=tuple(LostRange(first_event_id=first, last_event_id=first + count - 1) for first, count in ranges),
        ),
    )
