"""A look from outside: one true state while others work, in order over swap files, and not a byte is changed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from custody.clock import ManualClock, SystemClock
from custody.errors import CorruptionError, NotFoundError
from custody.flow.flowfile import FlowFile
from custody.flowfile_repository import (
    Connection,
    FlowFileLook,
    FlowFileOptions,
    FlowFileRepository,
    Placed,
    Work,
)
from custody.vfs import PosixFileSystem

CLOCK = SystemClock()
FS = PosixFileSystem()


def flowfile(number: int) -> FlowFile:
    attributes = {"priority": str(number * 7919 % 1000)}
    return FlowFile(uuid=f"{number:036d}", attributes=attributes, size=number, entry_date=1, lineage_start_date=1)


def opened(home: Path, threshold: int = 20_000) -> FlowFileRepository:
    return FlowFileRepository(FS, home, CLOCK, options=FlowFileOptions(swap_threshold=threshold))


def look(home: Path) -> FlowFileLook:
    return FlowFileLook(FS, home, CLOCK.now_ms())


def fill(flowfiles: FlowFileRepository, numbers: range, queue: str = "orders") -> None:
    for start in range(0, len(numbers), 100):
        chosen = numbers[start : start + 100]
        flowfiles.commit(Work(f"fill-{chosen[0]}", [Placed(flowfile(number), queue) for number in chosen]))


def test_a_folder_that_does_not_exist_has_no_queues_and_is_not_made(tmp_path: Path) -> None:
    assert look(tmp_path / "flowfiles").queues() == []
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(NotFoundError, match=r"there is no queue 'orders'\. There are: none\."):
        look(tmp_path / "flowfiles").flowfiles("orders", 1)


def test_flowfiles_of_swap_files_are_shown_where_their_turn_comes(tmp_path: Path) -> None:
    with opened(tmp_path, threshold=100) as flowfiles:
        flowfiles.connect(Connection(name="orders", prioritizers=("attribute:priority",)))
        fill(flowfiles, range(1000))
        (status,) = look(tmp_path).queues()
        assert (status.count, status.content_bytes) == (1000, sum(range(1000)))
        assert status.swapped >= 800
        shown = look(tmp_path).flowfiles("orders", 10_000)
        priorities = [int(item.flowfile.attributes["priority"]) for item in shown]
        assert priorities == sorted(priorities)
        assert len({item.flowfile.uuid for item in shown}) == 1000
        assert sum(item.is_swapped for item in shown) == status.swapped
        assert look(tmp_path).flowfiles("orders", 3) == shown[:3]


def test_the_oldest_one_counts_also_when_it_lies_in_a_swap_file(tmp_path: Path) -> None:
    clock = ManualClock(1000)
    options = FlowFileOptions(swap_threshold=100)
    with FlowFileRepository(FS, tmp_path, clock, options=options) as flowfiles:
        flowfiles.connect(Connection(name="orders", prioritizers=("newest",)))
        for number in range(300):
            clock.advance(1)
            one = FlowFile(uuid=str(number), attributes={}, size=0, entry_date=1, lineage_start_date=number)
            flowfiles.commit(Work(f"fill-{number}", [Placed(one, "orders")]))
        assert min(item.queued_ms for item in flowfiles.waiting("orders")) > 1001
        (status,) = look(tmp_path).queues()
        assert (status.oldest_ms, status.swapped) == (1001, 200)


def test_a_look_agrees_with_the_repository_after_a_snapshot_and_transactions_behind_it(tmp_path: Path) -> None:
    with opened(tmp_path) as flowfiles:
        flowfiles.connect(Connection(name="orders"))
        fill(flowfiles, range(10))
        flowfiles.checkpoint()
        fill(flowfiles, range(10, 15))
        taken = flowfiles.take("orders", "work", count=4).items
        (status,) = look(tmp_path).queues()
        assert (status.count, status.taken) == (15, 4)
        shown = look(tmp_path).flowfiles("orders", 13)
        assert [item.state for item in shown] == ["waiting"] * 11 + ["taken"] * 2
        assert {item.flowfile.uuid for item in shown[11:]} <= {item.uuid for item in taken}


def test_a_torn_tail_is_passed_over_and_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as flowfiles:
        flowfiles.connect(Connection(name="orders"))
        fill(flowfiles, range(10))
    (log,) = (tmp_path / "log").iterdir()
    whole = log.read_bytes()
    log.write_bytes(whole + whole[-200:-100])
    # The last record is that of a transaction; what follows looks like the middle of another one.
    torn = log.read_bytes()
    assert look(tmp_path).queues()[0].count == 10
    assert log.read_bytes() == torn


def test_damage_is_named_with_its_file_and_the_file_stays(tmp_path: Path) -> None:
    with opened(tmp_path) as flowfiles:
        flowfiles.connect(Connection(name="orders"))
        fill(flowfiles, range(10))
        flowfiles.checkpoint()
    for path in (tmp_path / "snapshot", next((tmp_path / "log").iterdir())):
        whole = path.read_bytes()
        path.write_bytes(whole[:30] + bytes([whole[30] ^ 1]) + whole[31:])
        damaged = path.read_bytes()
        with pytest.raises(CorruptionError, match=path.name):
            look(tmp_path)
        assert path.read_bytes() == damaged
        path.write_bytes(whole)


def test_looks_beside_commits_and_snapshots_see_states_that_there_were(tmp_path: Path) -> None:
    over = threading.Event()
    counts: list[int] = []

    def watch() -> None:
        while not over.is_set():
            found = look(tmp_path).queues()
            counts.extend(status.count for status in found)

    with opened(tmp_path, threshold=50) as flowfiles:
        flowfiles.connect(Connection(name="orders", count_max=0))
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            for number in range(30):
                fill(flowfiles, range(number * 100, number * 100 + 100))
                flowfiles.checkpoint()
        finally:
            over.set()
            watcher.join()
    assert counts
    assert counts == sorted(counts)
    assert {count % 100 for count in counts} == {0}


def test_a_first_snapshot_that_gets_its_name_during_a_look_is_read_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as flowfiles:
        flowfiles.connect(Connection(name="orders"))
        fill(flowfiles, range(3))
        flowfiles.checkpoint()
    [home] = {path.parent for path in tmp_path.rglob("snapshot")}
    (home / "snapshot").rename(home / "snapshot.partial")
    whole = PosixFileSystem.view

    def late(self: PosixFileSystem, path: Path) -> memoryview:
        if path.name == "snapshot.partial" and path.exists():
            path.rename(home / "snapshot")  # as its writer does in this moment
        return whole(self, path)

    monkeypatch.setattr(PosixFileSystem, "view", late)
    assert [status.count for status in look(tmp_path).queues()] == [3]
