"""The parts of an enumeration: together the whole, each a fair share, and always the same ones for the same seed."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.vfs.memory import Operation
from tests.crash.enumeration import crash_points, operations_of, phase_edges, points_of_part
from tests.crash.rollover_scenarios import Appending, RollingOver
from tests.parts import PARTS, SEED_VARIABLE, WHOLE, Part, part_of_seed, seed_of_run


@pytest.mark.parametrize("parts", [2, 8, PARTS])
@pytest.mark.parametrize("count", [0, 1, 7, 100])
def test_the_parts_are_the_whole_and_each_case_is_in_one(count: int, parts: int) -> None:
    every = [Part(number).of("name", count, parts) for number in range(parts)]
    assert sorted(case for part in every for case in part) == list(range(count))
    assert max(map(len, every)) - min(map(len, every)) <= 1
    assert WHOLE.of("name", count, parts) == list(range(count))


def test_some_cases_belong_to_every_part() -> None:
    for number in range(PARTS):
        assert {0, 99} <= set(Part(number).of("name", 100, always=(0, 99)))


def test_a_pattern_of_operations_is_no_pattern_of_a_part() -> None:
    """In every n-th operation there would be writes alone, or syncs alone."""
    kinds = {case % PARTS for case in Part(0).of("name", 1000)}
    assert kinds == set(range(PARTS))


@pytest.mark.parametrize("scenario", [Appending(), RollingOver()], ids=["appending", "rolling over"])
def test_crashes_of_all_parts_are_those_of_the_whole(scenario: Appending | RollingOver) -> None:
    operations = operations_of(scenario)
    every = [set(points_of_part(scenario, operations, Part(number))) for number in range(PARTS)]
    assert set().union(*every) == set(crash_points(operations))
    assert set.intersection(*every) >= phase_edges(operations)
    assert max(map(len, every)) < len(operations) / 2


def test_a_phase_begins_where_the_work_goes_to_another_folder() -> None:
    done = [("create", "journals/1"), ("sync", "journals/1"), ("sync_directory", "."), ("create", "data/1")]
    operations = [Operation(kind, Path("/repository", path)) for kind, path in [*done, ("sync", "data/1")]]
    assert phase_edges(operations) == {1, 3, 4, 5}


def test_the_seed_is_that_of_the_environment_else_the_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SEED_VARIABLE, "7")
    assert seed_of_run() == "7"
    monkeypatch.delenv(SEED_VARIABLE)
    assert seed_of_run() == seed_of_run()
    assert len(seed_of_run()) in (1, 40)


def test_a_seed_stands_for_a_part() -> None:
    assert part_of_seed("7") == Part(7)
    assert part_of_seed("all") == WHOLE
    assert part_of_seed("a commit") == part_of_seed("a commit") != part_of_seed("another commit")
    assert WHOLE.shifted(3) == WHOLE
    assert Part(1).shifted(3) == Part(4)


@pytest.mark.parametrize("parts", [2, 4, 8, PARTS])
def test_of_a_case_that_some_runs_do_they_do_every_part(parts: int) -> None:
    runs = [Part(number) for number in range(40 * parts * PARTS)]
    done = {run.number % PARTS for run in runs if run.number is not None and run.apart().of("name", 1, parts)}
    assert done == set(range(PARTS))
    assert WHOLE.apart() == WHOLE
