"""Options that several commands have: --json, --writer, --dry-run, and values that are spans of time."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from custody.errors import EarlierStateError

if TYPE_CHECKING:
    from custody.read.time_travel import AsOf
    from custody.repository import ProvenanceRepository, Repository

_PLAIN_NUMBER = re.compile(r"\d{1,9}(\.\d+)?")
Command = TypeVar("Command", bound=Callable[..., Any])


class Duration(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.2 on alone
    """A span of time such as `90s`, `24h` or `7 days`, which becomes a number of milliseconds.

    Args:
        plain_unit: the unit of a number without one; such a number is refused where there is none.
        least_ms: the shortest span.
    """

    name = "duration"

    def __init__(self, plain_unit: str = "", least_ms: int = 0) -> None:
        self._plain_unit = plain_unit
        self._least_ms = least_ms

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the milliseconds of a span.

        Raises:
            click.BadParameter: it is none, or too short.
        """
        # Imported here: the settings bring pydantic along, which help does not need.
        from custody.config.parsing import duration_ms

        if isinstance(value, int):
            return value
        try:
            if self._plain_unit and _PLAIN_NUMBER.fullmatch(value):
                span = round(float(value) * duration_ms(f"1{self._plain_unit}"))
            else:
                span = duration_ms(value)
        except ValueError as error:
            self.fail(f"{error}.", param, ctx)
        if span < self._least_ms:
            self.fail(f"expected at least {self._least_ms} ms, got {value!r}.", param, ctx)
        return span


DURATION = Duration()


def answering(repository: Path) -> ProvenanceRepository:
    """Open a repository, whoever answers for it, for a command that prints events; raises as `open_repository`."""
    # Imported here: help opens no repository.
    from custody.repository import Repository, open_repository

    opened = open_repository(repository)
    return _telling_of_earlier(opened).answering() if isinstance(opened, Repository) else opened


def _telling_of_earlier(opened: Repository) -> Repository:
    end_as_earlier_where(lambda: bool(opened.earlier_states()))
    return opened


def end_as_earlier_where(is_earlier: Callable[[], bool]) -> None:
    """Let the command end with the code of EarlierStateError where its answer was made of an earlier state."""

    def leave() -> None:
        # An error that ends the command has a code of its own.
        if sys.exc_info()[0] is None and is_earlier():
            raise click.exceptions.Exit(EarlierStateError.exit_code)

    context = click.get_current_context(silent=True)
    if context is not None:
        context.call_on_close(leave)


def answering_own(repository: Path) -> Repository:
    """Open a repository of custody's own for a command that prints events; raises as `Repository.open`."""
    from custody.repository import Repository

    return _telling_of_earlier(Repository.open(repository)).answering()


def json_option(command: Command) -> Command:
    """Give a command the option --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def writer_option(command: Command) -> Command:
    """Give a command the option --writer."""
    text = "Whose events are meant; needed where several writers have such."
    return click.option("--writer", "-w", help=text)(command)


def as_of_option(command: Command) -> Command:
    """Give a command the option --as-of, a revision or a moment."""

    def parse(_: click.Context, __: click.Parameter, text: str | None) -> AsOf | None:
        # Imported here, as help does not need it.
        from custody.read.time_travel import parse_as_of

        return None if text is None else parse_as_of(text)

    text = "Among the events that were live then; WRITER:REVISION,… names a revision of each writer."
    return click.option("--as-of", metavar="TIME|REVISION", callback=parse, help=text)(command)


def whole_option(command: Command) -> Command:
    """Give a command the option --whole."""
    text = "Print attributes whole, also those beyond query.attribute_characters_max."
    return click.option("--whole", is_flag=True, help=text)(command)


def dry_run_option(command: Command) -> Command:
    """Give a command the option --dry-run."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)
