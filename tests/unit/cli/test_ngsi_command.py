"""`custody ngsi check`: verdicts for people and machines, exit codes, and files that cannot be used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli

CASE = {
    "id": "mine",
    "title": "one line",
    "config": {"hdfs_username": "u"},
    "headers": {"Content-Type": "application/json"},
    "body": {"data": [{"id": "a", "type": "T", "x": {"type": "Number", "value": 1}}]},
    "expect": {"status": 200},
    "alternates": [{"profile": "other", "status": 500}],
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["ngsi", "check", *map(str, arguments)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cases.json"
    path.write_text(json.dumps([CASE, {**CASE, "id": "bad", "expect": {"status": 404}}]))
    return path


def test_a_case_that_comes_out_is_counted_and_one_that_does_not_is_shown(file: Path) -> None:
    result = run(file)
    assert result.exit_code == 1
    assert result.stdout == (
        "bad  one line\n    status: expected 404, got 200\n2 cases, 2 checked against expect: 1 as expected, 1 not\n"
    )
    assert run(file, "--case", "mine").exit_code == 0


def test_machines_get_a_verdict_a_case(file: Path) -> None:
    document = json.loads(run(file, "--json").stdout)
    assert (document["profile"], document["passed"], document["failed"]) == ("expect", 1, 1)
    assert document["cases"][1] == {
        "id": "bad",
        "title": "one line",
        "checked": True,
        "passed": False,
        "differences": ["status: expected 404, got 200"],
    }


def test_without_a_file_the_shipped_cases_run() -> None:
    result = run("--case", "REQ-01", "--case", "MOD-01")
    assert (result.exit_code, result.stdout) == (0, "2 cases, 2 checked against expect: 2 as expected, 0 not\n")


def test_a_profile_is_another_system(file: Path) -> None:
    result = run(file, "--profile", "other")
    assert result.exit_code == 1
    assert "0 as expected, 2 not" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--profile", "third"], 11, "--profile third: expected expect, other"),
        (["--case", "none"], 11, "--case none: expected the id of one of the 2 cases"),
    ],
)
def test_what_does_not_exist_is_named(file: Path, arguments: list[str], code: int, says: str) -> None:
    result = run(file, *arguments)
    assert result.exit_code == code
    assert says in result.stderr


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    result = run(tmp_path / "missing.json")
    assert result.exit_code == 17
    assert f"{tmp_path / 'missing.json'}: expected a file of cases" in result.stderr
    (tmp_path / "bad.json").write_text("{}")
    result = run(tmp_path / "bad.json")
    assert result.exit_code == 13
    assert "bad.json: expected an array of cases" in result.stderr
