"""The end of a command: one line or one JSON object, and the exit code that scripts expect of a program."""

from __future__ import annotations

import errno
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from custody.cli.main import cli
from custody.errors import ConfigurationError, InvalidInputError, LockedError, NotFoundError
from custody.repository import Repository
from tests import forks
from tests.docs.update import error_classes

# Signals as a terminal has them: what is started in the background of a script inherits that Ctrl-C is ignored.
_INTERRUPTIBLE = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
CUSTODY = [sys.executable, "-c", "from custody.cli.main import main; main()"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3] / "include")}


def run(*arguments: object) -> Result:
    result = CliRunner().invoke(cli, [*map(str, arguments)])
    assert isinstance(result.exception, SystemExit | None), result.exception
    return result


def failure(result: Result) -> dict[str, object]:
    document: dict[str, object] = json.loads(result.stderr.splitlines()[-1])
    assert document["exit_code"] == result.exit_code
    assert result.stdout == ""
    return document


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("event", 10**6), NotFoundError),
        (("lineage", "nobody"), NotFoundError),
        (("search", "evnt_type:SEND"), InvalidInputError),
        (("search", "--structured", "{}{}"), InvalidInputError),
        (("events", "--writer", "../x"), ConfigurationError),
        (("catalog", "at", "x"), ConfigurationError),
        (("verify", "--writer", "nobody"), NotFoundError),
    ],
)
def test_with_json_an_error_is_an_object_on_stderr(
    live: Repository, arguments: tuple[object, ...], error: type[NotFoundError]
) -> None:
    plain = run("-r", live.settings.root, *arguments)
    document = failure(run("-r", live.settings.root, *arguments, "--json"))
    assert (document["type"], document["kind"], document["exit_code"]) == (error.__name__, error.kind, error.exit_code)
    assert f"custody: {document['message']}" == plain.stderr.rstrip("\n")
    assert document["hint"]


def test_with_json_a_query_s_error_says_where(live: Repository) -> None:
    error = failure(run("-r", live.settings.root, "search", "event_type:SEND AND", "--json"))
    assert (error["query"], error["column"]) == ("event_type:SEND AND", 20)
    assert "AND stands between" in str(error["hint"])


def test_with_json_wrong_usage_is_an_object_too(live: Repository) -> None:
    error = failure(run("-r", live.settings.root, "search", "--json", "-n", "x"))
    assert (error["type"], error["kind"], error["exit_code"]) == ("BadParameter", "usage", 2)
    assert error["hint"] == "Try 'cli search --help' for help."
    assert failure(run("search", "--json", "--nonsense"))["kind"] == "usage"
    # Behind -- it is a text to look for, and no option.
    assert run("search", "-n", "x", "--", "--json").stderr.startswith("Usage: ")


def test_text_that_is_no_unicode_ends_with_a_message(live: Repository) -> None:
    text = os.fsdecode(b"\xe9.csv")
    for options in ((), ("--json",)):
        result = run("-r", live.settings.root, "search", text, *options)
        assert result.exit_code == InvalidInputError.exit_code
        assert "no Unicode" in result.stderr


def test_every_class_of_errors_but_the_base_has_a_hint() -> None:
    assert [item.__name__ for item in error_classes() if not item.hint] == ["CustodyError"]


def test_a_file_that_the_system_refuses_ends_with_its_code_and_not_with_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = run("sample", tmp_path / "file" / "folder", "--events", 1)
    assert result.exit_code == 17
    assert result.stderr.startswith("custody: ")
    assert os.strerror(errno.ENOTDIR) in result.stderr or "exists" in result.stderr


def test_ctrl_c_ends_with_130_and_a_line(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _INTERRUPTIBLE + CUSTODY[2], "sample", str(tmp_path / "landing")]
    with subprocess.Popen(
        [*command, "--events", "100000000"], env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            while not any(tmp_path.rglob("*.json*")) and process.poll() is None:
                time.sleep(0.02)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()  # it would go on for hours
    assert process.returncode == 130
    assert said == "custody: interrupted; what was done until then is kept.\n"


@pytest.mark.parametrize("options", [["--json"], ["--nifi"]])
def test_a_reader_that_goes_away_ends_a_command_quietly(live: Repository, options: list[str]) -> None:
    command = [*CUSTODY, "-r", str(live.settings.root), "events", "-n", "600", *options]
    with forks.Popen(command, env=ENVIRONMENT, stdout=forks.PIPE, stderr=forks.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, b"")


@pytest.mark.parametrize("options", [["--json"], []])
def test_a_reader_of_little_that_goes_away_is_noticed_too(live: Repository, options: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # before the command starts: one that is only about to go could still take what little there is
    command = [*CUSTODY, "-r", str(live.settings.root), "event", "1", *options]
    with open(writer, "wb") as output:
        process = forks.run(command, env=ENVIRONMENT, stdout=output, stderr=forks.PIPE, check=False)
    assert (process.returncode, process.stderr) == (141, b"")


def test_a_terminal_shows_the_place_of_a_mistake(live: Repository) -> None:
    ours, theirs = pty.openpty()
    command = [*CUSTODY, "-r", str(live.settings.root), "search", "event_type:SEND AND event_type:SNED"]
    with forks.Popen(command, env=ENVIRONMENT, stderr=theirs) as process:
        process.wait(60)
    os.close(theirs)
    said = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert said[0].startswith("custody: query, column 32: unknown event type 'SNED'")
    assert said[-2:] == ["  event_type:SEND AND event_type:SNED", " " * 33 + "^"]


@pytest.mark.parametrize("option", ["-r", "--repository"])
def test_the_repository_may_be_named_behind_the_command(live: Repository, tmp_path: Path, option: str) -> None:
    root = str(live.settings.root)
    assert json.loads(run("status", "--json", option, root).stdout)["root"] == root
    assert json.loads(run("catalog", "log", option, root, "--json").stdout)
    assert json.loads(run("catalog", option, root, "log", "--json").stdout)
    assert run("init", option, tmp_path / "new").exit_code == 0
    assert json.loads(run(option, root, "status", option, root, "--json").stdout)["root"] == root
    twice = run(option, tmp_path, "status", option, root)
    assert twice.exit_code == 2
    assert "named twice" in twice.stderr


def test_a_lock_that_another_holds_is_an_object_with_a_hint(repository: Repository) -> None:
    with repository.writer():
        error = failure(run("-r", repository.settings.root, "quarantine", "resubmit", "0" * 16, "--json"))
    assert (error["type"], error["hint"]) == ("LockedError", LockedError.hint)
