"""`custody swh`: Software Heritage's provenance tables.

A git repository becomes a graph, a graph becomes the tables, and these are queried, here or over HTTP and gRPC.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack
from pathlib import Path

import click

from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import clean, print_json, stderr, working
from custody.cli.swh_output import print_first, print_occurrences
from custody.clock import SystemClock
from custody.config import load_settings
from custody.errors import ConfigurationError
from custody.extras import install_command
from custody.repository import Repository
from custody.spark.submit import run_job
from custody.swh import Swhid, import_export, import_git
from custody.swh.build import NODE_FILTERS
from custody.vfs import PosixFileSystem


@click.group(cls=CommandGroup)
def swh() -> None:
    """Where was this content? The provenance tables of Software Heritage (docs/swh.md)."""


@swh.command("import-export")
@click.argument("export", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--graph-version", required=True, help="Name of this version of the graph, such as 2024-12-06.")
@click.option(
    "--compressed",
    type=click.Path(path_type=Path),
    metavar="PREFIX",
    help="Files of the compressed graph, by the beginning of their names: ids and dates are taken from them.",
)
@click.option("--memory", default=4096, show_default=True, type=click.IntRange(64), help="MiB of memory for the joins.")
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1), help="Threads of the joins.")
@json_option
def import_export_command(
    export: Path, out: Path, graph_version: str, compressed: Path | None, memory: int, threads: int, as_json: bool
) -> None:
    """Write the graph of Software Heritage's graph export EXPORT to the new folder OUT.

    EXPORT is the folder `orc` (or `parquet`) of a dataset as it is published, with a folder for each table.

    \b
    Example:
      custody swh import-export 2024-12-06/orc graph --graph-version 2024-12-06 --compressed 2024-12-06/compressed/graph
    """
    with working("import"):
        imported = import_export(
            PosixFileSystem(),
            export.absolute(),
            out.absolute(),
            version=graph_version,
            compressed=None if compressed is None else compressed.absolute(),
            memory_bytes=memory << 20,
            threads=threads,
        )
    if as_json:
        print_json(imported)
        return
    stderr().print(
        f"wrote {imported.nodes} nodes and {imported.edges} edges to {out}, graph version {imported.version}",
        markup=False,
    )
    if imported.absent:
        stderr().print(
            f"left out: {imported.absent} edges of nodes that the compressed graph does not have; are the two of one "
            "version?"
        )


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
    imported = import_git(PosixFileSystem(), repository_folder, out.absolute(), origin=origin)
    if as_json:
        print_json(imported)
        return
    stderr().print(
        f"wrote {imported.nodes} nodes and {imported.edges} edges to {out}, origin {imported.origin}", markup=False
    )
    if imported.absent or imported.submodules:
        stderr().print(f"left out: {imported.absent} edges to absent objects, {imported.submodules} submodules")


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
    # With --verbose these lines were printed already.
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
    wanted_ids = [Swhid.parse(text) for text in swhids]
    database = Repository.open(repository).software(revision)
    if every:
        print_occurrences({swhid: database.occurrences(swhid, limit) for swhid in wanted_ids}, as_json)
    else:
        places = [database.whereis(wanted_ids[0])] if len(wanted_ids) == 1 else database.whereis_many(wanted_ids)
        print_first(places, as_json)


@swh.command()
@click.option("--host", help="Address to listen on, instead of swh.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of the REST service, instead of swh.port.")
@click.option("--grpc-port", type=click.IntRange(0, 65_535), help="Port of the gRPC service, instead of swh.grpc_port.")
@click.option("--quiet", "-q", is_flag=True, help="Write no line a request to stderr.")
@click.pass_obj
def serve(repository: Path, host: str | None, port: int | None, grpc_port: int | None, quiet: bool) -> None:
    """Answer where contents and directories were, over HTTP until SIGTERM.

    With a port for it also over gRPC, as the service of Software Heritage does (its clients use 50141). A
    build that is published meanwhile is answered from within half a minute.

    \b
    Example:
      custody -r demo swh serve --port 5060 --grpc-port 50141
    """
    # What serves takes a second to import, and only this command needs it.
    from custody.serving import checked_tokens
    from custody.serving import serve as serve_app
    from custody.serving.application import application
    from custody.serving.door import Services
    from custody.serving.serving_access import access_alone
    from custody.serving.swh_door import SwhDoor

    at = Repository.open(repository)
    overrides = {
        name: value for name, value in (("host", host), ("port", port), ("grpc_port", grpc_port)) if value is not None
    }
    settings = at.settings.model_copy(update={"swh": at.settings.swh.model_copy(update=overrides)})
    tokens = checked_tokens(settings.root, "swh", settings.swh)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING if quiet else logging.INFO, format="%(message)s")
    # The door writes a line a request itself.
    logging.getLogger("custody.access").setLevel(logging.WARNING)
    talk = stderr()
    services = Services(at, settings, SystemClock())
    with ExitStack() as open_:
        open_.callback(services.close)
        door = SwhDoor(services, is_alone=True, tokens=tokens)
        if settings.swh.grpc_port is not None:
            try:
                from custody.serving.swh_grpc import serving_rpc
            except ModuleNotFoundError:
                raise ConfigurationError(f"gRPC is not installed. Run: {install_command('grpc')}") from None
            address = open_.enter_context(serving_rpc(door.database, settings, tokens))
            talk.print(clean(f"custody: gRPC is answered at {address}"))
        serve_app(
            application(settings.swh, [door], access_alone(settings.swh, tokens)),
            settings.root,
            settings.swh,
            "/whereis",
            lambda url: talk.print(clean(f"custody: questions are answered at {url}")),
        )
