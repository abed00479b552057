"""A job is what its file says, whoever asks: done, going on, or lost with its process; never half of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Signal

import pytest

from custody.clock import ManualClock, SystemClock
from custody.errors import BackpressureError, CorruptionError, InvalidInputError, NotFoundError, StorageError
from custody.serving import jobs as jobs_module
from custody.serving.jobs import Job, JobKind, Jobs, JobState, OnProgress, Outcome
from custody.vfs import FileSystem, PosixFileSystem
from custody.vfs.faults import Fault, FaultyFileSystem
from custody.vfs.memory import CrashMode, InjectedCrash, MemoryFileSystem
from tests import forks
from tests.support import INCLUDE

FOLDER = Path("/r/jobs")
ROOT = Path("/r")


def opened(fs: FileSystem, folder: Path = FOLDER) -> Jobs:
    return Jobs(fs, folder, folder.parent, SystemClock())


@pytest.fixture
def jobs(tmp_path: Path) -> Iterator[Jobs]:
    made = opened(PosixFileSystem(), tmp_path / "jobs")
    yield made
    made.close()


def submit(jobs: Jobs, work: Callable[[OnProgress], Outcome], subject: str = "a query") -> Job:
    return jobs.submit(JobKind.REPLAY, subject, "alice", "FlowFiles", work)


def ended(jobs: Jobs, job_id: str) -> Job:
    """The job when it has ended; of a process that crashed it never does."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        job = jobs.get(job_id)
        if job.state.is_final:
            return job
        thread = jobs._thread
        if thread is not None and not thread.is_alive():
            break
        time.sleep(0.002)
    raise AssertionError(job)


def test_a_job_goes_on_behind_the_one_before_and_its_end_is_read_by_everybody(tmp_path: Path) -> None:
    jobs, go = opened(PosixFileSystem(), tmp_path / "jobs"), Signal()

    def first(on_progress: OnProgress) -> Outcome:
        on_progress(1, 2)
        go.wait(10)
        return Outcome({"sent": 2})

    one = submit(jobs, first)
    two = submit(jobs, lambda on_progress: Outcome({"sent": 0}))
    while jobs.get(one.id).done != 1:
        time.sleep(0.005)
    now = jobs.get(one.id)
    assert (now.state, now.total, now.unit, now.user) == (JobState.RUNNING, 2, "FlowFiles", "alice")
    assert jobs.get(two.id).state is JobState.QUEUED
    other = opened(PosixFileSystem(), tmp_path / "jobs")
    assert other.get(one.id).state is JobState.RUNNING
    go.set()
    assert ended(jobs, two.id).result == {"sent": 0}
    for reader in (jobs, other):
        last = reader.get(one.id)
        assert (last.state, last.result, last.problem) == (JobState.SUCCEEDED, {"sent": 2}, None)
        assert [job.id for job in reader.newest(10)[0]] == [two.id, one.id]
        assert len(reader.newest(1)[0]) == 1
    jobs.close()
    assert opened(PosixFileSystem(), tmp_path / "jobs").get(one.id) == last


@pytest.mark.parametrize(
    ("error", "kind", "told"),
    [
        (InvalidInputError("/r/secret: no query"), "invalid-input", "no query"),
        (StorageError("/r/secret: the disk is full"), "storage", "log"),
        (ValueError("a fault"), "error", "log"),
    ],
)
def test_an_error_ends_a_job_with_a_problem_that_names_no_folder(
    jobs: Jobs, error: Exception, kind: str, told: str
) -> None:
    def work(_: OnProgress) -> Outcome:
        raise error

    job = ended(jobs, submit(jobs, work).id)
    assert job.state is JobState.FAILED
    assert job.problem is not None
    assert (job.problem.kind, told in job.problem.detail) == (kind, True)
    # The thread lives on.
    assert ended(jobs, submit(jobs, lambda _: Outcome({})).id).state is JobState.SUCCEEDED


