"""The page about replay: its example runs, and its tables name what there is."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.errors import BackpressureError, ConflictError, InvalidInputError
from custody.flowfile_repository import REPLAY_DAYS
from custody.replay import RefusalCode
from custody.repository import Repository
from tests.docs.pages import examples, read, section, table

PAGE = read("replay.md")
PRINTED = "1 7 {'orders': 1}\n1 {'orders': 'sort_orders'}\n0\ntrue b'17,late'\n"


def test_the_example_runs_and_prints_what_it_should(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Repository.create("provenance")
    exec(compile(examples(PAGE)["plan"], "replay.md: plan", "exec"), {"__name__": "example"})  # noqa: S102
    assert capsys.readouterr().out == PRINTED


def test_every_code_is_in_the_table_in_the_order_in_which_it_is_looked_for() -> None:
    rows = table(PAGE, "code | why | what to do")
    assert [row[0] for row in rows] == [code.value for code in RefusalCode]


def test_the_exit_codes_of_a_run_are_those_of_its_errors() -> None:
    text = section(PAGE, "## A plan, and its run")
    for error in (BackpressureError, InvalidInputError, ConflictError):
        assert f"exit code {error.exit_code}" in text
    assert f"older than {REPLAY_DAYS} days" in text


def test_every_parameter_of_the_dag_is_in_the_table() -> None:
    source = (Path(__file__).resolve().parents[2] / "dags/provenance_replay.py").read_text()
    rows = table(PAGE, "parameter | meaning")
    assert [row[0] for row in rows] == [
        line.strip().partition(":")[0].strip('"') for line in source.splitlines() if '": Param(' in line
    ]
