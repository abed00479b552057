"""The end of a command: an error becomes one line or one JSON object on stderr, and an exit code of its own.

A reader that went away (`| head`) and Ctrl-C are no errors of custody: the former ends the command without a word, the
latter with one line.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from custody.cli.groups import LazyGroup
from custody.errors import CustodyError, ExitCode, StorageError

if TYPE_CHECKING:
    from custody.query import QueryError

_INTERRUPTED = "interrupted; what was done until then is kept."


class InterruptedByUser(Exception):
    """Ctrl-C, SIGINT."""


class OutputUnread(Exception):
    """Nobody reads the output any more."""


class Program(LazyGroup):
    """The program: whatever becomes of a command, it ends in the same way."""

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
        words = list(sys.argv[1:] if args is None else args)
        # Looked for by hand: an error of usage is to be JSON too, and then no option was parsed.
        options = words[: words.index("--")] if "--" in words else words

        def run() -> object:
            return super(Program, self).main(words, prog_name, complete_var, standalone_mode=False, **extra)

        sys.exit(_run_reported(run, as_json="--json" in options))

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,  # noqa: ANN401
    ) -> click.Context:
        """Read the program's own options; help is printed here, and nobody may read it."""
        try:
            return super().make_context(info_name, args, parent, **extra)
        except BrokenPipeError as error:
            raise OutputUnread from error

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401
        """Run a command; what click would end in its own way is renamed."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise InterruptedByUser from error
        except BrokenPipeError as error:
            raise OutputUnread from error


def _run_reported(run: Callable[[], object], *, as_json: bool) -> int:
    """Return the exit code of a command; an error is reported."""
    try:
        try:
            result = run()
        finally:
            # Here and not when Python ends, where an error could no longer be reported.
            _flush_stdout()
    except OutputUnread:
        # The reader went away on purpose: no message, only the exit code.
        _discard_stdout()
        return ExitCode.OUTPUT_UNREAD
    except (InterruptedByUser, click.Abort):
        failure = _failure("Interrupted", "interrupted", _INTERRUPTED, "", ExitCode.INTERRUPTED)
        _report(failure, None, as_json=as_json)
    except CustodyError as error:
        failure = _failure_of_custody(error)
        _report(failure, error, as_json=as_json)
    except click.ClickException as error:
        failure = _failure_of_usage(error)
        _report(failure, error, as_json=as_json)
    except OSError as error:
        failure = _failure_of_custody(StorageError(_reason(error)))
        _report(failure, error, as_json=as_json)
    else:
        return result if isinstance(result, int) else 0
    code: int = failure["exit_code"]
    return code


def _flush_stdout() -> None:
    """Write what is still in the buffer while there is somebody to tell that it cannot be written."""
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputUnread from error


def _discard_stdout() -> None:
    """Let what is still in the buffer go nowhere: Python would complain about it when it ends."""
    with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def _failure(name: str, kind: str, message: str, hint: str, exit_code: int) -> dict[str, Any]:
    """Return an error for programs: the object that --json prints."""
    return {"type": name, "kind": kind, "message": message, "hint": hint, "exit_code": exit_code}


def _failure_of_custody(error: CustodyError) -> dict[str, Any]:
    # A class that only one room knows is named by the documented class that it derives from.
    name = next(item.__name__ for item in type(error).__mro__ if item.__module__ == CustodyError.__module__)
    failure = _failure(name, error.kind, _as_utf8(str(error)), _as_utf8(error.hint), error.exit_code)
    query_error = _query_error(error)
    if query_error is not None:
        failure |= {"query": _as_utf8(query_error.text), "column": query_error.at + 1}
    return failure


def _query_error(error: Exception | None) -> QueryError | None:
    """Return an error of the query language as such; the language is not imported for other errors."""
    tree = sys.modules.get("custody.query.syntax_tree")
    return error if tree is not None and isinstance(error, tree.QueryError) else None


def _failure_of_usage(error: click.ClickException) -> dict[str, Any]:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = "" if context is None else f"Try '{context.command_path} --help' for help."
    return _failure(type(error).__name__, "usage", _as_utf8(error.format_message()), hint, error.exit_code)


def _reason(error: OSError) -> str:
    reason = error.strerror or os.strerror(error.errno or errno.EIO)
    return f"{error.filename}: {reason}." if error.filename else f"{reason}."


def _as_utf8(text: str) -> str:
    """Return a text that UTF-8 can hold; arguments may bring bytes that are no text."""
    return text.encode("utf-8", "replace").decode()


def _report(failure: dict[str, Any], error: Exception | None, *, as_json: bool) -> None:
    with suppress(BrokenPipeError):
        _print(failure, error, as_json=as_json)


def _print(failure: dict[str, Any], error: Exception | None, *, as_json: bool) -> None:
    # Imported here: `custody --help` reports no error and needs no rich.
    from custody.cli.output import clean, json_text

    if as_json:
        click.echo(json_text(failure), err=True)
    elif isinstance(error, click.ClickException):
        error.show()
    else:
        click.echo(clean(f"custody: {' '.join(failure['message'].splitlines())}").plain, err=True)
        query_error = _query_error(error)
        if query_error is not None and sys.stderr.isatty():
            for line in query_error.pointed():
                click.echo(clean(f"  {line}").plain, err=True)
