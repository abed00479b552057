"""Several files at a time: all retries, no key twice, one reason each; what is fatal ends all and nobody goes on."""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from custody.errors import CorruptionError, StorageError
from custody.ngsi_sink.batch_file import FileAppend
from custody.ngsi_sink.local import LocalFiles
from custody.ngsi_sink.target import DestinationError, Failure, FilesTarget, RetryPool
from custody.vfs import PosixFileSystem
from tests.unit.ngsi.notification_records import parameters
from tests.unit.ngsi_sink.sink_repository import bench, files, opened, received

KEYS = list(range(40))


def attempts(at_once: int, **names: object) -> RetryPool:
    return RetryPool(parameters(backend_files_at_once=at_once, **names), lambda _: None, lambda: None)


def test_so_many_are_acted_on_at_once_and_no_more() -> None:
    now, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(4)

    def act(_: int) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        together.wait(30)  # forty keys by four: none of them can end alone
        with lock:
            now -= 1

    with attempts(4) as found:
        assert found.all(KEYS, act) == {}
    assert most == 4


@pytest.mark.parametrize("at_once", [1, 8])
def test_what_is_refused_is_tried_again_and_the_rest_is_not(at_once: int) -> None:
    asked: Counter[int] = Counter()

    def act(key: int) -> None:
        asked[key] += 1
        if key % 7 == 3 and (key > 20 or asked[key] < 3):
            raise StorageError(f"no {key}")

    with attempts(at_once, batch_ttl=4) as found:
        left = found.all(KEYS, act)
    assert list(left.items()) == [(key, Failure(f"no {key}")) for key in (24, 31, 38)]
    assert asked == {key: (1 if key % 7 != 3 else 5 if key > 20 else 3) for key in KEYS}


@pytest.mark.parametrize("at_once", [1, 8])
def test_what_no_wait_helps_is_tried_once_and_the_rest_goes_on(at_once: int) -> None:
    asked: Counter[int] = Counter()

    def act(key: int) -> None:
        asked[key] += 1
        if key in (1, 5):
            raise DestinationError(f"a folder at {key}") if key == 5 else StorageError("busy")

    with attempts(at_once, batch_ttl=2) as found:
        left = found.all(KEYS, act)
    assert left == {1: Failure("busy"), 5: Failure("a folder at 5", is_final=True)}
    assert list(left) == [1, 5]
    assert asked == {key: 3 if key == 1 else 1 for key in KEYS}


def test_what_is_fatal_ends_all_and_comes_out_when_nobody_acts_any_more() -> None:
    begun: set[int] = set()
    ended: set[int] = set()

    def act(key: int) -> None:
        begun.add(key)
        if key == 2:
            raise CorruptionError("damaged")
        time.sleep(0.05)
        ended.add(key)

    with attempts(4) as found:
        with pytest.raises(CorruptionError, match="damaged"):
            found.all(KEYS, act)
        assert begun == ended | {2}
        assert len(begun) < 10


def test_one_at_a_time_where_the_order_counts() -> None:
    order: list[int] = []
    with attempts(8) as found:
        found.all(KEYS, order.append, in_order=True)
    assert order == KEYS


class _Crash(BaseException):
    """The process ends."""


class _Crashing(FilesTarget):
    """Ends the process at some files; the others are written, whichever they are."""

    def __init__(self, root: Path, crashes: frozenset[str]) -> None:
        super().__init__(LocalFiles(PosixFileSystem(), root))
        self._crashes = crashes
        self._changed = threading.Condition()
        self._left = 3 - len(crashes)

    def apply(self, part: FileAppend, data: memoryview) -> None:
        if any(name in part.path for name in self._crashes):
            with self._changed:
                assert self._changed.wait_for(lambda: self._left == 0, timeout=60)
            raise _Crash
        super().apply(part, data)
        with self._changed:
            self._left -= 1
            self._changed.notify_all()


def test_a_crash_that_leaves_any_of_the_files_written_is_brought_to_its_end(tmp_path: Path) -> None:
    names = ["Ash", "Birch", "Cedar"]
    subsets = [frozenset(found) for size in (1, 2, 3) for found in itertools.combinations(names, size)]
    for number, crashes in enumerate(subsets):
        root = tmp_path / str(number)
        repository = received(root, [bench(place, name) for place, name in enumerate(names)], backend_files_at_once=4)
        target = _Crashing(root / "hdfs", crashes)
        with suppress(_Crash), opened(repository, target) as job:
            job.run(until_ms=2**53)
        there = files(repository)
        assert {name for name in names if not any(name in path for path in there)} == crashes
        with opened(repository, attempt="test/2") as job:
            job.run(until_ms=2**53)
        found = files(repository)
        assert len(found) == 3
        assert all(data.count(b"\n") == 1 for data in found.values()), (crashes, found)
