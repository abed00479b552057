"""Where a job does its units: the decision, a whole pass in the driver, and the end of a driver that is left alone."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import psutil  # type: ignore[import-untyped]
import pytest

from custody.errors import StorageError
from custody.recovery import STEPS
from custody.repository import EventSelection, Repository
from custody.repository.local_pass import ALL_STEPS
from custody.sample import SampleOptions, sample_files
from custody.spark import ingest, job
from custody.spark.placement import UNIT_BYTES_MIN, place_bytes, place_units
from custody.vfs import PosixFileSystem
from custody.workspace import Workspace, read_report
from custody.workspace.step import Unit
from tests.support import INCLUDE, append, event, run_steps
from tests.unit.export.test_export_run import made as exporting

MOST = 8 * UNIT_BYTES_MIN


@pytest.fixture
def no_session(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(*_: object) -> NoReturn:
        pytest.fail("a session was started")

    monkeypatch.setattr(job, "start_session", start)
    monkeypatch.setattr(ingest, "start_session", start)


def with_limit(repository: Repository, most: int) -> Repository:
    (repository.settings.root / "custody.toml").write_text(f"[spark]\ndriver_bytes_max = {most}\n")
    return Repository.open(repository.settings.root)


@pytest.mark.parametrize(
    ("sizes", "in_driver"),
    [
        ([], True),
        ([0] * 10_000, True),
        ([MOST], True),
        ([MOST + 1], False),
        ([1] * 8, True),
        ([1] * 9, False),
        ([0, MOST], True),
        ([MOST - UNIT_BYTES_MIN, 1], True),
        ([MOST - UNIT_BYTES_MIN + 1, 1], False),
        ([0, None], False),
    ],
)
def test_the_bytes_and_the_number_of_units_decide(
    repository: Repository, sizes: list[int | None], in_driver: bool
) -> None:
    assert place_bytes(with_limit(repository, MOST).settings, sizes).in_driver is in_driver


def test_a_limit_of_0_means_always_spark(repository: Repository) -> None:
    placement = place_bytes(with_limit(repository, 0).settings, [0])
    assert (placement.in_driver, str(placement)) == (False, "Spark: spark.driver_bytes_max is 0")


def test_sizes_behind_the_one_that_decides_are_not_asked_for(repository: Repository) -> None:
    def sizes() -> Iterator[int | None]:
        yield MOST + 1
        pytest.fail("asked for")

    assert not place_bytes(with_limit(repository, MOST).settings, sizes()).in_driver


def test_each_step_sizes_its_units_by_the_files_that_it_reads(repository: Repository) -> None:
    append(repository, [event(number) for number in range(300)])
    workspace = Workspace(repository.settings, "main")

    def sizes(name: str) -> list[int | None]:
        step = ALL_STEPS[name]
        return [step.work_bytes(workspace, unit) for unit in step.units(repository.settings)]

    def bytes_of(pattern: str) -> list[int]:
        return [path.stat().st_size for path in sorted(repository.settings.root.rglob(pattern))]

    assert sizes("rollover") == bytes_of("*.sealed") != []
    run_steps(repository.settings, "rollover")
    assert sizes("compress") == sizes("index") == bytes_of("*.arrow") != []
    run_steps(repository.settings, "compress", "index")
    assert sizes("commit") == [0]
    run_steps(repository.settings, "commit")
    assert sizes("sweep") == [0]
    run_steps(repository.settings, "sweep")
    repository.forget(EventSelection(event_ids=(3,)), "asked")
    assert sizes("compact") == bytes_of("events/*.parquet") != []
    scrubbed = sizes("scrub")
    assert None not in scrubbed
    assert sum(size or 0 for size in scrubbed) > 0
    live = bytes_of("events/*.parquet")
    [shard] = workspace.catalog.load().shards.values()
    for path in workspace.shard_path(shard).iterdir():
        path.unlink()
    assert sizes("rebuild") == sizes("index") == live


def test_a_unit_whose_files_went_in_the_meantime_is_of_unknown_size(repository: Repository) -> None:
    append(repository, [event(1)])
    [unit] = ALL_STEPS["rollover"].units(repository.settings)

    class Gone(type(ALL_STEPS["rollover"])):  # type: ignore[misc]
        def work_bytes(self, workspace: Workspace, unit: Unit) -> int | None:
            raise StorageError("gone")

    placement = place_units(Gone(), repository.settings, [unit])
    assert str(placement) == "Spark: the size of a unit is not known"


@pytest.mark.usefixtures("no_session")
def test_a_job_of_a_small_pass_does_it_in_its_driver_and_says_why(
    repository: Repository, capsys: pytest.CaptureFixture[str]
) -> None:
    append(repository, [event(number) for number in range(30)])
    root = repository.settings.root
    assert job.main(list(STEPS), ["--repository", str(root), "--run-id", "r1"]) == 0
    shown = capsys.readouterr()
    places = {report["step"]: report["place"] for report in map(json.loads, shown.out.splitlines())}
    small = f"driver: 1 units count as {UNIT_BYTES_MIN} bytes of at most {repository.settings.spark.driver_bytes_max}"
    catalog = "driver: 1 units work on the catalog and on names alone"
    assert places == {
        **dict.fromkeys(("rollover", "compress", "index"), small),
        **dict.fromkeys(("commit", "sweep"), catalog),
        **dict.fromkeys(("recover", "checkpoint")),
    }
    assert f"custody: rollover: done in {small}\n" in shown.err
    assert read_report(PosixFileSystem(), repository.settings.runs, "r1", "commit").place == catalog
    assert repository.search("", limit=1).total == 30


@pytest.mark.usefixtures("no_session")
def test_few_files_that_landed_are_ingested_by_the_driver(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    repository = Repository.create(tmp_path / "repository")
    root = repository.settings.root
    text = '[repository]\nwriter_slots = 2\n[landing]\nfolder = "landing"\nquiet_seconds = 0\n'
    (root / "custody.toml").write_text(text)
    (root / "landing").mkdir()
    for name, data in sample_files(SampleOptions(events=60, batch_size=30, nodes=1)):
        (root / "landing" / name).write_bytes(data)
    interval = ["--start", "2026-03-02T12:00", "--end", "2026-03-02T13:00"]
    assert ingest.main(["--repository", str(root), *interval]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["units"], report["failed"]) == (2, 0)
    assert report["place"].startswith("driver: 2 units count as")
    assert report["events"] == Repository.open(root).search("", limit=1).total == 60


def test_a_driver_whose_spark_submit_is_killed_ends(tmp_path: Path) -> None:
    driver = (
        "import os, sys, time; from pathlib import Path\n"
        "from custody.spark.placement import end_with_spark_submit\n"
        "end_with_spark_submit(); Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    )
    submit = "import subprocess, sys; subprocess.run([sys.executable, '-c', *sys.argv[1:]])"
    environ = {**os.environ, "PYTHONPATH": str(INCLUDE), "PYSPARK_GATEWAY_PORT": "1"}
    named = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", submit, driver, str(named)], env=environ) as parent:
        deadline = time.monotonic() + 30
        while not (named.exists() and named.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        left = psutil.Process(int(named.read_text()))
        parent.send_signal(signal.SIGKILL)
    while left.is_running() and left.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_job_does_not_import_pandas_and_whoever_comes_after_it_does(repository: Repository) -> None:
    append(repository, [event(number) for number in range(30)])
    program = (
        "import sys; from custody.spark import job\n"
        "code = job.main(['rollover', 'compress', 'index', 'commit', 'sweep'], sys.argv[1:])\n"
        "assert 'pandas' not in sys.modules\n"
        "import pandas\n"
        "sys.exit(code)"
    )
    command = [sys.executable, "-c", program, "--repository", str(repository.settings.root)]
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(INCLUDE)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert repository.search("", limit=1).total == 30


def test_an_export_counts_what_waits_for_it(tmp_path: Path) -> None:
    repository = exporting(tmp_path / "repository")
    append(repository, [event(number) for number in range(12)])
    step = ALL_STEPS["export_deliver"]
    units = step.units(repository.settings)
    assert {step.work_bytes(Workspace(repository.settings, "main"), unit) for unit in units} == {12 * 1024}
    assert place_units(step, repository.settings, units).in_driver
