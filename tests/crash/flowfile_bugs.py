"""Durability bugs in the FlowFile repository; each is in place as long as its context lasts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

from custody.flowfile_repository import FlowFileRepository, flowfile_repository
from custody.flowfile_repository.log import FlowFileLog
from custody.flowfile_repository.outbox import Delivery, Outbox
from custody.flowfile_repository.queue import FlowFileQueue
from custody.flowfile_repository.records import Delivered, Gone, SwapFile, Transaction, decode_transaction
from custody.flowfile_repository.state import FlowFileState
from custody.format.framing import whole_record
from custody.journal import JournalWriter
from custody.model import Event
from custody.repository.flow import JournalProvenance


def _transactions(batch: Any) -> list[Transaction]:
    """The transactions of a batch, decoded from what the log takes."""
    records = [whole_record(memoryview(data), 0) for data in batch.frames]
    return [decode_transaction(record.payload, Path(), 0) for record in records if record is not None]


def commits_without_sync() -> AbstractContextManager[object]:
    right = FlowFileLog.append

    def wrong(self: FlowFileLog, frames: Sequence[bytes], *, is_synced: bool) -> None:
        right(self, frames, is_synced=False)

    return patch.object(FlowFileLog, "append", wrong)


def journal_before_the_log() -> AbstractContextManager[object]:
    right = FlowFileRepository._append
    early: dict[int, range] = {}

    def wrong(self: Any, batch: Any) -> None:
        for transaction in _transactions(batch):
            if transaction.events:
                events = transaction.decoded_events()
                early[transaction.number] = self._provenance.append(events)
        right(self, batch)

    def delivered(self: Any, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            delivery.event_ids = early.pop(delivery.transaction)
            self._delivered.append(delivery.transaction)

    return _both(
        patch.object(FlowFileRepository, "_append", wrong),
        patch.object(Outbox, "add", delivered),
    )


def delivered_before_the_delivery() -> AbstractContextManager[object]:
    right = FlowFileRepository._append

    def wrong(self: Any, batch: Any) -> None:
        numbers = tuple(transaction.number for transaction in _transactions(batch) if transaction.events)
        if numbers:
            batch.apply([Delivered(numbers)])
        right(self, batch)

    return patch.object(FlowFileRepository, "_append", wrong)


def log_begun_before_the_snapshot() -> AbstractContextManager[object]:
    """As it is where an end record that was found is not synced, and no snapshot made before the next log."""
    right = FlowFileLog.write_snapshot

    def wrong(self: Any, state: FlowFileState, now_ms: int) -> None:
        if self._is_ended:
            self._close()
            self._begin_log(state.last_transaction + 1)
        else:
            right(self, state, now_ms)

    return patch.object(FlowFileLog, "write_snapshot", wrong)


def partial_snapshot_preferred() -> AbstractContextManager[object]:
    def wrong(self: Any) -> None:
        if self._fs.exists(self._folder.partial):
            self._fs.rename(self._folder.partial, self._folder.snapshot)

    return patch.object(FlowFileLog, "_choose_snapshot", wrong)


def torn_tail_left() -> AbstractContextManager[object]:
    return patch.object(FlowFileLog, "_cut_tail", lambda *_: None)


def no_new_log_after_a_failed_sync() -> AbstractContextManager[object]:
    right = FlowFileRepository._append

    def wrong(self: Any, batch: Any) -> None:
        try:
            right(self, batch)
        finally:
            self._must_renew_log = False

    return _both(
        patch.object(FlowFileRepository, "_append", wrong),
        patch.object(FlowFileLog, "write_snapshot", lambda *_: None),
    )


def swap_file_removed_at_once() -> AbstractContextManager[object]:
    right = FlowFileRepository._append

    def wrong(self: Any, batch: Any) -> None:
        right(self, batch)
        for name in batch.state.drained_swaps:
            self._fs.remove(self._folder.swaps / name)
            self._fs.sync_directory(self._folder.swaps)

    return patch.object(FlowFileRepository, "_append", wrong)


def swap_files_come_last() -> AbstractContextManager[object]:
    def wrong(self: FlowFileQueue, now_ms: int) -> SwapFile | None:
        return self.swaps[0] if self.swaps and self.first(now_ms) is None else None

    return patch.object(FlowFileQueue, "next_swap", wrong)


def released_before_the_log() -> AbstractContextManager[object]:
    right = FlowFileRepository._append

    def wrong(self: Any, batch: Any) -> None:
        if self._archive is not None:
            self._archive.due(dict.fromkeys(batch.state.releasable, 0), 0)
        right(self, batch)

    return patch.object(FlowFileRepository, "_append", wrong)


def purged_without_a_second_look() -> AbstractContextManager[object]:
    def wrong(self: Any, archive: Any, due: Any, _held: object) -> None:
        archive.delete(list(due))

    return patch.object(FlowFileRepository, "_purge", wrong)


def events_without_keys() -> AbstractContextManager[object]:
    return patch.object(flowfile_repository, "with_keys", lambda events, *_: list(events))


def delivered_again_unseen() -> AbstractContextManager[object]:
    def wrong(self: JournalProvenance, events: Sequence[Event]) -> list[Event]:
        return list(events)

    return patch.object(JournalProvenance, "missing", wrong)


def trusts_what_a_failed_sync_left() -> AbstractContextManager[object]:
    return patch.object(JournalWriter, "discard_unacknowledged", lambda _: None)


def the_dead_keep_what_they_took() -> AbstractContextManager[object]:
    return patch.object(flowfile_repository, "Gone", lambda member: Gone(f"not {member}"))


def the_living_are_taken_for_dead() -> AbstractContextManager[object]:
    right = FlowFileRepository._member_lock

    def wrong(self: FlowFileRepository, member: str) -> Path:
        path = right(self, member)
        return path if member == self.member else path.with_suffix(".other")

    return patch.object(FlowFileRepository, "_member_lock", wrong)


def no_lock() -> AbstractContextManager[object]:
    return patch.object(FlowFileRepository, "_lock", lambda _: nullcontext())


def _both(*contexts: AbstractContextManager[object]) -> AbstractContextManager[object]:
    stack = ExitStack()
    for context in contexts:
        stack.enter_context(context)
    return stack
