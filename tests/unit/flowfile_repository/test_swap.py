"""Swap: from the threshold on FlowFiles go to files, come back in the order of their priorities, each once."""

from __future__ import annotations

import pytest

from custody.errors import CorruptionError, NotFoundError, StorageError
from custody.flow import FlowFile
from custody.flowfile_repository import Connection, FlowFileOptions, FlowFileRepository, Work
from custody.flowfile_repository.records import SwapFile
from custody.flowfile_repository.swap import BLOCK_FLOWFILES, clear_swaps, read_swap_block, write_swap
from custody.vfs.faults import FaultyFileSystem
from tests.support import flipped
from tests.unit.flowfile_repository.queue_fixtures import CLAIM, HOME, NOW, Machine, drain, flowfile, put, waiting

SWAPS = HOME / "swap"


def _numbered(first: int, stop: int, step: int = 1) -> list[FlowFile]:
    return [flowfile(f"{n:05}", p=str(n)) for n in range(first, stop, step)]


def _names(first: int, stop: int) -> list[str]:
    return [f"{n:05}" for n in range(first, stop)]


def _opened(machine: Machine, *prioritizers: str) -> FlowFileRepository:
    flowfiles = machine.open()
    flowfiles.connect(Connection(name="q", prioritizers=prioritizers, count_max=0))
    return flowfiles


def test_the_first_file_comes_with_the_flowfile_that_completes_a_batch_beyond_the_threshold() -> None:
    machine = Machine(threshold=10_000)
    with _opened(machine) as flowfiles:
        put(flowfiles, "q", _numbered(0, 19_999))
        assert (flowfiles.size("q").in_memory, machine.swap_files) == (19_999, [])
        put(flowfiles, "q", _numbered(19_999, 20_000))
        size = flowfiles.size("q")
        assert (size.count, size.in_memory, size.swapped, size.swap_files) == (20_000, 10_000, 10_000, 1)
        assert len(machine.swap_files) == 1
        assert drain(flowfiles, "q", at_once=5000) == _names(0, 20_000)
        flowfiles.checkpoint()
        assert machine.swap_files == []


@pytest.mark.parametrize(("threshold", "batch"), [(20_000, 10_000), (10_000, 10_000), (100, 100)])
def test_a_batch_is_never_larger_than_the_threshold(threshold: int, batch: int) -> None:
    assert FlowFileOptions(swap_threshold=threshold).swap_batch == batch
    assert FlowFileOptions().swap_threshold == 20_000


@pytest.mark.parametrize("is_reopened", [False, True])
def test_priorities_hold_over_files_that_overlap(is_reopened: bool) -> None:
    machine = Machine(threshold=1000)
    flowfiles = _opened(machine, "attribute:p")
    for first in range(6):
        put(flowfiles, "q", _numbered(first, 6000, 6))
    assert flowfiles.size("q").swap_files >= 4
    if is_reopened:
        machine.die()
        flowfiles = machine.open()
    assert drain(flowfiles, "q", at_once=300) == _names(0, 6000)


def test_one_block_comes_back_at_a_time() -> None:
    machine = Machine(threshold=2000)
    with _opened(machine) as flowfiles:
        put(flowfiles, "q", _numbered(0, 8000))
        put_back = [item.uuid for item in flowfiles.take("q", "s", count=2001).items]
        size = flowfiles.size("q")
        assert (size.taken, size.in_memory, size.swapped) == (2001, BLOCK_FLOWFILES - 1, 8000 - 2000 - BLOCK_FLOWFILES)
        flowfiles.give_back("s", put_back)
        assert drain(flowfiles, "q") == _names(0, 8000)


def test_a_restart_and_a_second_member_see_the_same_swap_files() -> None:
    machine = Machine(threshold=1000)
    flowfiles = _opened(machine)
    put(flowfiles, "q", _numbered(0, 5000))
    taken = [item.uuid for item in flowfiles.take("q", "s", count=1700).items]
    flowfiles.commit(Work("s", leaves=taken))
    for has_snapshot in (False, True):
        if has_snapshot:
            flowfiles.checkpoint()
        with machine.open() as other:
            assert other.size("q") == flowfiles.size("q")
    machine.die()
    with machine.open() as again:
        assert drain(again, "q") == _names(1700, 5000)


