"""The commands of README and of the tour do what these say, from top to bottom, in an empty folder."""

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
from tests.docs.pages import ROOT, examples
from tests.docs.update import commands

README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")
TOUR_COMMANDS = examples(TOUR)["use"]
START = examples(README)["start"].replace(" && ", "\n")


def lines(script: str) -> Iterator[list[str]]:
    for line in script.splitlines():
        yield shlex.split(line, comments=True)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    # Set once, so that what the script exports is taken back.
    monkeypatch.setenv("CUSTODY_REPOSITORY", "")
    return tmp_path


def _run(script: str, folder: Path) -> dict[str, str]:
    """Run the lines of an example in this process; return the first output of each command."""
    outputs: dict[str, str] = {}
    for words in lines(script):
        if words[0] == "export":
            name, _, value = words[1].partition("=")
            os.environ[name] = value.replace("$PWD", str(folder))
        else:
            assert words[0] == "custody"
            result = CliRunner().invoke(cli, words[1:])
            assert result.exit_code == 0, (words, result.output)
            assert result.output.strip(), words
            outputs.setdefault(words[1], result.output)
    return outputs


def test_the_tour_runs_from_top_to_bottom_on_a_fresh_repository(folder: Path) -> None:
    outputs = _run(TOUR_COMMANDS, folder)
    assert "5000" in outputs["status"]
    assert " events" in outputs["search"].splitlines()[0]
    assert not outputs["search"].startswith("0 ")
    assert "SEND" in outputs["sql"]
    assert outputs["verify"].splitlines()[-1].endswith("nothing wrong")
    forgotten = next(words for words in lines(TOUR_COMMANDS) if "forget" in words)
    assert "flowfile_uuid" in outputs["event"]
    assert forgotten[3] in outputs["event"]
    assert CliRunner().invoke(cli, ["event", "42"]).exit_code == 12  # it was forgotten


def test_the_five_commands_show_what_the_readme_shows(folder: Path) -> None:
    outputs = _run(START, folder)
    shown = re.search(r"```console\n(.*?)```", README, re.DOTALL)
    assert shown
    for line in shown[1].splitlines():
        if line.startswith("$ "):
            result = CliRunner(env={"COLUMNS": "200"}).invoke(cli, shlex.split(line)[2:])
            printed = {" ".join(row.split()) for row in result.output.splitlines()}
        elif line.strip("─ …"):
            assert " ".join(line.split()) in printed
    assert "nothing wrong" in outputs["verify"]


@pytest.mark.slow
def test_its_commands_run_as_they_stand_in_a_shell(folder: Path) -> None:
    environ = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    del environ["CUSTODY_REPOSITORY"]
    done = subprocess.run(
        ["bash", "-eux", "-c", TOUR_COMMANDS],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (folder / "head.json").is_file()


def test_every_command_that_they_name_exists_with_the_options_that_they_show() -> None:
    known = dict(commands())
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", README.replace(" && ", "\n") + TOUR, re.DOTALL | re.MULTILINE)
    for script in [text for language, text in fences if language in ("", "sh") and "─" not in text]:
        for words in lines(script.replace("'", "")):
            if words[:1] != ["custody"]:
                continue
            name = max((name for name in known if f"{' '.join(words)} ".startswith(f"{name} ")), key=len)
            assert name != "custody", words
            options = {option for parameter in known[name].params for option in parameter.opts}
            assert {word for word in words if word.startswith("--")} <= options, words
