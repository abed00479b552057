"""The group-commit queue: one commit at a time in the order of arrival, and what a failure costs whom."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from queue import Full
from threading import Event as Signal
from threading import Thread, current_thread

import pytest

from custody.errors import ClosedError, StorageError
from custody.vfs import group_commit
from custody.vfs.group_commit import GroupCommitQueue

PATIENCE_SECONDS = 20.0


class Disk:
    """Takes batches; each commit waits until the test lets it go on."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.running = 0
        self.gate = Signal()
        self.failure: BaseException | None = None

    def commit(self, batch: list[int]) -> None:
        self.running += 1
        assert self.running == 1, "two commits at once"
        self.batches.append(batch)
        try:
            assert self.gate.wait(PATIENCE_SECONDS)
            if self.failure is not None:
                raise self.failure
        finally:
            self.running -= 1


class Callers:
    """Threads that put an item each, and what each was told."""

    def __init__(self, queue: GroupCommitQueue[int]) -> None:
        self._queue = queue
        self._threads: list[Thread] = []
        self.results: dict[int, BaseException | None] = {}

    def put(self, item: int) -> None:
        """Put an item in a thread of its own, and wait until it is queued or under way."""
        size = self._queue.size
        self._threads.append(Thread(target=self._put, args=(item,)))
        self._threads[-1].start()
        until(lambda: self._queue.size > size)

    def join(self) -> None:
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()

    def _put(self, item: int) -> None:
        try:
            self._queue.put(item)
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test looks at it
            self.results[item] = error
        else:
            self.results[item] = None


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def disk_full() -> StorageError:
    error = StorageError("no room")
    error.errno = errno.ENOSPC
    return error


def test_what_queues_during_a_commit_shares_the_next_one_in_its_order() -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    for item in range(6):
        callers.put(item)
    assert queue.is_busy
    assert disk.batches == [[0]]
    assert callers.results == {}, "nobody is acknowledged before the commit returned"
    disk.gate.set()
    callers.join()
    assert disk.batches == [[0], [1, 2, 3, 4, 5]]
    assert callers.results == dict.fromkeys(range(6))
    assert (queue.size, queue.is_busy) == (0, False)


def test_a_batch_takes_no_more_than_its_bound_and_every_caller_gets_its_turn() -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit, batch_length=lambda items: min(len(items), 2))
    callers = Callers(queue)
    for item in range(6):
        callers.put(item)
    disk.gate.set()
    callers.join()
    assert disk.batches == [[0], [1, 2], [3, 4], [5]]
    assert callers.results == dict.fromkeys(range(6))


def test_a_failure_reaches_all_of_its_batch_and_nobody_else() -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    callers.put(0)
    disk.failure = disk_full()
    callers.put(1)
    callers.put(2)
    disk.gate.set()
    callers.join()
    assert all(isinstance(error, StorageError) and error.errno == errno.ENOSPC for error in callers.results.values())
    leaders = [error for error in callers.results.values() if error is disk.failure]
    assert len(leaders) >= 1, "who led the commit gets the error itself"
    [shared] = [error for error in callers.results.values() if "another thread" in str(error)]
    assert str(shared) == "a file: an append of another thread failed (no room), this one with it."
    disk.failure = None
    queue.put(3)
    assert disk.batches[-1] == [3]


def test_a_failure_poisons_where_the_file_is_not_replaced() -> None:
    """Those that queued while the commit failed fail with it; later ones are refused, and nothing is written."""
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit, is_poisoned_by_failure=True)
    callers = Callers(queue)
    disk.failure = disk_full()
    for item in range(3):
        callers.put(item)
    disk.gate.set()
    callers.join()
    assert disk.batches == [[0]]
    assert callers.results[0] is disk.failure
    assert [type(callers.results[item]) for item in (1, 2)] == [StorageError, StorageError]
    assert queue.failure is disk.failure
    with pytest.raises(ClosedError, match=r"a file: an earlier append failed \(no room\); nothing more is written"):
        queue.put(3)
    assert disk.batches == [[0]]


