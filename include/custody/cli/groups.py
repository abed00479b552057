"""Command groups: the program, which imports a command's module when the command is used, and the groups within it.

`custody --help` and shell completion need names and short helps only. The program has them beside the place of each
command, so that neither pyarrow nor pydantic is imported for them; a test holds the texts to those of the commands.

Every command takes `--repository`, named before the command or behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

_REPOSITORY = "repository"
_WITHOUT_REPOSITORY = {"sample", "restore", "import-git", "import-export"}
_SENTENCE_MAX = 1000


@dataclass(frozen=True, slots=True)
class CommandPlace:
    """The place of a command, and its help in one line."""

    module: str
    attribute: str
    short_help: str


class CommandGroup(click.Group):
    """A group whose help has the whole first sentence of each command, which click would cut."""

    def short_helps(self) -> dict[str, str]:
        """Return the one-line help of each command, sorted by the commands' names."""
        return {name: command.get_short_help_str(_SENTENCE_MAX) for name, command in sorted(self.commands.items())}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self.short_helps().items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands that begin with a text, then the options that do."""
        commands = [
            CompletionItem(name, help=text) for name, text in self.short_helps().items() if name.startswith(incomplete)
        ]
        # Not that of the group, which would import every command.
        return commands + click.Command.shell_complete(self, ctx, incomplete)


class LazyGroup(CommandGroup):
    """A group that imports the module of a command when the command is used.

    Args:
        places: of each command, by its name.
    """

    def __init__(self, *args: Any, places: Mapping[str, CommandPlace], **options: Any) -> None:  # noqa: ANN401 - click's
        super().__init__(*args, **options)
        self.places = places

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(self.places)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command of its module; None where there is none of that name."""
        place = self.places.get(cmd_name)
        if place is not None and cmd_name not in self.commands:
            # Once for each process: the option below must not be added twice.
            command: click.Command = getattr(import_module(place.module), place.attribute)
            _add_repository_option(command)
            self.add_command(command, cmd_name)
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the first argument names; the error for an unknown name suggests a close one."""
        name = args[0]
        if name not in self.places and name[:1].isalnum() and not ctx.resilient_parsing:
            # click compares with the commands that were imported, not with all.
            close = get_close_matches(name, self.places, n=1)
            ctx.fail(f"No such command {name!r}." + (f" Did you mean {close[0]!r}?" if close else ""))
        return super().resolve_command(ctx, args)

    def short_helps(self) -> dict[str, str]:
        """Return the one-line help of each command."""
        return {name: self.places[name].short_help for name in sorted(self.places)}


def _add_repository_option(command: click.Command) -> None:
    """Give a command, or the commands of a group, the option --repository that the program has."""
    if command.name in _WITHOUT_REPOSITORY:
        return
    option = click.Option(
        ["--repository", "-r", "named_behind"],
        type=click.Path(path_type=Path),
        expose_value=False,
        callback=_take_repository,
        help="Folder of the repository.",
    )
    command.params.append(option)
    if isinstance(command, click.Group):
        for inner in command.commands.values():
            _add_repository_option(inner)


def _take_repository(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is None:
        return
    program = ctx.find_root()
    is_named = program.get_parameter_source(_REPOSITORY) is ParameterSource.COMMANDLINE
    if is_named and ctx.obj != value:
        raise click.UsageError(f"the repository is named twice: {ctx.obj} and {value}")
    program.set_parameter_source(_REPOSITORY, ParameterSource.COMMANDLINE)
    ctx.obj = value
