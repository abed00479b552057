"""verify, repair, scrub and status from the command line: what they print, and their exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from tests.support import files_below
from tests.unit.maintenance.damaged_samples import STORE, Sample, build, flip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("whole") / "repository"
    build(root)
    return root


@pytest.fixture
def sample(whole: Path, tmp_path: Path) -> Sample:
    shutil.copytree(whole, tmp_path / "copy")
    return Sample(tmp_path / "copy")


def run(sample: Sample, *arguments: str, code: int = 0) -> Result:
    result = CliRunner().invoke(cli, ["-r", str(sample.root), *arguments])
    assert result.exit_code == code, result.output
    return result


def document(sample: Sample, *arguments: str, code: int = 0) -> Any:
    return json.loads(run(sample, *arguments, "--json", code=code).stdout)


@pytest.mark.parametrize("level", [[], ["--quick"], ["--deep"]])
def test_a_whole_repository_is_clean_at_each_level(sample: Sample, level: list[str]) -> None:
    [report] = document(sample, "verify", *level)
    assert (report["defects"], report["notices"], report["known_losses"], report["orphans"]) == ([], [], [], [])
    assert (report["writer"], report["files"], report["revisions"]) == ("main", 4, 4)
    printed = run(sample, "verify", *level).stdout
    assert "main" in printed
    assert printed.splitlines()[-1].endswith(": nothing wrong")
    assert " check units, " in printed.splitlines()[-1]


def test_a_new_repository_has_nothing_to_look_at_and_prints_no_empty_table(tmp_path: Path) -> None:
    assert CliRunner().invoke(cli, ["init", str(tmp_path / "new")]).exit_code == 0
    for arguments, said in (
        ([], "nothing to check yet: nothing wrong\n"),
        (["--orphans"], "nothing belongs to nothing\n"),
    ):
        result = CliRunner().invoke(cli, ["-r", str(tmp_path / "new"), "verify", *arguments])
        assert (result.exit_code, result.stdout) == (0, said)


def test_both_levels_at_once_are_refused(sample: Sample) -> None:
    run(sample, "verify", "--quick", "--deep", code=2)


def test_a_defect_says_how_many_events_it_costs_and_what_mends_it(sample: Sample) -> None:
    flip(sample.logs()[1], 2000)
    [report] = document(sample, "verify", code=20)
    [defect] = report["defects"]
    assert (defect["kind"], defect["severity"], defect["events"]) == ("log-damaged", "damage", 21)
    assert (defect["first_event_id"], defect["last_event_id"]) == (30, 50)
    assert "custody repair" in defect["repair"]
    printed = run(sample, "verify", code=20).stdout
    assert "30 to 50" in printed
    assert printed.splitlines()[-1].endswith(": 1 damaged")


def test_what_is_no_writer_s_has_a_document_of_its_own(sample: Sample) -> None:
    (sample.root / "quarantine" / "notes").write_text("?")
    flip(sample.glob("quarantine/*.rejected")[0], 120)
    *_, found = document(sample, "verify", code=20)
    assert found["writer"] is None
    assert [item["kind"] for item in found["defects"]] == ["quarantine-damaged"]
    assert [item["kind"] for item in found["orphans"]] == ["foreign"]


def test_orphans_are_listed_with_their_sizes_and_who_removes_them(sample: Sample) -> None:
    partial = sample.root / STORE / "data/2026-03-02/events/00000000000000000000.parquet.0a.partial"
    partial.write_bytes(bytes(1000))
    attempt = sample.root / STORE / "staging/building-0"
    attempt.mkdir()
    (attempt / "unit").write_bytes(bytes(10))
    [report] = document(sample, "verify", "--orphans")
    shown = {(item["kind"], item["size_bytes"], item["repair"]) for item in report["orphans"]}
    assert shown == {("temporary", 1000, "custody recover"), ("attempt", 10, "custody recover")}
    assert "1000 B" in run(sample, "verify", "--orphans").stdout


def test_repair_prints_first_and_acts_only_when_asked(sample: Sample) -> None:
    flip(sample.logs()[1], 2000)
    before = files_below(sample.root)
    plan = document(sample, "repair", "--dry-run", code=20)
    assert [(item["what"], item["events"], item["outcome"]) for item in plan["actions"]] == [("rewrite-log", 21, None)]
    assert "nothing was changed: --yes" in run(sample, "repair", code=2).stderr
    assert files_below(sample.root) == before
    asked = document(sample, "repair", "--yes", code=20)["actions"][0]
    assert (asked["outcome"], str(sample.logs()[1]) in asked["wanted"]) == (None, True)
    assert "put a copy of the file at" in run(sample, "repair", "--dry-run", code=20).stdout
    done = document(sample, "repair", "--yes", "--accept-loss")
    assert done["damage_left"] == []
    assert "21 lost" in done["actions"][0]["outcome"]
    report = json.loads(Path(done["report"]).read_text())
    assert (report["step"], report["failed"], report["events"]) == ("repair", 0, 21)
    [found] = document(sample, "verify", "--deep")
    assert [item["events"] for item in found["known_losses"]] == [21]
    assert document(sample, "repair")["actions"] == []
    [writer] = document(sample, "status")["writers"]
    assert (writer["events_lost"], writer["events_live"]) == (21, 89)


def test_what_is_lost_is_given_up_only_when_that_is_accepted(sample: Sample) -> None:
    sample.logs()[0].unlink()
    report = document(sample, "repair", "--yes", code=20)
    assert [(item["what"], item["accept_loss"], item["outcome"]) for item in report["actions"]] == [
        ("give-up-log", True, None)
    ]
    assert "needs a copy, or --accept-loss" in run(sample, "repair", "--yes", code=20).stdout
    assert document(sample, "repair", "--yes", "--accept-loss")["damage_left"] == []


def test_repair_takes_a_folder_with_copies(sample: Sample) -> None:
    folder = str(shutil.copytree(sample.root / "store", sample.root.with_name("restored")))
    flip(sample.logs()[1], 2000)
    plan = document(sample, "repair", "--dry-run", "--from", folder, code=20)
    assert [item["what"] for item in plan["actions"]] == ["restore-log"]
    assert document(sample, "repair", "--yes", "--from", folder)["damage_left"] == []
    assert run(sample, "repair", "--yes", "--from", f"{folder}/nothing", code=2).exit_code == 2


def test_an_action_that_fails_is_said_and_ends_with_1(sample: Sample) -> None:
    shutil.copy(sample.logs()[0].with_suffix(".toc"), sample.logs()[1].with_suffix(".toc"))
    with sample.repository().writer():  # who lives holds the lock
        flip(sample.root / "disk1/main/STATE", 40)
        report = document(sample, "repair", "--yes", code=1)
    errors = {item["what"]: item["error"] for item in report["actions"]}
    assert errors["rewrite-toc"] is None
    assert "lock" in errors["restore-state"].lower() or "held" in errors["restore-state"].lower()


def test_the_scrub_and_what_it_knows(sample: Sample) -> None:
    assert document(sample, "verify", "--last")["last_run_ms"] is None
    assert document(sample, "status")["scrub"] is None
    run(sample, "scrub", "--bytes", "1")
    flip(sample.logs()[1], 2000)
    report = document(sample, "scrub", "--all", code=20)
    assert [item["kind"] for item in report["findings"]] == ["log-damaged"]
    assert document(sample, "verify", "--last", code=20)["findings"] == report["findings"]
    status = document(sample, "status")["scrub"]
    assert (status["damaged"], status["is_behind"], status["round"]) == (1, False, 1)
    assert "last scrub" in run(sample, "status").stdout
