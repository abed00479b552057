"""The Spark jobs as programs: arguments, report line, exit codes, and one driver for all steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from custody.repository import Repository
from custody.rollover import STEPS, read_report
from custody.sample import SampleOptions, sample_files
from custody.spark.run import jobs_folder
from custody.spark.submit import submit_command, submit_environment
from custody.vfs import PosixFileSystem

ENVIRONMENT = {**os.environ, **submit_environment()}


def submit(step: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = submit_command(jobs_folder() / f"{step}.py", arguments, master="local[2]")
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with two sealed groups."""
    repository = Repository.create(tmp_path / "repository")
    for number, (name, data) in enumerate(sample_files(SampleOptions(events=600, batch_size=300, nodes=2))):
        (tmp_path / name).write_bytes(data)
        with repository.ingest() as work:
            work.file(tmp_path / name)
        if number == 1:
            break
    return repository


def test_there_is_one_job_a_step_and_one_for_all_of_them() -> None:
    names = {path.stem for path in jobs_folder().glob("*.py")}
    assert names == {*STEPS, "all"}


@pytest.mark.parametrize("step", ["all", *STEPS])
def test_a_job_explains_its_arguments(step: str) -> None:
    done = subprocess.run(
        [sys.executable, str(jobs_folder() / f"{step}.py"), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "--repository" in done.stdout
    assert "--run-id" in done.stdout


def test_a_job_without_a_repository_ends_with_the_error_s_own_code(tmp_path: Path) -> None:
    command = [sys.executable, str(jobs_folder() / "rollover.py"), "--repository", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 12
    assert "custody init" in done.stderr


@pytest.mark.spark
def test_one_driver_does_all_steps_and_prints_one_report_line_each(repository: Repository) -> None:
    root = repository.settings.root
    done = submit("all", "--repository", str(root), "--run-id", "../../weekly run/1")
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["step"] for report in reports] == list(STEPS)
    assert {report["step"]: report["units"] for report in reports}["compress"] == 2
    ingested = repository.status().writers[0].next_event_id
    assert repository.search("", limit=1).total == repository.status().writers[0].events_live == ingested > 0
    kept = read_report(PosixFileSystem(), repository.settings.runs, "../../weekly run/1", "commit")
    assert kept.units == 1
    assert [path.name for path in root.parent.iterdir() if path.is_dir()] == ["repository"]


@pytest.mark.spark
def test_a_damaged_group_fails_its_job_and_leaves_the_other_groups_done(repository: Repository) -> None:
    journals = sorted((repository.settings.containers[0] / "main" / "journals").iterdir())
    damaged = bytearray(journals[0].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    journals[0].write_bytes(damaged)
    done = submit("rollover", "--repository", str(repository.settings.root))
    assert done.returncode == 1
    report = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    assert report["units"] == 2
    assert report["failed"] == 1
    failure = next(unit for unit in report["details"] if unit["error"])
    assert str(journals[0]) in failure["error"]
    assert "CorruptionError" in failure["error"]
