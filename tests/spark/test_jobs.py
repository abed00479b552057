"""The Spark jobs as programs: arguments, report line, exit codes, and one driver for all steps."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from custody.catalog.codec import decode
from custody.config import SETTINGS_FILE
from custody.format.names import split_stripe
from custody.maintenance.findings import damages
from custody.maintenance.scrub import read_scrub
from custody.recovery import STEPS
from custody.repository import EventSelection, Repository
from custody.repository.local_pass import ALL_STEPS
from custody.sample import SampleOptions, sample_files
from custody.spark.environment import job_of, jobs_folder, submit_environment
from custody.spark.submit import step_command, submit_command
from custody.spark.swh.steps import ALL as SWH_STEPS
from custody.vfs import PosixFileSystem
from custody.workspace import read_report
from custody.workspace.run_reports import decode_report
from tests.support import append, event, files_below, run_steps, sample
from tests.unit.export.test_export_run import made, written

ENVIRONMENT = {**os.environ, **submit_environment()}
# These repositories are small: without it their jobs would do the units in their drivers.
BY_SPARK = {"CUSTODY__SPARK__DRIVER_BYTES_MAX": "0"}


def submit(step: str, *arguments: str, by_spark: bool = False) -> subprocess.CompletedProcess[str]:
    command = step_command(step, arguments, master="local[2]")
    environ = {**os.environ, **submit_environment(), **(BY_SPARK if by_spark else {})}
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A repository with two sealed groups, too large for one log."""
    repository = Repository.create(tmp_path / "repository")
    (tmp_path / "repository" / SETTINGS_FILE).write_text("[eventlog]\nlog_bytes_target = 200000\n")
    repository = Repository.open(tmp_path / "repository")
    for number, (name, data) in enumerate(sample_files(SampleOptions(events=600, batch_size=300, nodes=2))):
        (tmp_path / name).write_bytes(data)
        with repository.ingest() as work:
            work.file(tmp_path / name)
        if number == 1:
            break
    return repository


def test_each_step_of_the_pipeline_has_a_job_and_each_other_family_one_for_all_its_steps() -> None:
    files = {path.name for path in jobs_folder().glob("*.py")}
    alone = {"all", "ingest", "ngsi_check", "ngsi_to_hdfs", "swh_all", "swh_find_earliest_revision"}
    assert files == {job_of(step)[0] for step in (*ALL_STEPS, *SWH_STEPS, *alone)}
    assert {step for step in ALL_STEPS if not job_of(step)[1]} == set(STEPS)


