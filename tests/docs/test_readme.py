"""README's commands do what it says they do, from top to bottom, in an empty folder."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.config import load_settings
from tests.docs.pages import ROOT, examples
from tests.docs.update import commands
from tests.support import run_steps

README = (ROOT / "README.md").read_text(encoding="utf-8")
USE = examples(README)["use"]
SPARK = ["custody", "run", "all"]


def lines(script: str) -> Iterator[list[str]]:
    for line in script.splitlines():
        yield shlex.split(line, comments=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Set once, so that what the script exports is taken back.
    monkeypatch.setenv("CUSTODY_REPOSITORY", "")
    return tmp_path


def test_its_commands_run_from_top_to_bottom_on_a_fresh_repository(folder: Path) -> None:
    outputs: dict[str, str] = {}
    for words in lines(USE):
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            os.environ[name] = value.replace("$PWD", str(folder))
        elif words == SPARK:  # the same steps, in this process
            run_steps(load_settings(folder / "provenance"))
        else:
            assert words[0] == "custody"
            result = CliRunner().invoke(cli, words[1:])
            assert result.exit_code == 0, (words, result.output)
            assert result.output.strip(), words
            outputs.setdefault(words[1], result.output)
    assert "5000" in outputs["status"]
    assert " events" in outputs["search"].splitlines()[0]
    assert not outputs["search"].startswith("0 ")
    assert "SEND" in outputs["sql"]
    assert outputs["verify"].splitlines()[-1].endswith("nothing wrong")
    forgotten = next(words for words in lines(USE) if "forget" in words)
    assert "flowfile_uuid" in outputs["event"]
    assert forgotten[3] in outputs["event"]
    assert CliRunner().invoke(cli, ["event", "42"]).exit_code == 12  # it was forgotten


@pytest.mark.slow
@pytest.mark.spark
def test_its_commands_run_as_they_stand_in_a_shell(folder: Path) -> None:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    del environ["CUSTODY_REPOSITORY"]
    done = subprocess.run(
        ["bash", "-eux", "-c", USE], cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=1200
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (folder / "head.json").is_file()


def test_every_command_that_it_names_exists_with_the_options_that_it_shows() -> None:
    known = dict(commands())
    for script in re.findall(r"```(?:sh)?\n(.*?)```", README, re.DOTALL):
        for words in lines(script.replace("'", "")) if "custody " in script and "─" not in script else ():
            if words[:1] != ["custody"]:
                continue
            name = max((name for name in known if f"{' '.join(words)} ".startswith(f"{name} ")), key=len)
            assert name != "custody", words
            options = {option for parameter in known[name].params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, words
