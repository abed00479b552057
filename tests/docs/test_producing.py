"""The page for producers: its examples run, and its tables name what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from custody.flow import Session
from custody.repository import Repository
from tests.docs.pages import examples, read, table

PAGE = read("producing.md")
PRINTED = {
    "batch": "main [0]\n",
    "stream": "three events of writer main\n",
    "session": "main ['FORK', 'ROUTE', 'DROP']\n",
    "content": "17 id,amount\n",
    "spool": "1\n",
    "columns": "",
    "threads": "",
    "names": "",
}


@pytest.mark.parametrize("name", list(examples(PAGE)))
def test_an_example_runs_and_prints_what_it_should(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Repository.create("provenance")
    exec(compile(examples(PAGE)[name], f"producing.md: {name}", "exec"), {"__name__": "example"})  # noqa: S102
    assert capsys.readouterr().out == PRINTED[name]


def test_every_method_of_a_session_is_in_the_table() -> None:
    listed = {name for row in table(PAGE, "method | tells") for name in re.split(r", ", row[0])}
    assert listed == {name for name in dir(Session) if not name.startswith("_") and callable(getattr(Session, name))}
