"""Events that transactions took off the list of live logs, and why: retention, erasure, a known loss, or no reason.

Whoever can write to the store can commit a transaction that removes a log. It stands in the chain, so that it can be
seen, and here it is counted: a compaction lists the events that stay in a new log, retention and repairs say what they
do. A removal of which none of that is true has no reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from custody.catalog.state import CatalogState
from custody.catalog.tombstones import is_remnant, may_match
from custody.catalog.transaction_pb2 import EXPIRED, AddFile, AddTombstone, Transaction
from custody.format.names import parse_event_log

Reason = Literal["expired", "erased", "lost", "none"]
"""`erased`: forgotten, or stored twice, and not in the log that took the place of others."""


@dataclass(frozen=True, slots=True)
class RemovedEvents:
    """Events that one transaction took off the list, of the logs at these paths."""

    revision: int
    events: int
    reason: Reason
    files: tuple[AddFile, ...]


@dataclass(slots=True)
class _Changes:
    """What one transaction does with the logs of events."""

    expired: list[AddFile] = field(default_factory=list)
    replaced: list[AddFile] = field(default_factory=list)
    added: list[AddFile] = field(default_factory=list)
    lost: int = 0
    is_erasure: bool = False
    """Whether it says that it leaves events out on purpose."""


def removed_events(start: CatalogState, transactions: Iterable[Transaction]) -> Iterator[RemovedEvents]:
    """Yield what the transactions behind a state took away, in their order."""
    live = {path: start.files[path] for path in start.files}
    hiding = {name: stone for name, stone in start.tombstones.items() if not is_remnant(stone)}
    for transaction in transactions:
        if transaction.revision <= start.revision:
            continue
        stood = dict(hiding)
        changes = _changes(transaction, live, hiding)
        yield from _gone(transaction.revision, changes, stood.values())


def _changes(transaction: Transaction, live: dict[str, AddFile], hiding: dict[str, AddTombstone]) -> _Changes:
    """Return what a transaction does, and bring the live logs and the tombstones that hide events up to date."""
    changes = _Changes()
    for action in transaction.actions:
        kind = action.WhichOneof("kind")
        if kind == "remove_file":
            file = live.pop(action.remove_file.path, None)
            if file is not None and parse_event_log(file.path) is not None:
                (changes.expired if action.remove_file.reason == EXPIRED else changes.replaced).append(file)
        elif kind == "add_file":
            live[action.add_file.path] = action.add_file
            changes.added.append(action.add_file)
        elif kind == "add_loss":
            changes.lost += action.add_loss.events
        elif kind == "add_tombstone" and is_remnant(action.add_tombstone):
            changes.is_erasure = True
        elif kind == "add_tombstone":
            hiding[action.add_tombstone.id.hex()] = action.add_tombstone
        elif kind == "remove_tombstone":
            hiding.pop(action.remove_tombstone.id.hex(), None)
        elif kind == "respect_holds":
            changes.is_erasure = changes.is_erasure or bool(changes.added)
    return changes


def _gone(revision: int, changes: _Changes, hiding: Iterable[AddTombstone]) -> Iterator[RemovedEvents]:
    if changes.expired:
        yield RemovedEvents(revision, _rows(changes.expired), "expired", tuple(changes.expired))
    kept = [file for file in changes.added if any(_overlap(file, each) for each in changes.replaced)]
    gone = _rows(changes.replaced) - _rows(kept)
    lost = min(gone, changes.lost)
    if lost > 0:
        yield RemovedEvents(revision, lost, "lost", tuple(changes.replaced))
    gone -= max(lost, 0)
    erased = gone if changes.is_erasure else min(gone, _hidden_at_most(hiding, changes.replaced))
    if erased > 0:
        yield RemovedEvents(revision, erased, "erased", tuple(changes.replaced))
    if gone > erased:
        yield RemovedEvents(revision, gone - erased, "none", tuple(changes.replaced))


def _hidden_at_most(stones: Iterable[AddTombstone], files: list[AddFile]) -> int:
    """Return how many events of some logs tombstones can mean, by their bounds and the ids that they name."""
    most = 0
    for stone in stones:
        for file in files:
            times = file.first_event_time_ms, file.last_event_time_ms
            if may_match(stone, file.first_event_id, file.last_event_id, *times):
                named = sum(file.first_event_id <= each <= file.last_event_id for each in stone.event_ids)
                most += named if stone.event_ids else file.rows
    return most


def _rows(files: Iterable[AddFile]) -> int:
    return sum(file.rows for file in files)


def _overlap(one: AddFile, other: AddFile) -> bool:
    return one.first_event_id <= other.last_event_id and other.first_event_id <= one.last_event_id
