"""Reports of custody's own steps name the finished files that they wrote, as they lie on the disk."""

from __future__ import annotations

from pathlib import Path

from custody.repository import Repository
from custody.vfs import PosixFileSystem
from custody.workspace import FILES_MAX, UnitReport, reports_of_run, write_report
from custody.workspace.run_reports import StepReport, file_uri
from tests.support import append, run_steps, sample


def test_logs_and_shards_are_named_by_the_step_that_wrote_them(tmp_path: Path) -> None:
    repository = Repository.create(tmp_path / "re pository")
    files: dict[str, list[str]] = {}
    for events in (sample(200), sample(200, nodes=1, seed=2)):
        append(repository, events)
        for step in ("rollover", "compress", "index", "commit", "checkpoint", "sweep"):
            files.setdefault(step, []).extend(
                name for unit in run_steps(repository.settings, step) for name in unit.files
            )
    workspace = repository.workspace()
    state = workspace.catalog.load()
    assert sorted(files["compress"]) == sorted(workspace.log_path(path).as_uri() for path in state.files)
    assert sorted(files["index"]) == sorted(workspace.shard_path(shard).as_uri() for shard in state.shards.values())
    assert files["rollover"] == files["sweep"] == []
    assert all("re%20pository" in name for name in files["compress"])
    [report] = repository.compact()
    state = repository.workspace().catalog.load()
    [log], [shard] = state.files, state.shards.values()
    assert report.files == (workspace.log_path(log).as_uri(), workspace.shard_path(shard).as_uri())


def test_files_of_an_object_store_are_named_by_their_url() -> None:
    assert file_uri("s3://bucket/custody/logs/0.parquet") == "s3://bucket/custody/logs/0.parquet"
    assert file_uri("/data/a b.parquet") == "file:///data/a%20b.parquet"


def test_reports_of_a_run_say_who_did_them(tmp_path: Path) -> None:
    fs, run = PosixFileSystem(), "manual__2026-03-02T06:00:00+00:00"
    assert reports_of_run(fs, tmp_path, run) == []
    for step, attempt in (("compress", f"rollover/{run}/compress/2"), ("index", None)):
        units = [UnitReport(unit="main/0", files=(f"file:///{step}", "file:///both")) for _ in range(2)]
        write_report(fs, tmp_path, run, StepReport.of(step, "/r", 1.0, units), attempt)
    reports = {report.step: report for report in reports_of_run(fs, tmp_path, run)}
    assert reports["compress"].attempt == f"rollover/{run}/compress/2"
    assert reports["compress"].files == ("file:///compress", "file:///both")
    assert reports["index"].attempt is None
    assert FILES_MAX == 1000
