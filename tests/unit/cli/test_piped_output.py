"""Output that goes to no terminal, or is read in part: no escape sequences, and a quiet end when the reader leaves."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from custody.errors import ExitCode
from custody.repository import Repository
from tests import forks

INCLUDE = Path(__file__).parents[3] / "include"
COMMAND = (sys.executable, "-c", "from custody.cli.main import main; main()")
ESCAPE = b"\x1b"
STYLE = re.compile(rb"\x1b\[[0-9;:]*m")
# A terminal of many colours, and none of the variables that switch colours off or on.
ENVIRONMENT = {
    name: value
    for name, value in os.environ.items()
    if name not in ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "TTY_COMPATIBLE", "COLUMNS")
} | {"PYTHONPATH": str(INCLUDE), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
CASES = (
    ("status", 0),
    ("status --json", 0),
    ("search event_type:SEND", 0),
    ("search event_type:SEND --json", 0),
    ("verify", 0),
    ("lineage 0", 0),
    ("--help", 0),
    ("event 999999", 12),
    ("search nosuch:field", 13),
    ("nosuch", 2),
    ("-r {absent} status", 12),
)


def command(root: Path, words: str) -> list[str]:
    return [*COMMAND, "-r", str(root), *words.format(absent=root / "absent").split()]


def on_terminal(arguments: list[str], environment: dict[str, str]) -> tuple[int, bytes]:
    """The exit code of a command on a terminal, and what it printed there."""
    ours, theirs = pty.openpty()
    with forks.Popen(arguments, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        printed = b"".join(_chunks(ours))
    os.close(ours)
    return process.returncode, printed


def _chunks(descriptor: int) -> Iterator[bytes]:
    # Linux ends the reading of a terminal that nobody has open any more with an error.
    with suppress(OSError):
        while chunk := os.read(descriptor, 1 << 16):
            yield chunk


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(("words", "code"), CASES)
def test_a_pipe_gets_no_escape_sequences(live: Repository, words: str, code: int) -> None:
    done = forks.run(
        command(live.settings.root, words), capture_output=True, env=ENVIRONMENT, stdin=forks.DEVNULL, check=False
    )
    assert done.returncode == code, done.stderr
    assert done.stdout + done.stderr
    assert ESCAPE not in done.stdout + done.stderr


@pytest.mark.in_parts(2)
@pytest.mark.parametrize(("words", "code"), CASES)
def test_no_color_takes_the_colours_from_a_terminal(live: Repository, words: str, code: int) -> None:
    ended, printed = on_terminal(command(live.settings.root, words), {**ENVIRONMENT, "NO_COLOR": "1"})
    assert ended == code, printed
    assert printed.strip()
    # What is left moves the cursor, for the bar of `verify`, which is gone at the end.
    assert not STYLE.search(printed)
    assert ESCAPE not in printed or words == "verify"


@pytest.mark.in_parts(2)
def test_a_reader_that_goes_away_ends_a_command_quietly(live: Repository) -> None:
    for words in ("status", "search", "search --json", "events", "events --json", "verify", "lineage 0", "--help"):
        arguments = command(live.settings.root, words)
        with forks.Popen(
            arguments, stdout=forks.PIPE, stderr=forks.PIPE, env=ENVIRONMENT, stdin=forks.DEVNULL
        ) as process:
            assert process.stdout is not None
            # Gone before the first byte, so that also the shortest output finds nobody.
            process.stdout.close()
            assert process.stderr is not None
            said = process.stderr.read()
        assert (process.returncode, said) == (ExitCode.OUTPUT_UNREAD, b""), words


def test_a_reader_that_has_seen_enough_ends_a_long_output_quietly(live: Repository) -> None:
    arguments = command(live.settings.root, "events --json")
    with forks.Popen(
        arguments, bufsize=0, stdout=forks.PIPE, stderr=forks.PIPE, env=ENVIRONMENT, stdin=forks.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        # One page, as little as Linux allows: the command is still printing when its reader leaves, as `head -1` does.
        fcntl.fcntl(process.stdout, fcntl.F_SETPIPE_SZ, 4096)
        assert process.stdout.readline().startswith(b'{"event_type":')
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (ExitCode.OUTPUT_UNREAD, b"")
