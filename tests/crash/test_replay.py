"""Crashes at each operation of a replay."""

from __future__ import annotations

import pytest

from tests.crash.enumeration import enumerate_crashes, run_to
from tests.crash.replay_scenarios import FLOWFILES, Losing, Overtaken, Replaying
from tests.parts import Part


@pytest.mark.in_parts
@pytest.mark.parametrize("scenario", [Replaying, Overtaken, Losing])
def test_a_crash_in_the_run_of_a_plan_sends_no_flowfile_twice_and_forgets_none(
    scenario: type[Replaying], part: Part
) -> None:
    _, progress, error = run_to(scenario())
    assert error is None
    assert progress.done == FLOWFILES
    assert progress.is_erased == (scenario is Losing)
    outcome = enumerate_crashes(scenario(), seeds=2, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100