def test_a_failure_of_exclusive_work_poisons_as_well() -> None:
    queue: GroupCommitQueue[int] = GroupCommitQueue("a file", lambda _: None, is_poisoned_by_failure=True)

    def fail() -> None:
        raise disk_full()

    with pytest.raises(StorageError, match="no room"):
        queue.run_exclusively(fail)
    with pytest.raises(ClosedError):
        queue.put(1)


def test_exclusive_work_waits_for_the_commit_that_runs_and_holds_up_the_next_one() -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    callers.put(0)
    seen: list[int] = []
    entered, leave = Signal(), Signal()

    def work() -> int:
        entered.set()
        assert leave.wait(PATIENCE_SECONDS)
        return len(disk.batches)

    exclusive = Thread(target=lambda: seen.append(queue.run_exclusively(work)))
    exclusive.start()
    assert not entered.wait(0.05)
    disk.gate.set()
    assert entered.wait(PATIENCE_SECONDS)
    callers.put(1)
    time.sleep(0.02)
    leave.set()
    exclusive.join()
    callers.join()
    assert seen == [1], "the second commit ran after it"
    assert disk.batches == [[0], [1]]


def test_closing_commits_what_is_queued_and_refuses_the_rest() -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    callers.put(0)
    callers.put(1)
    closing = Thread(target=queue.close, args=("it is closed.",))
    closing.start()
    closing.join(0.05)
    assert closing.is_alive(), "it waits for what is under way"
    with pytest.raises(ClosedError, match=r"^it is closed\.$"):
        queue.put(2)
    disk.gate.set()
    closing.join(PATIENCE_SECONDS)
    callers.join()
    assert disk.batches == [[0], [1]]
    queue.close("it is closed.")


def test_an_interrupted_leader_leaves_the_queue_usable() -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    disk.failure = KeyboardInterrupt()
    callers.put(0)
    disk.gate.set()
    callers.join()
    assert isinstance(callers.results[0], KeyboardInterrupt)
    disk.failure = None
    queue.put(1)
    queue.close("it is closed.")
    assert disk.batches == [[0], [1]]


