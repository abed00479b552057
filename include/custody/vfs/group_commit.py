"""Group commit: many callers share one write and one sync.

Callers queue items. One commit runs at a time and takes what is queued, oldest first; what comes meanwhile shares the
next one. So the more callers there are, the fewer syncs each of them costs, and nothing else touches the file during a
commit.

A caller that waits (`put`) leads a commit itself when none runs. One that must not block (`put_nowait`) leaves it to a
thread of the queue.

Each caller sleeps on a lock of its own. Who ends a commit wakes those whose items it committed and one that leads the
next, nobody else: each thread that wakes has to get the interpreter first, and sixteen that wake in vain take longer
than a disk that syncs in a tenth of a millisecond.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from queue import Full
from threading import Condition, Lock, Thread
from typing import Generic, TypeVar

from custody.errors import ClosedError, StorageError

_LOGGER = logging.getLogger(__name__)
GATHER_SHARE = 0.5
"""For so much of a commit's time its leader waits for others, where that is asked for."""
GATHER_SECONDS_MAX = 0.005
Item = TypeVar("Item")
Result = TypeVar("Result")


class _Entry(Generic[Item]):
    """A queued item, how its commit ended, and the sleep of the caller that waits for it."""

    __slots__ = ("error", "is_done", "is_woken", "item", "signal")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.is_done = False
        self.error: BaseException | None = None
        self.signal = Lock()
        """Locked while its caller, if one waits, has to sleep."""
        self.signal.acquire()
        self.is_woken = False

    def wake(self) -> None:
        """Let its caller look again; called with the queue's lock held."""
        if not self.is_woken:
            self.is_woken = True
            self.signal.release()