@pytest.mark.parametrize("file", ["maintenance", "retention", "swh"])
def test_a_job_of_several_steps_refuses_what_is_none(file: str) -> None:
    command = [sys.executable, str(jobs_folder() / f"{file}.py"), "sweep", "--repository", "x"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "invalid choice: 'sweep'" in done.stderr


JOBS = ["all", "ingest", "ngsi_to_hdfs", *ALL_STEPS, "swh_nodes", "swh_publish", "swh_all"]


@pytest.mark.parametrize("step", JOBS)
def test_a_job_explains_its_arguments(
    step: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, first = job_of(step)
    job = str(jobs_folder() / file)
    monkeypatch.setattr(sys, "argv", [job, *first, "--help"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(job, run_name="__main__")
    assert ended.value.code == 0
    explained = capsys.readouterr().out
    assert "--repository" in explained
    assert "--run-id" in explained


@pytest.mark.in_parts(3)
@pytest.mark.parametrize("file", sorted({job_of(step)[0] for step in JOBS}))
def test_a_job_starts_as_a_program_of_its_own(file: str) -> None:
    first = next(job_of(step)[1] for step in JOBS if job_of(step)[0] == file)
    command = [sys.executable, str(jobs_folder() / file), *first, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--repository" in done.stdout


def test_a_job_without_a_repository_ends_with_the_error_s_own_code(tmp_path: Path) -> None:
    command = [sys.executable, str(jobs_folder() / "rollover.py"), "--repository", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 12
    assert "custody init" in done.stderr


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_executors_write_event_logs_to_the_stripes_of_the_driver_s_settings(repository: Repository) -> None:
    root = repository.settings.root
    for name in ("a", "b"):
        (root.parent / f"disk-{name}").mkdir()
    with (root / SETTINGS_FILE).open("a") as file:
        file.write(f'[repository]\nstripes = ["a={root.parent}/disk-a", "b=../disk-b"]\n')
    before = list(repository.events(count=10_000))
    done = submit("all", "--repository", str(root), by_spark=True)
    assert done.returncode == 0, done.stderr
    again = Repository.open(root)
    paths = again.workspace().catalog.load().files
    assert {split_stripe(path)[0] for path in paths} == {"a", "b"}
    assert len(list(root.parent.glob("disk-*/main/provenance/data/*/events/*.parquet"))) == len(paths)
    assert list(again.events(count=10_000)) == before


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_one_driver_does_all_steps_and_prints_one_report_line_each(repository: Repository) -> None:
    root = repository.settings.root
    done = submit("all", "--repository", str(root), "--run-id", "../../weekly run/1", by_spark=True)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [report["step"] for report in reports] == list(STEPS)
    assert {report["step"]: report["units"] for report in reports}["rollover"] == 2
    starts = {report["step"]: report["startup_seconds"] for report in reports}
    # The Java process and Python before the first step, Spark's session before the first one that has work.
    assert {step for step, seconds in starts.items() if seconds > 0} == {"recover", "rollover"}
    places = {report["step"]: report["place"] for report in reports}
    assert places == {
        step: None if step in ("recover", "checkpoint") else "Spark: spark.driver_bytes_max is 0" for step in STEPS
    }
    ingested = repository.status().writers[0].next_event_id
    assert repository.search("", limit=1).total == repository.status().writers[0].events_live == ingested > 0
    kept = read_report(PosixFileSystem(), repository.settings.runs, "../../weekly run/1", "commit")
    assert kept.units == 1
    assert [path.name for path in root.parent.iterdir() if path.is_dir()] == ["repository"]


def files_after_a_pass(root: Path) -> dict[str, object]:
    """Every file, without what names a moment, a process or a duration."""
    files: dict[str, object] = {}
    for path, data in files_below(root).items():
        if path.endswith(".txn"):
            transaction = decode(data, path)
            assert transaction.commit_time_ms > 0
            transaction.commit_time_ms, transaction.attempt_id = 0, b""
            transaction.previous_digest = b""  # of a transaction with another time
            files[path] = transaction.SerializeToString(deterministic=True)
        # A witness has the digest of a transaction, whose time is another one.
        elif "/leases/" in path or "WITNESS" in path or path.startswith("witness/"):
            files[path] = None
        elif path.startswith("runs/"):
            report = decode_report(data, Path(path))
            # What a unit wrote is named by where it lies, and these lie in different folders.
            units = tuple(
                msgspec.structs.replace(
                    unit, seconds=0.0, files=tuple(uri.removeprefix(root.as_uri()) for uri in unit.files)
                )
                for unit in report.details
            )
            files[path] = msgspec.structs.replace(
                report, repository="", seconds=0.0, startup_seconds=0.0, place=None, attempt=None, details=units
            )
        else:
            files[path] = data
    return files


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_a_pass_in_the_process_leaves_the_files_that_the_spark_jobs_leave(repository: Repository) -> None:
    with repository.writer() as writer:
        writer.append(sample(400))
    repository.forget(EventSelection(event_ids=(3,)), "asked")
    root, copy = repository.settings.root, repository.settings.root.with_name("copy")
    driver = root.with_name("driver")
    shutil.copytree(root, copy)
    shutil.copytree(root, driver)
    done = submit("all", "--repository", str(copy), "--run-id", "run", by_spark=True)
    assert done.returncode == 0, done.stderr
    done = submit("all", "--repository", str(driver), "--run-id", "run")
    assert done.returncode == 0, done.stderr
    assert "custody: compress: done in driver: " in done.stdout
    assert [report.failed for report in repository.roll_over(run_id="run", workers=2)] == [0] * len(STEPS)
    in_process, by_spark, in_driver = map(files_after_a_pass, (root, copy, driver))
    assert in_process.keys() == by_spark.keys() == in_driver.keys()
    assert [path for path in by_spark if in_process[path] != by_spark[path]] == []
    assert [path for path in by_spark if in_driver[path] != by_spark[path]] == []
    logs = [path for path in by_spark if path.endswith(".parquet")]
    assert len(logs) > 2
    assert Repository.open(root).search("*", limit=9).events == Repository.open(copy).search("*", limit=9).events


def report_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return report


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_a_damaged_unit_fails_its_job_and_leaves_the_other_units_done(repository: Repository) -> None:
    assert submit("rollover", "--repository", str(repository.settings.root)).returncode == 0
    staged = sorted(repository.settings.store.rglob("*.arrow"))
    data = bytearray(staged[0].read_bytes())
    data[len(data) // 2] ^= 1
    staged[0].write_bytes(data)
    done = submit("compress", "--repository", str(repository.settings.root))
    assert done.returncode == 1
    report = report_of(done)
    assert (report["units"], report["failed"]) == (len(staged), 1)
    failure = next(unit for unit in report["details"] if unit["error"])
    assert str(staged[0]) in failure["error"]
    assert "CorruptionError" in failure["error"]
    assert len(list(repository.settings.store.rglob("*.parquet"))) == len(staged) - 1


@pytest.mark.spark
def test_a_damaged_journal_costs_its_records_and_the_job_says_which(repository: Repository) -> None:
    journals = sorted((repository.settings.containers[0] / "main" / "journals").iterdir())
    events = repository.status().writers[0].events_waiting
    damaged = bytearray(journals[0].read_bytes())
    damaged[len(damaged) // 2] ^= 1
    journals[0].write_bytes(damaged)
    done = submit("rollover", "--repository", str(repository.settings.root))
    assert done.returncode == 0, done.stderr
    report = report_of(done)
    assert 0 < report["events"] < events
    assert [entry.code for entry in repository.quarantine.entries()] == ["journal-damage"]
    [entry] = repository.quarantine.entries()
    assert f"{journals[0]} @{entry.offset}, {entry.size_bytes} bytes" in report["details"][0]["note"]


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_spark_reads_the_logs_without_custody(repository: Repository) -> None:
    run_steps(repository.settings)
    events = list(repository.events(count=10_000))
    command = submit_command(
        Path(__file__).with_name("sql_over_logs.py"),
        [str(repository.workspace().paths.home / "data/*/events/*.parquet")],
        master="local[2]",
    )
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = report_of(done)
    assert found["rows"] == found["distinct"] == len(events)
    assert found["ids"] == sum(event.event_id for event in events)
    assert found["ordinals"] == sum(event.source_ordinal or 0 for event in events)
    assert found["of_one"] == [event.event_id for event in events if event.flowfile_uuid == found["uuid"]]


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_the_scrub_looks_at_pieces_in_parallel_and_its_driver_keeps_what_they_found(repository: Repository) -> None:
    run_steps(repository.settings)
    root = repository.settings.root
    with (root / SETTINGS_FILE).open("a") as file:
        file.write("[maintenance]\nscrub_days = 0.01\n")
    log = sorted(root.glob("store/main/provenance/data/*/events/*.parquet"))[0]
    data = bytearray(log.read_bytes())
    data[2000] ^= 1
    log.write_bytes(data)
    done = submit("scrub", "--repository", str(root), "--run-id", "daily", by_spark=True)
    assert done.returncode == 0, done.stderr
    [report] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert (report["step"], report["failed"]) == ("scrub", 0)
    assert report["units"] > 5
    former = read_scrub(repository.settings, PosixFileSystem()).former
    assert former is not None
    assert former.pieces == report["units"]
    assert [(item.kind, item.path) for item in damages(former.findings)] == [("log-damaged", str(log))]


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_the_jobs_of_retention_let_old_events_go_and_report_the_plan(repository: Repository) -> None:
    run_steps(repository.settings)
    root = repository.settings.root
    text = (root / SETTINGS_FILE).read_text()
    (root / SETTINGS_FILE).write_text(f'{text}[retention]\nage_max = "1 days"\ngrace = "0 seconds"\n')
    plans = []
    for step in ("retention_plan", "retention_mark", "retention_expire"):
        done = submit(step, "--repository", str(root), "--run-id", "run")
        assert done.returncode == 0, done.stderr
        report = read_report(PosixFileSystem(), repository.settings.runs, "run", step)
        plans.append(json.loads(report.details[0].note or "")["expiring"] if step != "retention_expire" else [])
    assert len(plans[0]) == len(plans[1]) > 1, "what is marked is the plan"
    assert list(Repository.open(root).events()) == []
    assert not list((root / "store").rglob("data/*/events/*.parquet"))


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_exports_deliver_what_waits_and_leave_those_that_were_not_named(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    append(repository, [event(number) for number in range(12)])
    root = str(repository.settings.root)
    other = submit("export_deliver", "--repository", root, "--only", "other")
    assert (other.returncode, written(repository)) == (0, [])
    done = submit("export_deliver", "--repository", root, "--run-id", "r1", "--only", "box", by_spark=True)
    assert done.returncode == 0, done.stderr
    [report] = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"step"')]
    assert (report["units"], report["events"]) == (1, 12)
    assert written(repository) == list(range(12))
    assert read_report(PosixFileSystem(), repository.settings.runs, "r1", "export_deliver").events == 12
