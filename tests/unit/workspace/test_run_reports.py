"""Reports of runs: found again by run and step, and a run id never becomes a path."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import msgspec
import pytest
from obstore.store import MemoryStore

from custody.config import Settings
from custody.errors import NotFoundError
from custody.maintenance.verification import verify_repository
from custody.recovery import STEPS
from custody.repository import Repository
from custody.repository.local_pass import run_locally
from custody.store import StoredFiles
from custody.store.remote import RemoteStore, open_remote
from custody.vfs import PosixFileSystem
from custody.workspace import (
    ReportPlace,
    StepReport,
    UnitReport,
    read_report,
    report_path,
    report_place,
    reports_of_run,
    write_report,
    writer_names,
)
from custody.workspace.run_reports import list_runs, read_run, run_of
from tests.support import append, sample

REPORT = StepReport.of(
    "rollover",
    "/repository",
    1.23456,
    [UnitReport(unit="main/0", events=3, bytes=10), UnitReport(unit="main/3", events=4, error="StorageError: full")],
)


def test_a_report_adds_up_its_units() -> None:
    assert (REPORT.units, REPORT.events, REPORT.bytes, REPORT.failed, REPORT.seconds) == (2, 7, 10, 1, 1.235)
    assert "\n" not in REPORT.line()


def test_a_report_is_read_back_and_a_second_attempt_replaces_it(tmp_path: Path) -> None:
    fs = PosixFileSystem()
    write_report(fs, tmp_path, "manual__2026-03-02T00:00:00+00:00", StepReport.of("rollover", "/r", 0, []))
    write_report(fs, tmp_path, "manual__2026-03-02T00:00:00+00:00", REPORT)
    assert read_report(fs, tmp_path, "manual__2026-03-02T00:00:00+00:00", "rollover") == REPORT
    with pytest.raises(NotFoundError, match="commit"):
        read_report(fs, tmp_path, "manual__2026-03-02T00:00:00+00:00", "commit")


@pytest.mark.parametrize("run_id", ["../../etc/passwd", "/etc/passwd", "", ".", "..", "a/b", "x" * 500, "a\0b"])
def test_a_run_id_never_becomes_a_path(tmp_path: Path, run_id: str) -> None:
    path = report_path(tmp_path, run_id, "commit")
    assert path.parent.parent == tmp_path
    assert path.resolve().is_relative_to(tmp_path.resolve())
    assert len(path.parent.name) < 100


def test_runs_whose_readable_names_are_alike_are_kept_apart(tmp_path: Path) -> None:
    assert len({report_path(tmp_path, run_id, "commit") for run_id in ("a:b", "a/b", "a_b", "a b")}) == 4


@pytest.fixture
def stored() -> ReportPlace:
    files = StoredFiles(RemoteStore(MemoryStore(), "memory://reports"))
    return ReportPlace(files, files.path("RUNS/reports"))


def test_reports_in_a_store_are_read_back_and_listed_newest_first(stored: ReportPlace) -> None:
    for number in range(5):
        with patch("custody.workspace.run_reports.time.time", lambda day=number: 1_772_409_600 + 86_400 * day):
            write_report(*stored, f"run/{number}", REPORT, "dag/run/task/1")
            write_report(*stored, f"run/{number}", StepReport.of("commit", "/r", 0, []))
    with patch("custody.workspace.run_reports.time.time", lambda: 1_772_409_600 + 86_400 * 9):
        write_report(*stored, "run/1", StepReport.of("sweep", "/r", 0, []))  # it went on over midnight
    assert read_report(*stored, "run/3", "rollover") == msgspec.structs.replace(REPORT, attempt="dag/run/task/1")
    with pytest.raises(NotFoundError, match=r"memory://reports/RUNS/reports/run_3-.*sweep"):
        read_report(*stored, "run/3", "sweep")
    assert [report.step for report in reports_of_run(*stored, "run/1")] == ["commit", "rollover", "sweep"]
    items, total, notices = list_runs(*stored, 3)
    assert (len(items), total, notices) == (3, 5, [])
    assert items[0].run == run_of(stored.folder, "run/1")
    assert set(items[0].steps) == {"rollover", "commit", "sweep"}
    assert [report.step for report in read_run(*stored, items[0].run)][-1] == "sweep"
    [only], total, _ = list_runs(*stored, 3, run_of(stored.folder, "run/4"))
    assert (only.units, only.failed, total) == (2, 1, 1)
    with pytest.raises(NotFoundError):
        read_run(*stored, "../../leases")


def test_a_stored_report_that_was_changed_is_named_and_the_others_are_listed(stored: ReportPlace) -> None:
    for name in ("one", "two"):
        path = write_report(*stored, name, REPORT)
    data = stored.files.read(path)
    stored.files.write_durably(path, data.replace(b"rollover", b"rollback"))
    items, total, [notice] = list_runs(*stored, 10)
    assert ([item.run for item in items], total) == ([run_of(stored.folder, "one")], 2)
    assert notice.startswith("memory://reports/RUNS/reports/two-")


def test_the_reports_of_a_pass_over_an_object_store_are_read_on_another_machine(tmp_path: Path) -> None:
    url = f"memory://{uuid4().hex}"
    one, other = (
        Repository(Settings.model_validate({"root": tmp_path / name, "repository": {"store": url}})) for name in "ab"
    )
    append(one, sample(5))
    run_locally(list(STEPS), one.settings, run_id="nightly")
    assert not one.settings.runs.exists()
    items, total, _ = list_runs(*report_place(other.settings), 10)
    assert total == 1
    assert items[0].events == 5
    assert read_report(*report_place(other.settings), "nightly", "commit").attempt is not None
    store = open_remote(url, can_put_if_absent=True)
    assert writer_names(other.settings, PosixFileSystem()) == ["main"], "the folder of reports is no writer's"
    [key] = [key for key in store.keys("RUNS/reports/") if key.endswith("commit.json")]
    store.put(key, b"{}")
    report = verify_repository(one.workspaces(), one.settings, PosixFileSystem())
    assert [item.kind for item in report.findings if item.severity == "damage"] == ["record-damaged"]