def test_a_job_that_waits_or_goes_on_ends_when_it_is_cancelled(jobs: Jobs) -> None:
    started = Signal()

    def endless(on_progress: OnProgress) -> Outcome:
        for done in range(10**9):
            on_progress(done, None)
            if done:
                started.set()
            time.sleep(0.001)
        return Outcome({})

    one, two = submit(jobs, endless), submit(jobs, endless)
    assert started.wait(10)
    assert jobs.cancel(two.id).state is JobState.CANCELLED
    jobs.cancel(one.id)
    last = ended(jobs, one.id)
    assert (last.state, last.done > 0) == (JobState.CANCELLED, True)
    assert jobs.cancel(one.id) == last
    assert jobs.get(two.id).started_ms is None


def test_a_job_of_another_process_is_cancelled_by_a_mark(tmp_path: Path) -> None:
    jobs, other = (opened(PosixFileSystem(), tmp_path / "jobs") for _ in range(2))

    def endless(on_progress: OnProgress) -> Outcome:
        while True:
            on_progress(0, None)
            time.sleep(0.01)

    job = submit(jobs, endless)
    assert other.cancel(job.id).state in (JobState.QUEUED, JobState.RUNNING)
    assert ended(other, job.id).state is JobState.CANCELLED
    jobs.close()
    assert list((tmp_path / "jobs").glob("*.cancel")) == []


def test_a_server_that_stops_says_so_of_its_jobs(jobs: Jobs) -> None:
    started = Signal()

    def endless(on_progress: OnProgress) -> Outcome:
        while True:
            started.set()
            on_progress(0, None)
            time.sleep(0.001)

    job, waiting = submit(jobs, endless), submit(jobs, endless)
    assert started.wait(10)
    jobs.close()
    for each in (job, waiting):
        last = jobs.get(each.id)
        assert last.problem is not None
        assert (last.state, last.problem.kind) == (JobState.FAILED, "closed")
    with pytest.raises(BackpressureError):
        submit(jobs, endless)


def test_a_job_whose_process_was_killed_is_lost(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from custody.clock import SystemClock; from custody.vfs import PosixFileSystem\n"
        "from custody.serving.jobs import Jobs, JobKind\n"
        "folder = Path(sys.argv[1])\n"
        "jobs = Jobs(PosixFileSystem(), folder, folder.parent, SystemClock())\n"
        "one, two = (jobs.submit(JobKind.REPLAY, 'x', 'u', 'n', lambda p: time.sleep(60)) for _ in range(2))\n"
        "print(one.id, two.id, flush=True); time.sleep(60)\n"
    )
    folder = tmp_path / "jobs"
    command = [sys.executable, "-c", program, str(folder)]
    with forks.Popen(command, stdout=forks.PIPE, env={**os.environ, "PYTHONPATH": str(INCLUDE)}) as process:
        assert process.stdout is not None
        ids = process.stdout.readline().decode().split()
        here = opened(PosixFileSystem(), folder)
        assert {here.get(each).state for each in ids} <= {JobState.QUEUED, JobState.RUNNING}
        process.send_signal(signal.SIGKILL)
        process.wait()
    for each in ids:
        job = here.get(each)
        assert job.problem is not None
        assert (job.state, job.problem.kind) == (JobState.LOST, "lost")
        assert here.cancel(each) == job
    # Its lock goes when another process begins a job; what it did not end stays lost.
    submit(here, lambda _: Outcome({}))
    assert len(list(folder.glob("*.lock"))) == 1
    assert here.get(ids[0]).state is JobState.LOST
    here.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("mode", list(CrashMode))
def test_a_crash_at_any_operation_leaves_a_job_whole_or_not_there(mode: CrashMode) -> None:
    crash_at = 0
    while True:
        crash_at += 1
        fs = MemoryFileSystem(crash_at)
        begun: Job | None = None
        try:
            fs.make_directory(FOLDER.parent)
            jobs = opened(fs)
            begun = submit(jobs, lambda on_progress: on_progress(1, 1) or Outcome({"sent": 1}))  # type: ignore[func-returns-value]
            ended(jobs, begun.id)
            jobs.close()
        except (InjectedCrash, AssertionError):
            pass
        else:
            break
        for seed in range(3):
            after = opened(fs.crashed(mode, seed))
            seen, total = after.newest(10)
            assert len(seen) == total <= 1
            if begun is not None:
                # It was answered: nobody is told that it never was.
                [job] = seen
                assert job.id == begun.id
                assert job.state in (JobState.LOST, JobState.SUCCEEDED)
            again = submit(after, lambda _: Outcome({}))
            assert ended(after, again.id).state is JobState.SUCCEEDED
            after.close()
    assert crash_at > 5


