"""`custody content`: contents reach files and pipes as they are, and a terminal only when they are harmless."""

import os
import pty
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
from click.testing import CliRunner

from custody.cli.main import cli
from custody.repository import Repository
from tests.support import event

CONTENTS = (b'{"a": 1}\n', b"\x1b]0;owned\x07", bytes(range(256)) * 3000)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("contents") / "repository"
    at = Repository.create(root)
    with at.writer() as writer:
        for number, body in enumerate(CONTENTS):
            writer.append_with_content([event(number)], body)
        writer.append([event(9)])
    return root


def run(repository: Path, *arguments: str) -> tuple[int, bytes, str]:
    result = CliRunner().invoke(cli, ["-r", str(repository), "content", *arguments])
    return result.exit_code, result.stdout_bytes, result.stderr


@pytest.mark.parametrize("number", range(len(CONTENTS)))
def test_a_pipe_and_a_file_get_the_content_as_it_is(repository: Path, number: int, tmp_path: Path) -> None:
    assert run(repository, "get", str(number)) == (0, CONTENTS[number], "")
    assert run(repository, "get", str(number), "-o", str(tmp_path / "out")) == (0, b"", "")
    assert (tmp_path / "out").read_bytes() == CONTENTS[number]


def test_a_file_that_exists_is_not_overwritten(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "out").write_bytes(b"mine")
    code, _, said = run(repository, "get", "0", "-o", str(tmp_path / "out"))
    assert (code, (tmp_path / "out").read_bytes()) == (11, b"mine")
    assert "exists already" in said


@pytest.mark.parametrize("arguments", [("get", "3"), ("get", "0", "--previous")])
def test_an_event_without_content_says_so(repository: Path, arguments: tuple[str, ...]) -> None:
    code, printed, said = run(repository, *arguments)
    assert (code, printed) == (12, b"")
    assert "has no claim" in said


def test_damage_ends_with_its_exit_code_and_leaves_no_file(repository: Path, tmp_path: Path) -> None:
    at = Repository.open(repository)
    path = at.content(at.get(0)).path
    whole = path.read_bytes()
    path.write_bytes(whole.replace(CONTENTS[0], b'{"a": 2}\n'))
    code, _, said = run(repository, "get", "0", "-o", str(tmp_path / "out"))
    path.write_bytes(whole)
    assert (code, list(tmp_path.iterdir())) == (20, [])
    assert f"{path} @" in said


def test_list_counts_contents(repository: Path) -> None:
    code, printed, _ = run(repository, "list", "--json")
    assert code == 0
    assert b'"contents":3' in printed


def test_clean_lists_what_no_event_speaks_of_and_deletes_it_when_asked(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    at = Repository.create(root)
    with at.writer() as writer:
        stored = writer.append_with_content([event(0)], b"kept")
        unused = at.content(writer.content.put(b"x" * (2 << 20)).claim).path
    assert run(root, "clean", "--json")[1].startswith(b'{"claims":[],')
    os.utime(unused, (1, 1))
    code, printed, said = run(root, "clean", "--dry-run")
    assert (code, unused.exists()) == (0, True)
    assert unused.name in printed.decode()
    assert "would be deleted" in said
    assert run(root, "clean", "--yes")[0] == 0
    assert not unused.exists()
    assert at.content(at.get(stored.start)).read() == b"kept"


def on_terminal(repository: Path, *arguments: str) -> tuple[int, bytes]:
    """Run the command with a real terminal as its stdout."""
    mine, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as terminal, patch.object(sys, "stdout", terminal):
        try:
            cli(["-r", str(repository), "content", *arguments])
        except SystemExit as end:
            code = int(end.code or 0)
    shown = b""
    while True:
        try:
            piece = os.read(mine, 4096)
        except OSError:
            break  # the other end is closed
        if not piece:
            break
        shown += piece
    os.close(mine)
    return code, shown


def test_a_terminal_gets_text_and_no_control_characters(repository: Path) -> None:
    assert on_terminal(repository, "get", "0") == (0, b'{"a": 1}\r\n')
    assert on_terminal(repository, "get", "1") == (11, b"")
    assert on_terminal(repository, "get", "1", "--raw") == (0, CONTENTS[1])
