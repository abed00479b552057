"""A build of provenance tables, crashed at every operation of the file system."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.vfs.memory import CrashMode
from tests.crash.enumeration import enumerate_crashes
from tests.crash.swh_build_scenarios import Building
from tests.parts import Part
from tests.unit.swh.tables import source


@pytest.mark.in_parts
def test_after_a_crash_anywhere_finished_steps_are_whole_and_one_build_is_live(tmp_path: Path, part: Part) -> None:
    scenario = Building(source(tmp_path, [1, 2, 2, 9]))
    outcome = enumerate_crashes(scenario, modes=(CrashMode.ALL_KEPT, CrashMode.RANDOM_BLOCKS), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 200
