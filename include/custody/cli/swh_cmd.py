"""`custody swh`: Software Heritage's provenance tables: a graph of one's own code, a build, and questions to it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from custody.cli.output import clean, json_option, print_json, stderr
from custody.cli.software import print_first, print_occurrences
from custody.cli.swh_serve_cmd import serve
from custody.config import load_settings
from custody.repository import Repository
from custody.spark.submit import run_job
from custody.swh import Swhid, import_git
from custody.swh.build import NODE_FILTERS
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


@swh.command()
@click.argument("graph", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--name", required=True, help="Name of the build; a build that was interrupted goes on under its name.")
@click.option(
    "--node-filter", type=click.Choice(NODE_FILTERS), default="heads", show_default=True, help="Which revisions count."
)
@click.option("--verbose", "-v", is_flag=True, help="Show Spark's log.")
@click.pass_obj
def build(repository: Path, graph: Path, name: str, node_filter: str, verbose: bool) -> None:
    """Build the tables of the graph in the folder GRAPH on Spark, and publish them.

    With the filter `heads` the revisions count that a branch, a tag or a release points at, and with `all` every one.

    \b
    Example:
      custody -r demo swh build graph --name 2026-03
    """
    talk = stderr()

    def on_line(line: str) -> None:
        if verbose or line.startswith('{"step":'):
            talk.print(clean(line))

    arguments = ["--graph", str(graph.absolute()), "--build", name, "--node-filter", node_filter]
    code, tail = run_job("swh_all", load_settings(repository), on_line, os.environ, arguments=arguments)
    for line in tail if code and not verbose else ():
        talk.print(clean(line))
    sys.exit(code)


@swh.command()
@click.argument("swhids", metavar="SWHID...", nargs=-1, required=True)
@click.option(
    "--all", "every", is_flag=True, help="Of a content, all revisions and releases that hold it, oldest first."
)
@click.option("--limit", type=click.IntRange(min=1), help="With --all, the oldest so many.")
@click.option("--revision", type=click.IntRange(min=0), help="Ask the database of this revision of its catalog.")
@json_option
@click.pass_obj
def whereis(
    repository: Path, swhids: tuple[str, ...], every: bool, limit: int | None, revision: int | None, as_json: bool
) -> None:
    """Print where contents and directories were first: revision or release, date, origin.

    \b
    Example:
      custody -r demo swh whereis swh:1:cnt:$(git hash-object README.md)
    """
    asked = [Swhid.parse(text) for text in swhids]
    database = Repository.open(repository).software(revision)
    if every:
        print_occurrences({swhid: database.occurrences(swhid, limit) for swhid in asked}, as_json)
    else:
        found = [database.whereis(asked[0])] if len(asked) == 1 else database.whereare(asked)
        print_first(found, as_json)


swh.add_command(serve)
