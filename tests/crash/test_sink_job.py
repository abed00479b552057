"""The job of the sink, crashed at every operation: its files are those of an undisturbed run, each reported once."""

from __future__ import annotations

import pytest

from custody.vfs.memory import CrashMode
from tests.crash.enumeration import enumerate_crashes
from tests.crash.sink_job_scenarios import Persisting
from tests.parts import Part


@pytest.mark.in_parts(2)
def test_a_crash_of_the_job_changes_no_file_and_tells_nothing_twice(part: Part) -> None:
    outcome = enumerate_crashes(Persisting("json-row"), modes=(CrashMode.SYNCED_ONLY,), seeds=1, part=part)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["json-row", "csv-column", "parquet"])
def test_a_crash_of_the_job_in_every_way(mode: str) -> None:
    outcome = enumerate_crashes(Persisting(mode), seeds=3)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["json-row", "csv-column"])
def test_a_crash_of_the_job_whose_lines_others_make(mode: str) -> None:
    outcome = enumerate_crashes(Persisting(mode, is_planned=True), seeds=1)
    assert not outcome.alarms, str(outcome)
    assert outcome.operations > 100
