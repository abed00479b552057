"""The intake of the receiver: one thread stores all notifications that wait, in one append.

While it syncs, the next notifications queue, so the more come at once, the fewer syncs each of them costs. Contents are
stored before the events that refer to them.
"""

from __future__ import annotations

import logging
import time
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Condition, Thread
from types import TracebackType
from typing import Protocol, Self

from custody.errors import BackpressureError, ClosedError, CustodyError, StorageError
from custody.flow.content import ContentWriter, with_content
from custody.model import Event

BATCH_EVENTS_MAX = 1000
BATCH_BYTES_MAX = 16 << 20
_LOGGER = logging.getLogger(__name__)


class ContentAppender(Protocol):
    """A writer with a name, for events with contents."""

    @property
    def name(self) -> str:
        """The writer's name."""
        ...

    @property
    def content(self) -> ContentWriter:
        """Where contents are stored."""
        ...

    def append(self, events: Sequence[Event]) -> range:
        """Append events in one piece and return their ids once they are acknowledged."""
        ...


@dataclass(frozen=True, slots=True)
class _Waiting:
    content: bytes
    events: Sequence[Event]
    loop: AbstractEventLoop
    future: Future[range]


class Intake:
    """Stores notifications for any number of coroutines; ends with `close`, after all that waits is stored.

    Args:
        writer: where they go to, held by the caller and closed by it after the intake.
        waiting_max: how many notifications may wait at once.
    """

    def __init__(self, writer: ContentAppender, waiting_max: int) -> None:
        self._writer = writer
        self._waiting_max = waiting_max
        self._changed = Condition()
        self._queue: list[_Waiting] = []
        self._storing = 0
        self._thread: Thread | None = None
        self._is_closed = False
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
        return len(self._queue) + self._storing

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
        with self._changed:
            if self._is_closed:
                raise ClosedError("the receiver stops and takes no more notifications.")
            if self.waiting >= self._waiting_max:
                raise BackpressureError(f"{self.waiting} notifications wait (receiver.requests_max). Try again later.")
            if self._thread is None:
                self._thread = Thread(target=self._work, name="custody-intake", daemon=True)
                self._thread.start()
            self._queue.append(_Waiting(content, events, loop, future))
            self._changed.notify()
        return await future

    def close(self) -> None:
        """Store what waits, and end; a second call does nothing."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._is_closed:
                    self._changed.wait()
                if not self._queue:
                    return
                batch = self._take()
                self._storing = len(batch)
            self._store(batch)
            with self._changed:
                self._storing = 0

    def _take(self) -> list[_Waiting]:
        """Take what waits off the queue, up to the bounds of a batch."""
        events = size = count = 0
        for item in self._queue:
            events, size = events + len(item.events), size + len(item.content)
            if count and (events > BATCH_EVENTS_MAX or size > BATCH_BYTES_MAX):
                break
            count += 1
        batch, self._queue = self._queue[:count], self._queue[count:]
        return batch

    def _store(self, batch: list[_Waiting]) -> None:
        error: Exception | None = None
        ids = range(0)
        begun = time.monotonic()
        try:
            contents = self._writer.content.put_many([item.content for item in batch])
            told = [
                with_content(event, stored)
                for item, stored in zip(batch, contents, strict=True)
                for event in item.events
            ]
            ids = self._writer.append(told)
        except Exception as failure:  # noqa: BLE001 - whatever it is, each caller has to be told
            error = failure
            _LOGGER.warning("%d notifications could not be stored: %s", len(batch), failure)
        self.problem = None if error is None else str(error)
        if error is None:
            self.stored += len(batch)
            self.batches += 1
        _LOGGER.debug("%d notifications in %.4f s", len(batch), time.monotonic() - begun)
        _answer(batch, ids, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _answer(batch: list[_Waiting], ids: range, error: Exception | None) -> None:
    """Tell each caller, with one wake-up a loop."""
    answers: dict[AbstractEventLoop, list[tuple[Future[range], range]]] = defaultdict(list)
    first = ids.start
    for item in batch:
        answers[item.loop].append((item.future, range(first, first + len(item.events))))
        first += len(item.events)
    for loop, told in answers.items():
        try:
            loop.call_soon_threadsafe(_resolve, told, error)
        except RuntimeError:
            _LOGGER.warning("%d notifications were stored and nobody waits for the answer any more", len(told))


def _resolve(told: list[tuple[Future[range], range]], error: Exception | None) -> None:
    for future, ids in told:
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
