"""Reports of runs: found again by run and step, and a run id never becomes a path."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.errors import NotFoundError
from custody.vfs import PosixFileSystem
from custody.workspace import StepReport, UnitReport, read_report, report_path, write_report

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
