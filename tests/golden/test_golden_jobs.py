"""A job that an earlier release wrote is read as it was."""

from __future__ import annotations

from pathlib import Path

from custody.clock import SystemClock
from custody.serving.jobs import JobKind, Jobs, JobState
from custody.vfs import PosixFileSystem

HERE = Path(__file__).parent


def test_a_kept_job_is_read_as_it_was() -> None:
    jobs = Jobs(PosixFileSystem(), HERE / "jobs", HERE, SystemClock())
    [job], total = jobs.newest(10)
    assert total == 1
    assert job == jobs.get("1772409600000-00112233445566ff")
    assert (job.kind, job.state, job.user) == (JobKind.REPLAY, JobState.SUCCEEDED, "alice")
    assert job.result == {"plan": "3e73d2ae4c984f3aaa3505f294296469", "replayed": 3}
    assert (job.created_ms, job.ended_ms, job.done, job.total) == (1_772_409_600_000, 1_772_409_601_000, 3, 3)
