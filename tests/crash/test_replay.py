"""Crashes at each operation of a replay."""

from __future__ import annotations

import pytest

from custody.vfs.memory import CrashMode
from tests.crash.enumeration import enumerate_crashes, run_to
from tests.crash.replay_scenarios import FLOWFILES, Losing, Overtaken, Replaying
from tests.parts import Part

every_scenario = pytest.mark.parametrize("scenario", [Replaying, Overtaken, Losing])


@pytest.mark.in_parts(3)
@every_scenario
def test_a_crash_in_the_run_of_a_plan_sends_no_flowfile_twice_and_forgets_none(
    scenario: type[Replaying], part: Part
) -> None:
    _, progress, error = run_to(scenario())
    assert error is None
    assert progress.done == FLOWFILES
    assert progress.is_erased == (scenario is Losing)
    # The others in the slow suite: a process is killed, or power is lost with all that was not synced.
    modes = (CrashMode.ALL_KEPT, CrashMode.SYNCED_ONLY)
    outcome = enumerate_crashes(scenario(), modes=modes, seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
@every_scenario
def test_a_crash_in_the_run_of_a_plan_in_every_mode(scenario: type[Replaying]) -> None:
    outcome = enumerate_crashes(scenario(), seeds=3)
    assert not outcome.alarms, str(outcome)
