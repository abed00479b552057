"""The intake of the NGSI receiver: notifications become acknowledged events, many with one sync.

Coroutines hand notifications to a group-commit queue, whose thread stores them in batches. Contents are stored before
the events that speak of them.
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
from typing import Protocol, Self

from custody.errors import BackpressureError, CustodyError, StorageError
from custody.flow.content import ContentWriter, with_content
from custody.model import Event
from custody.vfs.group_commit import GroupCommitQueue

# A batch is in memory as a whole, and its callers are answered together: both bounds keep it short.
BATCH_EVENTS_MAX = 1000
BATCH_BYTES_MAX = 16 << 20
_LOGGER = logging.getLogger(__name__)


class ContentAppender(Protocol):
    """A writer with a name: stores contents, and appends the events that speak of them."""

    @property
    def name(self) -> str:
        """The writer's name."""
        ...

    @property
    def content(self) -> ContentWriter:
        """The store of contents."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events in one piece and return their ids once they are acknowledged."""
        ...


@dataclass(frozen=True, slots=True)
class _Notification:
    """A notification to store, and the future that its caller waits for."""

    content: bytes
    events: Sequence[Event]
    loop: AbstractEventLoop
    future: Future[range]


class Intake:
    """Stores notifications for any number of coroutines; ends with `close`, after all that waits is stored.

    Args:
        writer: stores them; the caller holds it and closes it after the intake.
        waiting_max: how many notifications may wait at once.
    """

    def __init__(self, writer: ContentAppender, waiting_max: int) -> None:
        self._writer = writer
        self._queue: GroupCommitQueue[_Notification] = GroupCommitQueue(
            "intake", self._store, batch_length=_batch_length, size_max=waiting_max
        )
        self.stored = 0
        """Notifications that were acknowledged."""
        self.batches = 0
        """Times that something was stored."""
        self.problem: str | None = None
        """Why the last batch could not be stored, None when it was."""

    @property
    def writer(self) -> str:
        """The name of the writer."""
        return self._writer.name

    @property
    def waiting(self) -> int:
        """How many notifications wait or are being stored."""
        return self._queue.size

    @property
    def is_storing(self) -> bool:
        """Whether a batch is being stored."""
        return self._queue.is_busy

    async def store(self, content: bytes, events: Sequence[Event]) -> range:
        """Store a notification: its bytes as content, and the events that speak of it; return their ids.

        Durability: on return both are acknowledged.

        Raises:
            BackpressureError: too many wait, or too much waits to be rolled over; nothing was stored.
            StorageError: the disk refused; it is unknown whether the events are stored.
            ClosedError: the intake is closed, or its writer is broken.
        """
        loop = get_running_loop()
        future: Future[range] = loop.create_future()
        try:
            # Never waits: that would stop the loop for everybody. A full queue is an answer, and brokers are told to
            # retry.
            self._queue.put_nowait(_Notification(content, events, loop, future))
        except Full:
            raise BackpressureError(
                f"{self.waiting} notifications wait (receiver.requests_max). Try again later."
            ) from None
        return await future

    def close(self) -> None:
        """Store what waits, and end; a second call does nothing."""
        self._queue.close("the receiver stops and takes no more notifications.")

    def _store(self, batch: list[_Notification]) -> None:
        """Store a batch and answer each caller; a failure is an answer, too, and does not end the intake."""
        error: Exception | None = None
        ids = range(0)
        started = time.monotonic()
        try:
            # Contents first: a crash in between leaves contents that no event names, never an event without its
            # content.
            contents = self._writer.content.put_many([item.content for item in batch])
            events = [
                with_content(event, stored)
                for item, stored in zip(batch, contents, strict=True)
                for event in item.events
            ]
            ids = self._writer.append(events)
        except Exception as failure:  # noqa: BLE001 - whatever it is, each caller has to be told
            error = failure
            _LOGGER.warning("%d notifications could not be stored: %s", len(batch), failure)
        self.problem = None if error is None else str(error)
        if error is None:
            self.stored += len(batch)
            self.batches += 1
        _LOGGER.debug("%d notifications in %.4f s", len(batch), time.monotonic() - started)
        _answer(batch, ids, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _batch_length(waiting: Sequence[_Notification]) -> int:
    """Return how many notifications form the next batch: at least one, and no more than its bounds allow."""
    events = size = 0
    for count, item in enumerate(waiting):
        events, size = events + len(item.events), size + len(item.content)
        if count and (events > BATCH_EVENTS_MAX or size > BATCH_BYTES_MAX):
            return count
    return len(waiting)


def _answer(batch: list[_Notification], ids: range, error: Exception | None) -> None:
    """Answer each caller, with one wake-up a loop."""
    answers: dict[AbstractEventLoop, list[tuple[Future[range], range]]] = defaultdict(list)
    first = ids.start
    for item in batch:
        answers[item.loop].append((item.future, range(first, first + len(item.events))))
        first += len(item.events)
    for loop, resolved in answers.items():
        try:
            loop.call_soon_threadsafe(_resolve, resolved, error)
        # The loop is closed, so its callers are gone; what was stored stays stored.
        except RuntimeError:
            _LOGGER.warning("%d notifications were stored and nobody waits for the answer any more", len(resolved))


def _resolve(answers: list[tuple[Future[range], range]], error: Exception | None) -> None:
    for future, ids in answers:
        if future.done():
            continue  # its request was cut off
        if error is None:
            future.set_result(ids)
        else:
            future.set_exception(_copied(error))


def _copied(error: Exception) -> Exception:
    """Return an error for one of several callers: an exception that is raised twice grows with each traceback."""
    if isinstance(error, CustodyError):
        copy = type(error)(str(error))
        if isinstance(error, StorageError) and isinstance(copy, StorageError):
            copy.errno = error.errno
        return copy
    return StorageError(f"{type(error).__name__}: {error}")
