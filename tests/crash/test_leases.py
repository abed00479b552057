"""A pass under leases, crashed at every operation; and an attempt that is overtaken at every operation."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from custody.config import Settings
from custody.lease import Lease, lease_status
from custody.recovery import STEPS
from custody.vfs.memory import CrashMode, MemoryFileSystem
from custody.workspace import ROLLOVER_LEASE
from tests.crash.enumeration import enumerate_crashes
from tests.crash.lease_scenarios import INTERRUPTED, OTHER_SETTINGS, Passing, PassingAgain, interrupted, side_by_side
from tests.crash.memory_repository import SETTINGS, Promises, repository, workspace
from tests.parts import Part

MODES = (CrashMode.ALL_KEPT, CrashMode.RANDOM_BLOCKS)
"""A killed process, and the hardest power loss; the other two are tried on the steps without leases."""
Start = Callable[[], tuple[MemoryFileSystem, Promises]]


def waiting() -> tuple[MemoryFileSystem, Promises]:
    """Two groups that wait to be rolled over."""
    fs, promises = MemoryFileSystem(), Promises()
    for _ in range(2):
        with repository(fs).writer() as writer:
            promises.append(writer, 2)
    return fs, promises


def left_over() -> tuple[MemoryFileSystem, Promises]:
    """A log and a shard that no transaction lists: an attempt died just before its commit."""
    return _seen_to_be_dead(*interrupted("a shard is there"))


def half_swept() -> tuple[MemoryFileSystem, Promises]:
    """A live log whose journals are there: an attempt died before it removed the first one."""
    return _seen_to_be_dead(*interrupted("the group is live"))


def _seen_to_be_dead(fs: MemoryFileSystem, promises: Promises) -> tuple[MemoryFileSystem, Promises]:
    lease = lease_status(fs, workspace(fs).paths.lease(ROLLOVER_LEASE))
    assert lease is not None
    Lease(fs, lease.path.parent, lease.epoch).release(failed=True)
    return fs, promises


@pytest.mark.in_parts(4)
def test_after_a_crash_anywhere_in_a_pass_the_next_run_ends_as_an_undisturbed_one(part: Part) -> None:
    outcome = enumerate_crashes(Passing(), modes=MODES, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 150


@pytest.mark.in_parts(4)
@pytest.mark.parametrize("what", INTERRUPTED)
def test_after_a_crash_of_the_run_that_recovers_the_next_one_ends_as_an_undisturbed_one(what: str, part: Part) -> None:
    outcome = enumerate_crashes(PassingAgain(*interrupted(what)), modes=MODES, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 15


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("start", "settings"),
    [(waiting, SETTINGS), (waiting, OTHER_SETTINGS), (left_over, OTHER_SETTINGS), (half_swept, SETTINGS)],
    ids=["same settings", "other settings", "leftovers", "half swept"],
)
def test_an_attempt_that_is_overtaken_anywhere_changes_nothing(start: Start, settings: Settings, part: Part) -> None:
    assert side_by_side(start, other=settings, part=part) > 15


@pytest.mark.in_parts
@pytest.mark.parametrize(
    ("start", "steps"),
    [(left_over, slice(1)), (waiting, slice(4)), (left_over, slice(4)), (waiting, slice(1, None))],
    ids=["recover", "recover to index", "recover to index of leftovers", "a retry of the step, without recover"],
)
def test_an_attempt_goes_on_while_the_one_that_overtook_it_is_halfway(start: Start, steps: slice, part: Part) -> None:
    assert side_by_side(start, other=OTHER_SETTINGS, names=list(STEPS)[steps], part=part) > 40
