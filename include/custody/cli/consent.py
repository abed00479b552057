"""The rule for commands that delete or overwrite: they show their plan and ask.

`--yes` does it without a question, `--dry-run` only shows the plan. Without a terminal there is nobody to ask: the plan
is shown, nothing is changed, and the command ends with a usage error that names `--yes`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from custody.cli.options import dry_run_option
from custody.errors import ExitCode


@dataclass(frozen=True, slots=True)
class Consent:
    """The user's consent to what a command is about to do."""

    yes: bool
    """Whether nobody has to be asked, nor shown the plan first."""
    dry_run: bool

    def ask(self, question: str) -> bool:
        """Return whether to go on; called when the plan was shown.

        With `--yes` the answer is yes, with `--dry-run` no, otherwise what the user says.

        Raises:
            click.UsageError: there is no terminal to ask on.
            click.exceptions.Exit: the user declined.
        """
        if self.yes or self.dry_run:
            return self.yes
        # A script must not hang at a question, nor delete without having been told to.
        if not is_terminal():
            raise click.UsageError("nothing was changed: --yes does it unasked, --dry-run only shows the plan.")
        # Asked on stderr, so that stdout has the data alone.
        if not click.confirm(question, err=True):
            click.echo("nothing was changed", err=True)
            raise click.exceptions.Exit(ExitCode.SOME_WORK_FAILED)
        return True


def is_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def asks_first(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options --yes and --dry-run, and the argument `consent` that they make."""

    @wraps(command)
    def asking(*args: Any, yes: bool, dry_run: bool, applied: bool, **options: Any) -> Any:  # noqa: ANN401 - any command's
        if (yes or applied) and dry_run:
            raise click.UsageError("give --yes or --dry-run, not both")
        return command(*args, consent=Consent(yes=yes or applied, dry_run=dry_run), **options)

    # `--apply` is what some of the commands called --yes.
    with_alias = click.option("--apply", "applied", is_flag=True, hidden=True)(asking)
    with_yes = click.option("--yes", is_flag=True, help="Do it without a question.")(with_alias)
    return dry_run_option(with_yes)