def test_a_disk_that_refuses_keeps_no_work_from_its_end(tmp_path: Path) -> None:
    fs = FaultyFileSystem(PosixFileSystem())
    jobs, go = opened(fs, tmp_path / "jobs"), Signal()

    def work(on_progress: OnProgress) -> Outcome:
        go.wait(10)
        on_progress(1, 1)
        return Outcome({"sent": 1})

    job = submit(jobs, work)
    while jobs.get(job.id).state is not JobState.RUNNING:
        time.sleep(0.005)
    fs.faults.append(Fault(path="*.json*", count=None))
    go.set()
    assert ended(jobs, job.id).result == {"sent": 1}
    # Written as soon as the disk takes it again.
    fs.faults.clear()
    jobs.close()
    assert opened(PosixFileSystem(), tmp_path / "jobs").get(job.id).result == {"sent": 1}


def test_a_job_that_cannot_be_written_is_not_begun(tmp_path: Path) -> None:
    fs = FaultyFileSystem(PosixFileSystem(), Fault(path="*.json*", count=None))
    jobs = opened(fs, tmp_path / "jobs")
    with pytest.raises(StorageError):
        submit(jobs, lambda _: Outcome({}))
    assert jobs.newest(10) == ([], 0)
    fs.faults.clear()
    assert ended(jobs, submit(jobs, lambda _: Outcome({})).id).state is JobState.SUCCEEDED
    jobs.close()


@pytest.mark.parametrize("damage", [b"", b"{}", b"\x00" * 200])
def test_a_damaged_file_is_an_error_of_its_job_alone(jobs: Jobs, tmp_path: Path, damage: bytes) -> None:
    one, two = (ended(jobs, submit(jobs, lambda _: Outcome({})).id) for _ in range(2))
    path = tmp_path / "jobs" / f"{one.id}.json"
    path.write_bytes(damage)
    with pytest.raises(CorruptionError, match=one.id):
        jobs.get(one.id)
    assert jobs.newest(10) == ([two], 2)


@pytest.mark.parametrize("job_id", ["", "..", "../custody.toml", "1772409600000-0123456789abcdef", "x" * 5000])
def test_what_is_no_job_is_not_there(jobs: Jobs, job_id: str) -> None:
    with pytest.raises(NotFoundError):
        jobs.get(job_id)
    with pytest.raises(NotFoundError):
        jobs.cancel(job_id)


def test_nobody_is_told_of_an_end_that_is_not_written(tmp_path: Path) -> None:
    told: list[JobState] = []

    class Disk(PosixFileSystem):
        def write_durably(self, path: Path, data: bytes) -> None:
            if b'"succeeded"' in data:
                told.append(kept.get(path.stem).state)
            super().write_durably(path, data)

    kept = Jobs(Disk(), tmp_path / "jobs", tmp_path, ManualClock(1_772_409_600_000))
    job = ended(kept, submit(kept, lambda _: Outcome({})).id)
    assert job.state is JobState.SUCCEEDED
    assert told == [JobState.RUNNING]


def test_jobs_that_ended_long_ago_go_and_no_more_are_kept_than_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs_module, "_SWEEP_EACH", 1)
    monkeypatch.setattr(jobs_module, "KEPT_MAX", 3)
    clock = ManualClock(1_772_409_600_000)
    jobs = Jobs(PosixFileSystem(), tmp_path / "jobs", tmp_path, clock)
    ids = []
    for _ in range(6):
        ids.append(submit(jobs, lambda _: Outcome({})).id)
        ended(jobs, ids[-1])
        clock.advance(1)
    assert [job.id for job in jobs.newest(10)[0]] == ids[:1:-1]
    clock.advance(jobs_module.KEPT_MS + 1)
    last = submit(jobs, lambda _: Outcome({}))
    ended(jobs, last.id)
    assert [job.id for job in jobs.newest(10)[0]] == [last.id]
    jobs.close()