def test_a_file_of_which_all_came_back_stays_until_the_next_snapshot() -> None:
    machine = Machine(threshold=500)
    flowfiles = _opened(machine)
    put(flowfiles, "q", _numbered(0, 1500))
    assert drain(flowfiles, "q") == _names(0, 1500)
    assert len(machine.swap_files) == 2
    machine.die()  # the log, which needs them, is read again
    with machine.open() as again:
        assert again.size("q").count == 0
        again.checkpoint()
        assert machine.swap_files == []


def test_claims_of_swapped_flowfiles_stay_counted() -> None:
    machine = Machine(threshold=500)
    flowfiles = _opened(machine)
    put(flowfiles, "q", [flowfile(f"{n:05}", claim=n // 1000) for n in range(2000)])
    counted = {f"{CLAIM}0": 1000, f"{CLAIM}1": 1000}
    assert flowfiles.claims() == counted
    flowfiles.checkpoint()
    machine.die()
    with machine.open() as again:
        assert again.claims() == counted
        assert len(drain(again, "q")) == 2000
        again.checkpoint()
        assert list(again.archived()) == list(counted)


def test_leftovers_go_at_the_start_and_other_files_stay() -> None:
    machine = Machine(threshold=500)
    with _opened(machine) as flowfiles:
        put(flowfiles, "q", _numbered(0, 1000))
    [needed] = machine.swap_files
    for name in ("0-x.swap", "0-y.swap.00.partial", "README"):
        machine.overwrite(SWAPS / name, b"x")
    with machine.open() as flowfiles:
        assert sorted(machine.swap_files) == sorted([needed, "README"])
        assert drain(flowfiles, "q") == _names(0, 1000)


def _written(count: int = 1200) -> tuple[Machine, SwapFile]:
    machine = Machine()
    machine.fs.make_directory(SWAPS)
    items = [waiting(str(n), n, size=2) for n in range(count)]
    return machine, write_swap(machine.fs, SWAPS, "r", "q", items, NOW)


def test_a_swap_file_gives_its_blocks_and_says_what_is_in_them() -> None:
    machine, swap = _written()
    assert [(block.count, block.bytes, block.first) for block in swap.blocks] == [
        (500, 1000, ((), 0)),
        (500, 1000, ((), 500)),
        (200, 400, ((), 1000)),
    ]
    assert (swap.count, swap.content_bytes, swap.first) == (1200, 2400, ((), 0))
    read = [item for number in range(3) for item in read_swap_block(machine.fs, SWAPS, swap, number)]
    assert read == [waiting(str(n), n, size=2) for n in range(1200)]
    assert machine.swap_files == [swap.name]
    assert clear_swaps(machine.fs, SWAPS, {swap.name}) == []
    assert clear_swaps(machine.fs, SWAPS, set()) == [swap.name]


def test_a_damaged_block_is_refused_with_file_and_offset_and_the_others_are_read() -> None:
    machine, swap = _written()
    path, block = SWAPS / swap.name, swap.blocks[1]
    machine.overwrite(path, flipped(machine.fs.read(path), 8 * (block.offset + 100)))
    with pytest.raises(CorruptionError, match=f"{path} @{block.offset}: expected 500 FlowFiles of the queue 'q'"):
        read_swap_block(machine.fs, SWAPS, swap, 1)
    assert len(read_swap_block(machine.fs, SWAPS, swap, 2)) == 200
    machine.fs.remove(path)
    with pytest.raises(NotFoundError, match=f"{path}: the swap file of the queue 'q' is gone"):
        read_swap_block(machine.fs, SWAPS, swap, 0)


def test_a_damaged_block_stops_its_queue_and_no_other_one() -> None:
    machine = Machine(threshold=500)
    with _opened(machine) as flowfiles:
        flowfiles.connect(Connection(name="other"))
        put(flowfiles, "q", _numbered(0, 1500))
        put(flowfiles, "other", [flowfile("o")])
        [path] = [SWAPS / name for name in machine.swap_files][:1]
        good = machine.fs.read(path)
        for name in machine.swap_files:
            machine.overwrite(SWAPS / name, flipped(machine.fs.read(SWAPS / name), 8 * 400))
        flowfiles.checkpoint()
        with pytest.raises(CorruptionError, match="expected 500 FlowFiles"):
            drain(flowfiles, "q")
        assert drain(flowfiles, "other") == ["o"]
        for name in machine.swap_files:
            machine.overwrite(SWAPS / name, flipped(machine.fs.read(SWAPS / name), 8 * 400))
        assert machine.fs.read(path) == good
        assert drain(flowfiles, "q", at_once=100)[-1] == "01499"


def test_a_damaged_swap_file_shuts_no_other_queue_at_the_next_start() -> None:
    machine = Machine(threshold=500)
    with _opened(machine) as flowfiles:
        flowfiles.connect(Connection(name="other"))
        put(flowfiles, "q", _numbered(0, 1500))
        put(flowfiles, "other", [flowfile("o")])
        for name in machine.swap_files:
            machine.overwrite(SWAPS / name, flipped(machine.fs.read(SWAPS / name), 8 * 400))
    with machine.open() as flowfiles:
        assert flowfiles.size("q").count == 1500
        assert drain(flowfiles, "other") == ["o"]


def test_penalised_flowfiles_in_swap_files_stay_there_until_their_penalty_ends() -> None:
    machine = Machine(threshold=1000)
    with _opened(machine) as flowfiles:
        until = NOW + 30_000
        for first in range(0, 8000, 1000):
            put(flowfiles, "q", _numbered(first, first + 1000), penalised_until_ms=until)
        for _ in range(3):
            assert flowfiles.take("q", "s", count=10).items == ()
            assert flowfiles.size("q").in_memory < 2000 + BLOCK_FLOWFILES
        put(flowfiles, "q", _numbered(8000, 8001))
        machine.clock.advance(30_001)
        assert drain(flowfiles, "q", at_once=300) == _names(0, 8001)


def test_all_that_is_penalised_can_be_taken_and_keeps_its_penalty_when_it_goes_back() -> None:
    machine = Machine(threshold=1000)
    with _opened(machine, "attribute:p") as flowfiles:
        for first in range(0, 4000, 1000):
            put(flowfiles, "q", _numbered(first, first + 1000), penalised_until_ms=NOW + 30_000)
        put(flowfiles, "q", [flowfile("soon", p="-1")])
        items = flowfiles.take("q", "s", count=5000, with_penalised=True).items
        assert items[0].uuid == "soon"
        assert sorted(item.uuid for item in items[1:]) == _names(0, 4000)
        flowfiles.give_back("s", [item.uuid for item in items])
        assert [item.uuid for item in flowfiles.take("q", "s", count=5000).items] == ["soon"]
        machine.clock.advance(30_000)
        assert len(flowfiles.take("q", "s", count=5000).items) == 4000


class NoSwap(FaultyFileSystem):
    """A disk that takes no swap files."""

    is_full = True

    def meet(self, kind: str, path: object) -> None:
        if kind == "create" and ".swap" in str(path) and self.is_full:
            raise StorageError("cannot create: injected")


def test_flowfiles_that_cannot_be_swapped_out_stay_in_memory_until_they_can() -> None:
    machine = Machine(threshold=500)
    disk = machine.fs = NoSwap(machine.fs)  # type: ignore[assignment]
    with _opened(machine) as flowfiles:
        put(flowfiles, "q", _numbered(0, 1600))
        assert flowfiles.size("q").in_memory == 1600
        disk.is_full = False
        put(flowfiles, "q", _numbered(1600, 1601))
        assert (flowfiles.size("q").in_memory, flowfiles.size("q").swapped) == (601, 1000)
        assert drain(flowfiles, "q") == _names(0, 1601)
