"""A crash at every operation with event logs on two stripes, whose disks go away in turn afterwards."""

from __future__ import annotations

import pytest

from custody.vfs.memory import CrashMode
from tests.crash.enumeration import Scenario, enumerate_crashes, run_to
from tests.crash.memory_repository import Promises
from tests.crash.stripe_scenarios import FOLDERS, StripedRetention, StripedUpkeep, Striping, stripes_of
from tests.parts import Part

# Writes are torn in all ways elsewhere: here it is about which disk has what.
MODES = CrashMode.SYNCED_ONLY, CrashMode.ALL_KEPT


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("scenario", [Striping, StripedUpkeep, StripedRetention])
def test_a_crash_and_then_one_disk_and_the_other_away_lose_nothing(
    scenario: type[Scenario[Promises]], part: Part
) -> None:
    fs, _, error = run_to(scenario())
    assert error is None
    assert scenario is not Striping or stripes_of(fs) == set(FOLDERS)
    # What a power loss leaves shows more than what a killed process does.
    modes = MODES if part.number is None else MODES[:1]
    outcome = enumerate_crashes(scenario(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 60
