"""Processes that are stopped before any operation and go on after others did their work: nothing committed is lost.

Checkpoint, prune, garbage collection, commit, tombstone, repair and reading on one catalog; the disk is in memory, the
schedules are enumerated, or drawn from a seed.
"""

from __future__ import annotations

from random import Random

import pytest

from custody.errors import CustodyError
from custody.vfs import FileSystem
from tests.crash.catalog_actors import MEANWHILE, WORKS, World, check, new_world
from tests.crash.interleaving import Turn, Work, play
from tests.parts import WHOLE, Part

PARTS = 16
"""There are many pairs of actors: a quick run stops each at one of so many operations."""
DEEP_RUNS = 60
DEEP_RUNS_SLOW = 1000


def _meanwhile(world: World, name: str) -> Work:
    def work(fs: FileSystem) -> None:
        MEANWHILE[name](world, fs)

    return work


def _operations(actor: str, *, damaged: bool) -> int:
    world = new_world(damaged=damaged)
    return len(play(world.disk, world.times, {actor: world.actors()[actor]}, []).operations[actor])


def _stop_once(actor: str, meanwhile: str, step: int, *, damaged: bool = False) -> None:
    world = new_world(damaged=damaged)
    works = {actor: world.actors()[actor], "others": _meanwhile(world, meanwhile)}
    played = play(world.disk, world.times, works, [(actor, step), ("others", None)])
    try:
        check(world, played)
    except (AssertionError, CustodyError) as error:
        done = played.operations[actor][: step + 1]
        raise AssertionError(
            f"{actor} stopped before operation {step} of {done[-1:]} for {meanwhile}: {error}"
        ) from error


def _stop_everywhere(
    actor: str, meanwhile: str, part: Part = WHOLE, parts: int = PARTS, *, damaged: bool = False
) -> int:
    """Stop an actor before every operation of a part; return how many they were."""
    steps = part.of(f"{actor} {meanwhile}", _operations(actor, damaged=damaged) + 1, parts)
    for step in steps:
        _stop_once(actor, meanwhile, step, damaged=damaged)
    return len(steps)


@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("actor", WORKS)
def test_who_is_stopped_anywhere_and_goes_on_later_does_no_harm(actor: str, meanwhile: str, part: Part) -> None:
    assert _stop_everywhere(actor, meanwhile, part) > 0


@pytest.mark.slow
@pytest.mark.parametrize("damaged", [False, True], ids=["whole", "damaged"])
@pytest.mark.parametrize("meanwhile", MEANWHILE)
@pytest.mark.parametrize("actor", WORKS)
def test_who_is_stopped_before_any_operation_does_no_harm(actor: str, meanwhile: str, damaged: bool) -> None:
    assert _stop_everywhere(actor, meanwhile, damaged=damaged) > 20


def test_a_repair_that_is_stopped_and_others_that_repair_meanwhile_do_no_harm(part: Part) -> None:
    assert _stop_everywhere("repair", "repair", part, 6, damaged=True) > 20


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(
    "runs", [DEEP_RUNS, pytest.param(DEEP_RUNS_SLOW, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_several_that_are_stopped_again_and_again_do_no_harm(runs: int) -> None:
    for seed in range(runs):
        random = Random(seed)  # noqa: S311 - schedules that can be repeated, no secret
        world = new_world(damaged=seed % 5 == 4)
        works = world.actors()
        names = random.sample(sorted(works), random.choice((2, 3, 3)))
        actors = {name: works[name] for name in names} | {"busy": _meanwhile(world, "busy")}
        turns: list[Turn] = [
            (random.choice([*actors]), random.choice((1, 3, 8, 20, 50))) for _ in range(random.randint(2, 12))
        ]
        played = play(world.disk, world.times, actors, turns)
        try:
            check(world, played)
        except (AssertionError, CustodyError) as error:
            raise AssertionError(f"seed {seed}, {turns}: {error}") from error
