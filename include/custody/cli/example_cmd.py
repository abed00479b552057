"""`custody example`: whole flows to try."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, stderr
from custody.repository import Repository
from custody.vfs import PosixFileSystem


@click.group(cls=CommandGroup)
def example() -> None:
    """Run a whole flow to try things with: steps, queues, contents and events."""


@example.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@click.option("--keyword", default="provenance", show_default=True, help="Lines with it are mailed.")
@click.option(
    "--bundle-pages",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Pages of one archive.",
)
@click.option(
    "--picture", type=click.Path(path_type=Path, dir_okay=False), help="Draw the lineage into this file, as SVG."
)
@json_option
@click.pass_obj
def crawl(repository: Path, folder: Path, keyword: str, bundle_pages: int, picture: Path | None, as_json: bool) -> None:
    """Crawl a small web site with fourteen steps, and put archives and mails into FOLDER.

    The command serves the site itself, on the loopback interface. Started again after it was broken off, it goes on
    where it was.

    \b
    Example:
      custody -r demo example crawl crawled --picture lineage.svg
    """
    from custody.examples.web_crawler import CrawlOptions, crawl, crawl_picture
    from custody.examples.web_site import web_site

    opened = Repository.open(repository)
    with web_site() as port, opened.flowfiles() as flow:
        options = CrawlOptions(folder.absolute(), port, keyword, bundle_pages)
        worked = crawl(flow, options)
    if picture is not None:
        PosixFileSystem().write_durably(picture.absolute(), crawl_picture(opened).encode())
    if as_json:
        print_json(worked)
        return
    print_table("", ("step", "FlowFiles#"), list(worked.items()))
    stderr().print(f"archives and mails are in {folder}; `custody queue list` and `custody search` show the rest")
