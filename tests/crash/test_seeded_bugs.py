"""The enumeration of crashes finds each seeded durability bug. It finds none without: test_crash_at_every_operation."""

from __future__ import annotations

import pytest

from tests.crash.seeded_bugs import BUGS, Bug


@pytest.mark.in_parts(6)
@pytest.mark.parametrize(
    "bug", [pytest.param(bug, marks=[pytest.mark.slow] if bug.is_slow else [], id=bug.name) for bug in BUGS]
)
def test_a_seeded_bug_is_found(bug: Bug) -> None:
    outcome = bug.found(*bug.found_by)
    missed = [mode.value for mode in bug.found_by if mode not in outcome.alarms]
    assert not missed, f"not found by {missed}"
