"""A crash at every operation, in every mode: what was acknowledged is there once, and the store goes on."""

from __future__ import annotations

from itertools import count

import pytest

from custody.vfs.crash import CrashMode
from custody.vfs.memory import MemoryFileSystem
from tests.crash.catalog_care import Collecting, Kept, Pruning, Repairing
from tests.crash.committing import Committing, Racing
from tests.crash.enumeration import Outcome, Scenario, disks_after, enumerate_crashes, operations_of, run_to
from tests.crash.scenarios import Appending, Recovering, RollingOver
from tests.crash.store import Promises

SECOND_SEEDS = 3
"""Seeds of a crash that follows a crash: it starts from each disk that the first one may leave."""
LEFTOVERS = {
    "a torn record": ("write", -1, CrashMode.RANDOM_BLOCKS),
    "a record that was not synced": ("sync", -1, CrashMode.ALL_KEPT),
    "a journal without events": ("sync_directory", -2, CrashMode.ALL_KEPT),
}


def test_a_crash_while_appending_and_sealing_loses_no_acknowledged_event() -> None:
    outcome = enumerate_crashes(Appending())
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


def test_a_crash_in_a_pass_of_all_steps_loses_no_acknowledged_event() -> None:
    outcome = enumerate_crashes(RollingOver())
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 80


def left_over(kind: str, which: int, mode: CrashMode) -> tuple[MemoryFileSystem, Promises]:
    """What a crash of Appending at one of its operations leaves, and what was promised until then."""
    done = [number for number, found in enumerate(operations_of(Appending()), 1) if found.kind == kind]
    fs, promises, _ = run_to(Appending(), done[which])
    return fs.crashed(mode, seed=3), promises


@pytest.mark.parametrize("what", LEFTOVERS)
def test_two_crashes_of_recovery_one_after_the_other_lose_no_acknowledged_event(what: str) -> None:
    disk, promises = left_over(*LEFTOVERS[what])
    outcome = enumerate_crashes(Recovering(disk, promises))
    assert not outcome.alarms, str(outcome)
    again = Outcome()
    for found in disks_after(Recovering(disk, promises), SECOND_SEEDS):
        again.add(enumerate_crashes(Recovering(found, promises), seeds=SECOND_SEEDS))
    assert not again.alarms, str(again)
    assert again.runs > 500


def test_a_crash_while_committing_keeps_the_chain() -> None:
    outcome = enumerate_crashes(Committing())
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 40


def test_a_crash_while_two_writers_race_keeps_the_chain_and_both_acknowledged_commits() -> None:
    outcome = Outcome()
    for before in count(1):
        _, commits, error = run_to(Racing(before))
        assert error is None
        if commits.tried < 3:
            break  # the slow commit has no more operations to come in between
        assert len(commits.acknowledged) == 3
        outcome.add(enumerate_crashes(Racing(before)))
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.parametrize("scenario", [Pruning, Collecting, Repairing])
def test_a_crash_in_the_upkeep_of_a_catalog_loses_nothing_that_is_needed(scenario: type[Scenario[Kept]]) -> None:
    outcome = enumerate_crashes(scenario())
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 15
