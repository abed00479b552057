"""A queue: order, penalties that end, bounds, and entries of its heaps that lead nowhere."""

from __future__ import annotations

import pytest

from custody.flowfile_repository import Connection, Waiting
from custody.flowfile_repository.queue import FlowFileQueue
from custody.flowfile_repository.records import SwapBlock, SwapFile
from tests.unit.flowfile_repository.queue_fixtures import NOW, uuids, waiting


def _queue(*items: Waiting, **bounds: int) -> FlowFileQueue:
    queue = FlowFileQueue(Connection(name="q", **bounds))  # type: ignore[arg-type]
    for item in items:
        queue.put(item)
    return queue


def _drained(queue: FlowFileQueue, now_ms: int = NOW) -> list[str]:
    names = []
    while (item := queue.first(now_ms)) is not None:
        names.append(queue.remove(item.uuid).uuid)
    return names


def _swap(name: str, *firsts: int, count: int = 500, length: int = 10) -> SwapFile:
    blocks = (SwapBlock(100 * n, ((), first), count, length) for n, first in enumerate(firsts))
    return SwapFile(name, "q", tuple(blocks))


def test_the_least_key_comes_first_and_equals_in_the_order_of_arrival() -> None:
    queue = _queue(
        waiting("c", 2, key=((0, 5),)), waiting("b", 3, key=((0, 1),)), waiting("a", 1, key=((0, 1),)), waiting("z", 0)
    )
    assert _drained(queue) == ["z", "a", "b", "c"]


def test_what_is_looked_at_stays_where_it_is() -> None:
    queue = _queue(waiting("a", 0))
    assert queue.first(NOW) == queue.first(NOW)
    assert queue.size.count == 1


def test_a_penalised_flowfile_waits_until_its_penalty_ends() -> None:
    queue = _queue(waiting("a", 0, penalised_until_ms=NOW + 100), waiting("b", 1))
    assert queue.next_penalty_end_ms() == NOW + 100
    assert queue.size.penalised == 1
    first = queue.first(NOW + 99)
    assert first is not None
    assert first.uuid == "b"
    assert _drained(queue, NOW + 100) == ["a", "b"]
    assert queue.next_penalty_end_ms() is None
    assert queue.size.penalised == 0


def test_a_flowfile_that_comes_back_with_a_penalty_is_not_given_out_by_its_entry_of_before() -> None:
    queue = _queue(waiting("a", 0))
    for _ in range(3):  # each time an entry of the heap stays behind
        queue.put(queue.remove("a"))
    queue.remove("a")
    queue.put(waiting("a", 0, penalised_until_ms=NOW + 100))
    assert queue.first(NOW) is None
    assert _drained(queue, NOW + 100) == ["a"]


def test_a_flowfile_that_comes_back_with_another_penalty_waits_for_the_last_one() -> None:
    queue = _queue(waiting("a", 0, penalised_until_ms=NOW + 100))
    queue.remove("a")
    queue.put(waiting("a", 0, penalised_until_ms=NOW + 200))
    assert queue.first(NOW + 100) is None
    assert queue.next_penalty_end_ms() == NOW + 200
    assert _drained(queue, NOW + 200) == ["a"]


def test_a_clock_that_is_set_back_loses_nobody() -> None:
    queue = _queue(waiting("a", 0, penalised_until_ms=NOW + 100))
    assert queue.first(NOW + 100) is not None
    assert queue.first(NOW) is not None
    assert _drained(queue, NOW) == ["a"]


def test_entries_that_lead_nowhere_are_cleared_away() -> None:
    queue = _queue(*(waiting(f"{n:04}", n) for n in range(2000)), waiting("p", 9999, penalised_until_ms=NOW + 1))
    for n in range(1990):
        queue.remove(f"{n:04}")
    assert len(queue._heap) <= 64 + 4 * len(queue.waiting)
    assert _drained(queue) == [f"{n}" for n in range(1990, 2000)]
    assert _drained(queue, NOW + 1) == ["p"]


def test_the_last_ones_come_least_first() -> None:
    queue = _queue(*(waiting(str(n), n) for n in sorted(range(50), key=str)))
    assert uuids(queue.last(3)) == ["47", "48", "49"]


@pytest.mark.parametrize(
    ("bounds", "is_full"),
    [
        ({"count_max": 3}, False),
        ({"count_max": 2}, True),
        ({"count_max": 0}, False),
        ({"bytes_max": 20}, True),
        ({"bytes_max": 21}, False),
        ({"bytes_max": 0, "count_max": 0}, False),
    ],
)
def test_a_queue_is_full_by_count_or_by_bytes(bounds: dict[str, int], is_full: bool) -> None:
    assert _queue(waiting("a", 0, size=10), waiting("b", 1, size=10), **bounds).is_full is is_full


def test_what_is_taken_or_swapped_counts_too() -> None:
    queue = _queue(waiting("a", 0, size=10), count_max=1001, bytes_max=0)
    queue.add_swap(_swap("s", 5, 6))
    assert queue.is_full
    size = queue.size
    assert (size.count, size.in_memory, size.swapped, size.swap_files, size.content_bytes) == (1001, 1, 1000, 1, 30)
    queue.advance_swap("s")
    assert not queue.is_full
    queue.taken_count, queue.taken_bytes = 500, 7
    assert (queue.size.count, queue.size.content_bytes, queue.size.taken) == (1001, 27, 500)
    assert queue.advance_swap("s").is_empty
    assert (queue.swaps, queue.size.swapped, queue.size.content_bytes) == ([], 0, 17)


def test_the_swap_file_that_comes_next_is_the_one_with_the_least_block() -> None:
    queue = _queue(waiting("a", 15))
    assert queue.next_swap(NOW, 10) is None
    queue.add_swap(_swap("x", 20, 40))
    assert queue.next_swap(NOW, 10) is None
    queue.add_swap(_swap("y", 10, 30))
    names = []
    queue.remove("a")
    while (swap := queue.next_swap(NOW, 10)) is not None:
        names.append((swap.name, swap.first))
        queue.advance_swap(swap.name)
    assert names == [("y", ((), 10)), ("x", ((), 20)), ("y", ((), 30)), ("x", ((), 40))]


def test_no_swap_file_comes_back_while_too_many_in_memory_are_penalised() -> None:
    queue = _queue(*(waiting(str(n), n, penalised_until_ms=NOW + 1 + n) for n in range(3)))
    queue.add_swap(_swap("s", 5))
    assert queue.next_swap(NOW, 4) == queue.swaps[0]
    assert queue.next_swap(NOW, 3) is None
    assert queue.next_swap(NOW + 1, 3) is None, "the first one may be taken: its turn is before that of the file"
    queue.remove("0")
    assert queue.next_swap(NOW + 1, 3) == queue.swaps[0]


def test_of_the_penalised_the_one_comes_first_whose_penalty_ends_first() -> None:
    queue = _queue(
        waiting("a", 0), waiting("b", 1, penalised_until_ms=NOW + 9), waiting("c", 2, penalised_until_ms=NOW + 5)
    )
    queue.put(queue.remove("c"))
    names = []
    while (item := queue.first_penalised()) is not None:
        names.append(queue.remove(item.uuid).uuid)
    assert names == ["c", "b"]
    assert _drained(queue) == ["a"]
