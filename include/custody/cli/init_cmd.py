"""`custody init`: a new repository."""

from __future__ import annotations

from pathlib import Path

import click

from custody.repository import Repository


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.pass_obj
def init(repository: Path, folder: Path | None) -> None:
    """Make a repository in FOLDER (or in --repository).

    \b
    Example:
      custody init demo
    """
    created = Repository.create(folder or repository)
    click.echo(f"made a repository in {created.settings.root}; its settings are in custody.toml", err=True)
