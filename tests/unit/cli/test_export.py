"""`custody export`: a run, a follower that is told to end, how far it is, what was refused."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from click.testing import CliRunner

from custody.cli.main import cli
from custody.errors import ExitCode
from tests.support import INCLUDE, append, event
from tests.unit.export.receivers import Answer, http_inbox
from tests.unit.export.test_export_run import made, written


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(cli, [*map(str, arguments)])
    return result.exit_code, result.output


def failure(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [*map(str, arguments)])
    assert result.exit_code != 0
    return result.stderr


def test_it_delivers_and_says_how_far_it_is(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    append(repository, [event(number) for number in range(5)])
    code, text = run("-r", tmp_path / "r", "export", "--list", "--json")
    assert (code, json.loads(text)[0]["waiting"]) == (0, 5)
    code, text = run("-r", tmp_path / "r", "export", "--json")
    assert (code, json.loads(text)[0]["delivered"]) == (0, 5)
    code, text = run("-r", tmp_path / "r", "export", "box", "--rewind", "main:3", "--json")
    assert (code, json.loads(text)["next_event_ids"]) == (0, {"main": 3})
    code, text = run("-r", tmp_path / "r", "export")
    assert (code, written(repository)) == (0, [0, 1, 2, 3, 4, 3, 4])


def test_mistakes_are_named(tmp_path: Path) -> None:
    made(tmp_path / "r")
    root = tmp_path / "r"
    assert "expected a writer" in failure("-r", root, "export", "box", "--rewind", "a:1")
    assert run("-r", root, "export", "--follow", "--list")[0] == ExitCode.USAGE
    assert "no export 'bax'" in failure("-r", root, "export", "bax")


def test_refused_events_make_the_command_fail_until_they_are_taken(tmp_path: Path) -> None:
    is_mended = False

    def answer(_method: str, _path: str, body: bytes) -> Answer:
        refused = not is_mended and any(item["eventOrdinal"] == 2 for item in json.loads(body))
        return (400, {}, b"no") if refused else (200, {}, b"")

    with http_inbox(answer) as inbox:
        repository = made(tmp_path / "r", kind="http", url=inbox.url)
        append(repository, [event(number) for number in range(4)])
        assert run("-r", tmp_path / "r", "export")[0] == ExitCode.SOME_WORK_FAILED
        is_mended = True
        code, text = run("-r", tmp_path / "r", "export", "box", "--resend", "--json")
        assert (code, json.loads(text)[0]["delivered"]) == (0, 1)
        assert list(repository.quarantine.entries()) == []


def test_a_follower_delivers_what_comes_and_ends_well_when_it_is_told_to(tmp_path: Path) -> None:
    repository = made(tmp_path / "r")
    program = Path(sys.executable).with_name("custody")
    command = [str(program), "-r", str(tmp_path / "r"), "export", "--follow", "--poll", "0.05"]
    with subprocess.Popen(
        [*command, "--json"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(INCLUDE)}
    ) as process:
        with repository.writer() as writer:
            for number in range(3):
                writer.append([event(number)])
                until = time.monotonic() + 30
                while len(written(repository)) <= number:
                    assert time.monotonic() < until, "not delivered in time"
                    assert process.poll() is None
                    time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        text, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(text)[0]["delivered"] == 3
    assert written(repository) == [0, 1, 2]
