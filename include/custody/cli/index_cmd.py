"""`custody index`: rebuilds shards. The index is never the truth, so nothing can be lost."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.groups import CommandGroup
from custody.cli.options import json_option
from custody.cli.output import print_json, print_table, working
from custody.repository import Repository


@click.group(cls=CommandGroup)
def index() -> None:
    """Take care of the search index."""


@index.command("rebuild")
@click.option("--shard", "shards", multiple=True, help="Only the shard of this name; may be repeated.")
@click.option("--stale", is_flag=True, help="Only shards that are gone, or were built with other settings.")
@json_option
@click.pass_obj
def rebuild(repository: Path, shards: tuple[str, ...], stale: bool, as_json: bool) -> None:
    """Build index shards anew from their event logs, with the settings of today.

    Without an option all of them. Searches go on meanwhile. After a change of index.fields or index.attributes, --stale
    brings the events of before into the new fields at once; the step index does it bit by bit.

    A writer's shards are built under the lease of its compactions. The exit code is 14 if another attempt holds it.

    \b
    Example:
      custody -r demo index rebuild --stale
    """
    with working("building index shards"):
        rows = [
            (writer, built.path.name, built.documents, built.size_bytes)
            for writer, built in Repository.open(repository).rebuild_index(shards, stale_only=stale)
        ]
    if as_json:
        print_json([dict(zip(("writer", "shard", "events", "bytes"), row, strict=True)) for row in rows])
        return
    print_table(f"{len(rows)} shards", ("writer", "shard", "events#", "bytes#"), rows)
