"""`custody swh`: Software Heritage's provenance tables: a graph of one's own code, and questions to them."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.output import json_option, print_json, stderr
from custody.swh import import_git
from custody.vfs import PosixFileSystem


@click.group()
def swh() -> None:
    """Where was this content? The provenance tables of Software Heritage (docs/swh.md)."""


@swh.command("import-git")
@click.argument("repository_folder", metavar="REPO", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--origin", help="URL that the repository is known by.  [default: its file:// URL]")
@json_option
def import_git_command(repository_folder: Path, out: Path, origin: str | None, as_json: bool) -> None:
    """Write the graph of the git repository REPO to the new folder OUT.

    \b
    Example:
      custody swh import-git ~/code/project graph --origin https://example.org/project
    """
    made = import_git(PosixFileSystem(), repository_folder, out.absolute(), origin=origin)
    if as_json:
        print_json(made)
        return
    stderr().print(f"wrote {made.nodes} nodes and {made.edges} edges to {out}, origin {made.origin}", markup=False)
    if made.absent or made.submodules:
        stderr().print(f"left out: {made.absent} edges to absent objects, {made.submodules} submodules")
