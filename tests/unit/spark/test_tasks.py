"""How many tasks a step has, and how many cores each takes, by the sizes of its units."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from custody.repository.local_pass import ALL_STEPS
from custody.spark.tasks import Cores, Needs, plan_tasks
from custody.workspace.step import MEMORY_BYTES_MIN

MIB, GIB = 1 << 20, 1 << 30
EIGHT = Cores(16, 8)


def planned(sizes: list[int | None], step: str = "index", cores: Cores = EIGHT) -> list[tuple[tuple[int, ...], int]]:
    needs = [Needs(size, ALL_STEPS[step].memory_bytes(size)) for size in sizes]
    return [(task.units, task.cores) for task in plan_tasks(needs, GIB, cores)]


def test_a_unit_takes_the_cores_whose_memory_it_needs() -> None:
    # 400 MiB and half as much again as the unit reads: shares of 1 GiB.
    sizes: list[int | None] = [100 * MIB, 416 * MIB, 417 * MIB, 2 * GIB, 100 * GIB]
    assert planned(sizes) == [((4,), 8), ((3,), 4), ((2,), 2), ((1,), 1), ((0,), 1)]


def test_no_task_takes_more_cores_than_an_executor_has() -> None:
    assert planned([100 * GIB], cores=Cores(16, 1)) == [((0,), 1)]
    assert planned([100 * GIB], cores=Cores(16, 3)) == [((0,), 3)]


def test_large_units_come_first_and_those_of_unknown_size_before_them() -> None:
    assert [units for units, _ in planned([5 * MIB, None, 50 * MIB, None, 20 * MIB])] == [(1,), (3,), (2,), (4,), (0,)]


def test_small_units_share_tasks_when_there_are_many() -> None:
    assert [len(units) for units, _ in planned([1000] * 32)] == [1] * 32
    many = planned([1000] * 3200)
    assert {len(units) for units, _ in many} == {16}  # 4 MiB, of which each counts 256 KiB
    assert len(many) == 200
    some = planned([1000] * 128)
    assert len(some) == 32  # two for each core


@pytest.mark.parametrize(
    ("step", "more"), [("rollover", 0), ("compress", 0.5), ("index", 1.5), ("compact", 6), ("rebuild", 5), ("scrub", 0)]
)
def test_what_a_step_takes_grows_with_what_it_keeps_in_memory(step: str, more: float) -> None:
    assert ALL_STEPS[step].memory_bytes(None) == ALL_STEPS[step].memory_bytes(0) == MEMORY_BYTES_MIN
    assert ALL_STEPS[step].memory_bytes(GIB) == MEMORY_BYTES_MIN + more * GIB


SIZES = st.lists(st.none() | st.integers(0, 64 * GIB) | st.integers(0, MIB), max_size=60)


@given(SIZES, st.integers(1, 64), st.integers(1, 16))
def test_each_unit_is_in_one_task_that_has_the_cores_of_its_largest_unit(
    sizes: list[int | None], every: int, of_executor: int
) -> None:
    tasks = planned(sizes, cores=Cores(every, of_executor))
    assert sorted(unit for units, _ in tasks for unit in units) == list(range(len(sizes)))
    for units, cores in tasks:
        assert units
        assert 1 <= cores <= of_executor
        needed = max(ALL_STEPS["index"].memory_bytes(sizes[unit]) for unit in units)
        assert cores == of_executor or cores * GIB >= needed
        assert len(units) == 1 or sum(max(sizes[unit] or 0, 256 << 10) for unit in units) <= 4 * MIB
    assert all(one[1] >= other[1] for one, other in pairwise(tasks))
