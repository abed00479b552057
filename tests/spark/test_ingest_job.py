"""The ingest job through spark-submit: the files of an interval in parallel, a slot a task, each once."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.repository import Repository
from custody.sample import SampleOptions, sample_files
from custody.spark.environment import submit_environment
from custody.spark.submit import step_command
from custody.vfs import PosixFileSystem
from custody.workspace import read_report

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)
INTERVAL = ["--start", "2026-03-02T12:00", "--end", "2026-03-02T13:00"]
FILES, EACH = 4, 50


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    root = tmp_path / "repository"
    Repository.create(root)
    (root / "custody.toml").write_text(
        '[repository]\nwriter_slots = 2\n[landing]\nfolder = "landing/%Y-%m-%d/%H"\nquiet_seconds = 0\n'
    )
    folder = root / f"landing/{NOON:%Y-%m-%d/%H}"
    folder.mkdir(parents=True)
    [(_, data)] = sample_files(SampleOptions(events=FILES * EACH * 2, nodes=1))
    events = json.loads(data)
    for part in range(FILES):
        (folder / f"part-{part}.json").write_text(json.dumps(events[part * EACH :][:EACH]))
    (folder / "part-9.json").write_text('[{"eventType": "SEND"}]')
    return Repository.open(root)


def submit(root: Path, *arguments: str) -> tuple[int, dict[str, Any] | None, str]:
    command = step_command("ingest", ["--repository", str(root), *arguments], master="local[2]")
    by_spark = {"CUSTODY__SPARK__DRIVER_BYTES_MAX": "0"}
    environ = os.environ | submit_environment() | by_spark
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return done.returncode, json.loads(lines[0]) if lines else None, done.stderr


@pytest.mark.in_parts(3)
@pytest.mark.spark
def test_the_files_of_an_interval_are_stored_in_parallel_and_once(repository: Repository) -> None:
    root = repository.settings.root
    code, report, errors = submit(root, "--run-id", "run/1", *INTERVAL)
    assert code == 0, errors
    assert report is not None
    assert (report["step"], report["units"], report["events"], report["failed"]) == ("ingest", 5, FILES * EACH, 0)
    assert [Path(unit["unit"]).name for unit in report["details"]] == [
        *(f"part-{n}.json" for n in range(4)),
        "part-9.json",
    ]
    assert "1 in the quarantine" in report["details"][-1]["note"]
    assert read_report(PosixFileSystem(), repository.settings.runs, "run/1", "ingest").events == FILES * EACH
    writers = {status.writer for status in repository.status().writers}
    assert "main" in writers
    assert writers <= {"main", "main-2"}  # one slot if the first task was done before the second began
    assert repository.search("", limit=1).total == FILES * EACH
    shown = CliRunner().invoke(cli, ["-r", str(root), "landing", *INTERVAL, "--json"])
    assert [entry["taken"]["stored"] for entry in json.loads(shown.stdout)] == [EACH] * FILES + [0]
    table = CliRunner().invoke(cli, ["-r", str(root), "landing", *INTERVAL]).stdout
    assert "5 files, 0 wait" in table
    code, report, _ = submit(root, *INTERVAL)
    assert report is not None
    assert (code, report["units"]) == (0, 0)