def test_an_interrupted_caller_takes_its_item_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else nobody would lead the commit of its item, and `close` would wait for ever."""
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    callers.put(0)

    class Interrupted:
        """A lock on which whoever sleeps is interrupted."""

        def __init__(self) -> None:
            self.is_locked = False

        def acquire(self) -> None:
            if self.is_locked:
                raise KeyboardInterrupt
            self.is_locked = True

    with monkeypatch.context() as patch:
        patch.setattr(group_commit, "Lock", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.put(1)
    disk.gate.set()
    callers.join()
    queue.close("it is closed.")
    assert disk.batches == [[0]]


def test_the_thread_of_the_queue_commits_for_callers_that_do_not_wait() -> None:
    disk = Disk()
    threads: set[str] = set()

    def commit(batch: list[int]) -> None:
        threads.add(current_thread().name)
        disk.commit(batch)

    queue = GroupCommitQueue("intake", commit, size_max=3)
    queue.put_nowait(0)
    until(lambda: disk.batches == [[0]])
    queue.put_nowait(1)
    queue.put_nowait(2)
    with pytest.raises(Full):
        queue.put_nowait(3)
    disk.gate.set()
    queue.close("it is closed.")
    assert disk.batches == [[0], [1, 2]]
    assert threads == {"custody-intake"}
    with pytest.raises(ClosedError):
        queue.put_nowait(4)


def test_a_commit_that_answers_nobody_does_not_end_the_thread(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    queue = GroupCommitQueue("intake", disk.commit)
    disk.failure = disk_full()
    queue.put_nowait(0)
    disk.gate.set()
    until(lambda: queue.size == 0)
    disk.failure = None
    queue.put_nowait(1)
    queue.close("it is closed.")
    assert disk.batches == [[0], [1]]
    assert "intake: a commit failed and answered nobody" in caplog.text


def test_a_thousand_items_of_many_threads_are_each_committed_once() -> None:
    stored: list[int] = []
    queue = GroupCommitQueue("a file", stored.extend, batch_length=lambda items: min(len(items), 7))

    def work(first: int) -> None:
        for item in range(first, first + 125):
            queue.put(item)

    threads = [Thread(target=work, args=(1000 * number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    assert sorted(stored) == sorted(1000 * number + item for number in range(8) for item in range(125))
    for number in range(8):
        own = [item for item in stored if item // 1000 == number]
        assert own == sorted(own), "a thread's items keep their order"


class Waves:
    """Threads that come back together after each commit, which takes twenty milliseconds."""

    def __init__(self, threads: int, *, is_waiting: bool) -> None:
        self.batches: list[int] = []
        self.queue: GroupCommitQueue[int] = GroupCommitQueue(
            "disk", self._commit, is_worth_waiting=(lambda _: True) if is_waiting else None
        )
        workers = [Thread(target=self._work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(PATIENCE_SECONDS)

    def _commit(self, batch: list[int]) -> None:
        self.batches.append(len(batch))
        time.sleep(0.02)

    def _work(self, number: int) -> None:
        for _ in range(12):
            self.queue.put(number)
            time.sleep(0.0005 * number)


def test_a_leader_that_waits_shares_its_commit_with_those_who_come_at_once() -> None:
    waiting, hasty = Waves(4, is_waiting=True), Waves(4, is_waiting=False)
    assert sum(waiting.batches) == sum(hasty.batches) == 48
    assert len(waiting.batches) < len(hasty.batches), (waiting.batches, hasty.batches)


def test_a_caller_alone_does_not_wait_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    queue: GroupCommitQueue[int] = GroupCommitQueue("disk", lambda _: None, is_worth_waiting=lambda _: True)
    monkeypatch.setattr("custody.vfs.group_commit.time.sleep", lambda _: pytest.fail("it waited"))
    for number in range(5):
        queue.put(number)


def test_nobody_waits_for_others_where_it_is_not_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    queue = GroupCommitQueue("disk", disk.commit, is_worth_waiting=lambda batch: 9 in batch)
    callers = Callers(queue)
    for number in range(3):
        callers.put(number)
    disk.gate.set()
    callers.join()
    monkeypatch.setattr("custody.vfs.group_commit.time.sleep", lambda _: pytest.fail("it waited"))
    queue.put(3)
    assert disk.batches == [[0], [1, 2], [3]]


def test_a_leader_interrupted_while_it_waits_leaves_the_queue_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    queue = GroupCommitQueue("disk", disk.commit, is_worth_waiting=lambda _: True)
    callers = Callers(queue)
    for number in range(3):
        callers.put(number)
    disk.gate.set()
    callers.join()

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("custody.vfs.group_commit.time.sleep", interrupt)
        with pytest.raises(KeyboardInterrupt):
            queue.put(3)
    queue.put(4)
    queue.close("closed")
    assert disk.batches == [[0], [1, 2], [4]], "the item of the interrupted caller was not queued any more"


def test_callers_that_come_back_at_once_do_not_keep_exclusive_work_off() -> None:
    stored: list[int] = []
    queue: GroupCommitQueue[int] = GroupCommitQueue("a file", stored.extend)
    is_over = Signal()

    def work(number: int) -> None:
        while not is_over.is_set():
            queue.put(number)

    threads = [Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    lengths = [queue.run_exclusively(lambda: len(stored)) for _ in range(50)]
    is_over.set()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
        assert not thread.is_alive()
    assert lengths == sorted(lengths)


def test_interrupted_exclusive_work_leaves_its_turn_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk()
    queue = GroupCommitQueue("a file", disk.commit)
    callers = Callers(queue)
    callers.put(0)

    def interrupted() -> None:
        callers.put(1)
        disk.gate.set()
        raise KeyboardInterrupt

    def wait() -> None:
        queue._changed.release()
        _retaken(queue, interrupted)

    with monkeypatch.context() as patch:
        patch.setattr(queue, "_wait", wait)
        with pytest.raises(KeyboardInterrupt):
            queue.run_exclusively(lambda: None)
    callers.join()
    assert disk.batches == [[0], [1]]


def _retaken(queue: GroupCommitQueue[int], work: Callable[[], None]) -> None:
    """Do something without the lock of a queue, as its sleepers do."""
    try:
        work()
    finally:
        queue._changed.acquire()
