"""The intake of the doors: deliveries become acknowledged events, each event once, many deliveries with one sync.

Coroutines hand deliveries to a group-commit queue, whose thread stores them in batches through an `Ingest`: what is
stored already is not stored again, and what is bad goes to the quarantine.
"""

from __future__ import annotations

import logging
import time
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from queue import Full
from types import TracebackType
from typing import TYPE_CHECKING, Self

from custody.errors import BackpressureError, CustodyError, StorageError
from custody.vfs.group_commit import GroupCommitQueue

if TYPE_CHECKING:
    from custody.ingest.ingest import Delivery, DeliveryReport, Ingest

# A batch is in memory as a whole, and its callers are answered together: both bounds keep it short.
BATCH_EVENTS_MAX = 2000
BATCH_BYTES_MAX = 16 << 20
RENEW_EVENTS = 1_000_000
"""After so many events the ingest forgets those that are live by now, and looks anew at what others stored."""
RENEW_SECONDS = 900.0
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A delivery, and the future that its caller waits for."""

    delivery: Delivery
    loop: AbstractEventLoop
    future: Future[DeliveryReport]


class EventIntake:
    """Stores deliveries for any number of coroutines; ends with `close`, after all that waits is stored.

    Args:
        ingest: stores them; the caller closes its writer after the intake.
        waiting_max: how many deliveries may wait at once.
    """

    def __init__(self, ingest: Ingest, waiting_max: int) -> None:
        self._ingest = ingest
        self._queue: GroupCommitQueue[_Waiting] = GroupCommitQueue(
            "intake", self._store, batch_length=_batch_length, size_max=waiting_max
        )
        self._renewed = time.monotonic()
        self._since_renewal = 0
        self.stored = 0
        """Events that were stored."""
        self.repeated = 0
        """Events that were stored before."""
        self.rejected = 0
        """Pieces that went to the quarantine."""
        self.batches = 0
        """Times that something was stored."""
        self.problem: str | None = None
        """Why the last batch could not be stored, None when it was."""

    @property
    def waiting(self) -> int:
        """How many deliveries wait or are being stored."""
        return self._queue.size

    async def take(self, delivery: Delivery) -> DeliveryReport:
        """Store a delivery, and return what became of each piece of it.

        Durability: on return its events are acknowledged, and its bad pieces are in the quarantine.

        Raises:
            BackpressureError: too many wait, too much waits to be rolled over, or the quarantine is full; the sender
                has to send all of it again.
            LockedError: another process stores events of the same source for too long.
            StorageError: the disk refused; it is unknown which of its events are stored.
            ClosedError: the intake is closed, or its writer is broken.
        """
        loop = get_running_loop()
        future: Future[DeliveryReport] = loop.create_future()
        try:
            # Never waits: that would stop the loop for everybody.
            self._queue.put_nowait(_Waiting(delivery, loop, future))
        except Full:
            raise BackpressureError(f"{self.waiting} deliveries wait (serve.requests_max). Try again later.") from None
        return await future

    def close(self) -> None:
        """Store what waits, and end; a second call does nothing."""
        self._queue.close("the server stops and takes nothing more.")

    def _store(self, batch: list[_Waiting]) -> None:
        """Store a batch and answer each caller; a failure is an answer, too, and does not end the intake."""
        answers: Sequence[DeliveryReport | CustodyError]
        try:
            self._renew_in_time()
            answers = self._ingest.deliveries([item.delivery for item in batch])
            self.problem = None
        except Exception as failure:  # noqa: BLE001 - whatever it is, each caller has to be told
            self.problem = str(failure)
            _LOGGER.warning("%d deliveries could not be stored: %s", len(batch), failure)
            answers = [_copied(failure) for _ in batch]
        for answer in answers:
            if not isinstance(answer, CustodyError):
                self.stored += answer.counts.stored
                self.repeated += answer.counts.repeated
                self.rejected += answer.counts.rejected
                self._since_renewal += answer.counts.stored
        self.batches += 1
        _answer(batch, answers)

    def _renew_in_time(self) -> None:
        is_due = time.monotonic() - self._renewed > RENEW_SECONDS
        if is_due or self._since_renewal > RENEW_EVENTS:
            self._ingest.renew()
            self._renewed, self._since_renewal = time.monotonic(), 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _batch_length(waiting: Sequence[_Waiting]) -> int:
    """Return how many deliveries form the next batch: at least one, and no more than its bounds allow."""
    events = size = 0
    for count, item in enumerate(waiting):
        events, size = events + item.delivery.pieces, size + item.delivery.size
        if count and (events > BATCH_EVENTS_MAX or size > BATCH_BYTES_MAX):
            return count
    return len(waiting)


def _answer(batch: Sequence[_Waiting], answers: Sequence[DeliveryReport | CustodyError]) -> None:
    """Answer each caller, with one wake-up a loop."""
    by_loop: dict[AbstractEventLoop, list[tuple[Future[DeliveryReport], DeliveryReport | CustodyError]]]
    by_loop = defaultdict(list)
    for item, answer in zip(batch, answers, strict=True):
        by_loop[item.loop].append((item.future, answer))
    for loop, resolved in by_loop.items():
        try:
            loop.call_soon_threadsafe(_resolve, resolved)
        # The loop is closed, so its callers are gone; what was stored stays stored.
        except RuntimeError:
            _LOGGER.warning("%d deliveries were stored and nobody waits for the answer any more", len(resolved))


def _resolve(answers: Sequence[tuple[Future[DeliveryReport], DeliveryReport | CustodyError]]) -> None:
    for future, answer in answers:
        if future.done():
            continue  # its request was cut off
        if isinstance(answer, CustodyError):
            future.set_exception(answer)
        else:
            future.set_result(answer)


def _copied(error: Exception) -> CustodyError:
    """Return an error for one of several callers: an exception that is raised twice grows with each traceback."""
    if isinstance(error, CustodyError):
        copy = type(error)(str(error))
        if isinstance(error, StorageError) and isinstance(copy, StorageError):
            copy.errno = error.errno
        return copy
    return StorageError(f"{type(error).__name__}: {error}")