class GroupCommitQueue(Generic[Item]):
    """A queue that hands its items to `commit`, in the order in which they came, one batch at a time.

    Args:
        name: what is written to, for messages.
        commit: stores a batch; when it returns, each item of it is acknowledged.
        batch_length: how many of the queued items, at least 1, form the next batch; all of them if not given.
        size_max: how many items may be queued or under way; `put_nowait` refuses more.
        is_poisoned_by_failure: whether one failed commit ends the queue for good. It has to where the state of the
            file is unknown after a failure and the file is not replaced: a second sync may succeed and say nothing of
            the pages that the first one lost.
        is_worth_waiting: whether a commit of what is queued costs enough to wait a moment for those who shared the
            last one; nobody waits if not given. A caller that is alone never waits.
    """

    def __init__(
        self,
        name: str,
        commit: Callable[[list[Item]], None],
        *,
        batch_length: Callable[[Sequence[Item]], int] | None = None,
        size_max: int | None = None,
        is_poisoned_by_failure: bool = False,
        is_worth_waiting: Callable[[Sequence[Item]], bool] | None = None,
    ) -> None:
        self._name = name
        self._commit = commit
        self._batch_length = batch_length
        self._size_max = size_max
        self._is_poisoned_by_failure = is_poisoned_by_failure
        self._is_worth_waiting = is_worth_waiting
        self._companions = 0
        """How many shared a commit, of late."""
        self._seconds = 0.0
        """How long a commit takes, of late."""
        # For exclusive work, the thread and `close`: each commit wakes all of them, and each looks whether it is meant.
        # Callers of `put` take its lock, and sleep on a lock of their own.
        self._lock = Lock()
        self._changed = Condition(self._lock)
        self._sleepers = 0
        """How many wait for that condition: to wake nobody takes a microsecond too."""
        self._exclusive_waiting = 0
        self._is_turn_of_exclusive = False
        """Whether exclusive work goes next: callers that come back at once would keep it off for ever."""
        self._queue: list[_Entry[Item]] = []
        self._batch: list[_Entry[Item]] = []
        self._is_busy = False
        self._close_reason: str | None = None
        self._thread: Thread | None = None
        self.failure: BaseException | None = None
        """What poisoned the queue."""

    @property
    def size(self) -> int:
        """How many items are queued or being committed."""
        return len(self._queue) + len(self._batch)

    @property
    def is_busy(self) -> bool:
        """Whether a commit, or exclusive work, runs."""
        return self._is_busy

    def put(self, item: Item) -> None:
        """Queue an item and return once it is committed.

        Raises:
            ClosedError: the queue is closed or poisoned; the item was not queued.
            StorageError: the commit that another caller led failed, and this item with it. The leader gets the error
                of the commit itself.
        """
        entry = _Entry(item)
        with self._lock:
            self._refuse_if_closed()
            self._queue.append(entry)
            self._lead_if_free(entry)
        while not entry.is_done:
            self._sleep(entry)
        # Only callers that waited get here with an error: the leader's own failure was raised by `_lead_if_free`.
        if entry.error is not None:
            raise self._shared_failure(entry.error)

    def put_nowait(self, item: Item) -> None:
        """Queue an item for the queue's own thread and return at once; `commit` has to answer for it, well or not.

        Raises:
            ClosedError: the queue is closed or poisoned.
            queue.Full: too many items are queued or under way.
        """
        with self._lock:
            self._refuse_if_closed()
            if self._size_max is not None and self.size >= self._size_max:
                raise Full
            # Started with the first item: callers of `put` lead commits themselves and need no thread.
            if self._thread is None:
                self._thread = Thread(target=self._work, name=f"custody-{self._name}", daemon=True)
                self._thread.start()
            self._queue.append(_Entry(item))
            self._notify()

    def run_exclusively(self, work: Callable[[], Result]) -> Result:
        """Run something while no commit runs, and none begins; a failure counts as that of a commit."""
        with self._lock:
            self._exclusive_waiting += 1
            try:
                while self._is_busy:
                    self._wait()
            except BaseException:
                self._is_turn_of_exclusive = False
                self._wake_next()
                raise
            finally:
                self._exclusive_waiting -= 1
            return self._run([], work)

    def close(self, reason: str) -> None:
        """Refuse further items with this reason, and return once all that was queued is committed."""
        with self._lock:
            # Nothing that was queued is dropped: the callers that wait, or the thread, commit it.
            self._close_reason = reason
            self._notify()
            while self._is_busy or self._queue:
                self._wait()
        if self._thread is not None:
            self._thread.join()

    def _wait(self) -> None:
        """Wait until something changed; called with the lock held."""
        self._sleepers += 1
        try:
            self._changed.wait()
        finally:
            self._sleepers -= 1

    def _notify(self) -> None:
        if self._sleepers:
            self._changed.notify_all()

    def _refuse_if_closed(self) -> None:
        if self.failure is not None:
            raise ClosedError(
                f"{self._name}: an earlier append failed ({self.failure}); nothing more is written to it."
            )
        if self._close_reason is not None:
            raise ClosedError(self._close_reason)

    def _lead_if_free(self, entry: _Entry[Item]) -> None:
        """Commit batch after batch until the caller's own entry is done, or somebody else does something.

        Called with the lock held. Raises the failure of a commit only when the caller's own entry failed with it: the
        next batch may hold only entries queued before that, whose callers are told.
        """
        try:
            while not (entry.is_done or self._is_busy or self._is_turn_of_exclusive):
                try:
                    self._commit_batch()
                except Exception:
                    if entry.is_done:
                        raise
        except BaseException:
            self._leave(entry)
            raise

    def _sleep(self, entry: _Entry[Item]) -> None:
        """Wait until somebody wakes this caller, and lead a commit if its entry is not done then."""
        try:
            entry.signal.acquire()
            # Most are woken because all is done: those need no other lock.
            if entry.is_done:
                return
        except BaseException:
            with self._lock:
                self._leave(entry)
            raise
        with self._lock:
            entry.is_woken = False
            self._lead_if_free(entry)

    def _leave(self, entry: _Entry[Item]) -> None:
        """Take the item of an interrupted caller out; called with the lock held."""
        # It would leave nobody to lead the commit of its item, and of those that count on it: `close` would wait for
        # ever.
        if entry in self._queue:
            self._queue.remove(entry)
        self._wake_next()
        self._notify()

    def _wake_next(self) -> None:
        """Wake the caller that leads the next commit, if one can begin; called with the lock held."""
        if self._queue and not (self._is_busy or self._is_turn_of_exclusive):
            # Where nobody waits for the oldest item, the thread of the queue was notified.
            self._queue[0].wake()

    def _work(self) -> None:
        while True:
            with self._lock:
                while self._is_busy or self._is_turn_of_exclusive or not self._queue:
                    if self._close_reason is not None and not self._queue:
                        return
                    self._wait()
                try:
                    self._commit_batch()
                except Exception:
                    _LOGGER.exception("%s: a commit failed and answered nobody", self._name)
                except BaseException as error:
                    # The thread ends here: what is queued has nobody to commit it, and `close` must not wait for it.
                    self.failure, self._queue = error, []
                    raise

    def _commit_batch(self) -> None:
        """Commit the oldest items; called with the lock held and no commit running."""
        self._gather()
        items = [entry.item for entry in self._queue]
        count = len(items) if self._batch_length is None else self._batch_length(items)
        batch, self._queue = self._queue[:count], self._queue[count:]
        self._run(batch, partial(self._commit, items[:count]))

    def _gather(self) -> None:
        """Wait for those who shared the last commit, for less long than a commit of their own would take."""
        if self._is_worth_waiting is None or len(self._queue) >= self._companions or self._companions < 2:
            return
        if not self._is_worth_waiting([entry.item for entry in self._queue]):
            return
        self._is_busy = True
        # Asleep in one piece: woken for each that comes, it would take the processor from those who are to come.
        self._changed.release()
        try:
            time.sleep(min(self._seconds * GATHER_SHARE, GATHER_SECONDS_MAX))
        finally:
            self._changed.acquire()
            self._is_busy = False

    def _run(self, batch: list[_Entry[Item]], work: Callable[[], Result]) -> Result:
        """Run what nothing else may run beside; called with the lock held, which others can take meanwhile."""
        self._is_busy, self._batch, self._is_turn_of_exclusive = True, batch, False
        error: BaseException | None = None
        begun = time.monotonic()
        # The lock is free meanwhile, so that others can queue; `_is_busy` keeps them off the file.
        self._changed.release()
        try:
            return work()
        except BaseException as failure:
            error = failure
            raise
        finally:
            self._changed.acquire()
            if batch:
                # It forgets slowly: threads come in waves, and a small one must not end the waiting for a large one.
                self._companions = max(len(batch), self._companions - 1)
                self._seconds += (time.monotonic() - begun - self._seconds) / 8
            self._finish(error)

    def _finish(self, error: BaseException | None) -> None:
        done = self._batch
        if error is not None and self._is_poisoned_by_failure:
            # Those that queued while the commit failed would go to the same file: they fail with it.
            self.failure = self.failure or error
            done, self._queue = done + self._queue, []
        self._is_turn_of_exclusive = bool(self._batch and self._exclusive_waiting)
        self._is_busy, self._batch = False, []
        for entry in done:
            entry.error, entry.is_done = error, True
            entry.wake()
        self._wake_next()
        self._notify()

    def _shared_failure(self, error: BaseException) -> StorageError:
        """Return an error of this caller's own: one that several threads raise grows with each traceback."""
        failure = StorageError(f"{self._name}: an append of another thread failed ({error}), this one with it.")
        failure.errno = error.errno if isinstance(error, OSError) else None
        return failure
