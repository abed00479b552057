"""How a command ends: every error becomes one line or one JSON object on stderr, and an exit code of its own."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
import msgspec

from custody.cli.output import clean, json_text
from custody.errors import CustodyError, StorageError
from custody.query import QueryError

USAGE = 2
INTERRUPTED = 130
"""128 and the number of SIGINT, as a shell says it of a program that the signal ended."""
UNREAD = 141
"""128 and the number of SIGPIPE: who read the output went away before its end."""

_SENTENCE_MAX = 1000
_INTERRUPTED = "interrupted; what was done until then is kept."


class Interrupted(Exception):
    """Ctrl-C, SIGINT."""


class Unread(Exception):
    """Nobody reads the output any more."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, for programs."""

    type: str
    kind: str
    message: str
    hint: str
    exit_code: int
    query: str | None = None
    column: int | None = None


class EndedGroup(click.Group):
    """A group whose commands all end in the same way, whatever becomes of them."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,  # noqa: ANN401 - click's signature
    ) -> Any:  # noqa: ANN401
        """Run a command and leave the program with its exit code; without `standalone_mode` as click does."""
        if not standalone_mode:
            return super().main(
                args, prog_name, complete_var, standalone_mode, windows_expand_args=windows_expand_args, **extra
            )
        given = list(sys.argv[1:] if args is None else args)
        options = given[: given.index("--")] if "--" in given else given

        def run() -> object:
            return super(EndedGroup, self).main(given, prog_name, complete_var, standalone_mode=False, **extra)

        sys.exit(_ended(run, as_json="--json" in options))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with the whole first sentence of each, which click would cut."""
        rows = [(name, command.get_short_help_str(_SENTENCE_MAX)) for name, command in sorted(self.commands.items())]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; what click would end in its own way is renamed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error
        except BrokenPipeError as error:
            raise Unread from error


def _ended(run: Callable[[], object], *, as_json: bool) -> int:
    """Return the exit code of a command; an error is reported."""
    try:
        try:
            found = run()
        finally:
            _flushed()
    except Unread:
        _turn_away()
        return UNREAD
    except (Interrupted, click.Abort):
        failure = Failure("Interrupted", "interrupted", _INTERRUPTED, "", INTERRUPTED)
        _report(failure, None, as_json=as_json)
    except CustodyError as error:
        failure = _failure(error)
        _report(failure, error, as_json=as_json)
    except click.ClickException as error:
        failure = _of_usage(error)
        _report(failure, error, as_json=as_json)
    except OSError as error:
        failure = _failure(StorageError(_refused(error)))
        _report(failure, error, as_json=as_json)
    else:
        return found if isinstance(found, int) else 0
    return failure.exit_code


def _flushed() -> None:
    """Write what waits in the buffer while there still is somebody to tell that it cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise Unread from error


def _turn_away() -> None:
    """Let what is still in the buffer go nowhere: Python would complain about it at its end."""
    with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _failure(error: CustodyError) -> Failure:
    # A class that only some room knows is told by the one that is documented.
    name = next(item.__name__ for item in type(error).__mro__ if item.__module__ == CustodyError.__module__)
    failure = Failure(name, error.kind, _valid(str(error)), _valid(error.hint), error.exit_code)
    if isinstance(error, QueryError):
        return msgspec.structs.replace(failure, query=_valid(error.text), column=error.at + 1)
    return failure


def _of_usage(error: click.ClickException) -> Failure:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = "" if context is None else f"Try '{context.command_path} --help' for help."
    return Failure(type(error).__name__, "usage", _valid(error.format_message()), hint, error.exit_code)


def _refused(error: OSError) -> str:
    reason = error.strerror or os.strerror(error.errno or errno.EIO)
    return f"{error.filename}: {reason}." if error.filename else f"{reason}."


def _valid(text: str) -> str:
    """Return a text that UTF-8 can hold; arguments may bring bytes that are no text."""
    return text.encode("utf-8", "replace").decode()


def _report(failure: Failure, error: Exception | None, *, as_json: bool) -> None:
    with suppress(BrokenPipeError):
        _print(failure, error, as_json=as_json)


def _print(failure: Failure, error: Exception | None, *, as_json: bool) -> None:
    if as_json:
        click.echo(json_text(failure), err=True)
    elif isinstance(error, click.ClickException):
        error.show()
    else:
        click.echo(clean(f"custody: {' '.join(failure.message.splitlines())}").plain, err=True)
        if isinstance(error, QueryError) and sys.stderr.isatty():
            for line in error.pointed():
                click.echo(clean(f"  {line}").plain, err=True)
