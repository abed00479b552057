"""The repository that a command works on: named before the command or behind it."""

from __future__ import annotations

from pathlib import Path

import click
from click.core import ParameterSource

_NAME = "repository"
_WITHOUT = {"sample", "import-git"}
"""Commands that need no repository."""


def takes_repository(group: click.Group) -> None:
    """Give all commands of a group, and their groups, the option --repository that the program has."""
    for command in group.commands.values():
        if command.name in _WITHOUT:
            continue
        option = click.Option(
            ["--repository", "-r", "named_behind"],
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_named,
            help="Folder of the repository.",
        )
        command.params.append(option)
        if isinstance(command, click.Group):
            takes_repository(command)


def _named(ctx: click.Context, _: click.Parameter, value: Path | None) -> None:
    if value is None:
        return
    program = ctx.find_root()
    is_named = program.get_parameter_source(_NAME) is ParameterSource.COMMANDLINE
    if is_named and ctx.obj != value:
        raise click.UsageError(f"the repository is named twice: {ctx.obj} and {value}")
    program.set_parameter_source(_NAME, ParameterSource.COMMANDLINE)
    ctx.obj = value
