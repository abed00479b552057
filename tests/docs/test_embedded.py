"""The page about passes without Spark: its example runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from custody.recovery import STEPS
from custody.repository import Repository
from tests.docs.pages import examples, read

PAGE = read("embedded.md")


def test_the_example_runs_a_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Repository.create("provenance")
    exec(compile(examples(PAGE)["embedded"], "embedded.md", "exec"), {"__name__": "example"})  # noqa: S102
    *steps, live = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in steps] == list(STEPS)
    assert all(line.endswith(" 0") for line in steps)
    assert live == "1"
