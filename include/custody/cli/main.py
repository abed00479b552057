"""The command `custody`: one file a command, this one wires them."""

from __future__ import annotations

from pathlib import Path

import click

from custody.cli.catalog_change_cmd import catalog
from custody.cli.compact_cmd import compact
from custody.cli.containers_cmd import containers
from custody.cli.content_cmd import content
from custody.cli.ending import EndedGroup
from custody.cli.events_cmd import event, events
from custody.cli.forget_cmd import forget
from custody.cli.hold_cmd import hold
from custody.cli.index_cmd import index
from custody.cli.ingest_cmd import ingest
from custody.cli.init_cmd import init
from custody.cli.landing_cmd import landing
from custody.cli.lineage_cmd import lineage
from custody.cli.ngsi_cmd import ngsi
from custody.cli.quarantine_cmd import quarantine
from custody.cli.recover_cmd import recover
from custody.cli.repair_cmd import repair
from custody.cli.retention_cmd import retention
from custody.cli.root import takes_repository
from custody.cli.run_cmd import run
from custody.cli.sample_cmd import sample
from custody.cli.scrub_cmd import scrub
from custody.cli.search_cmd import search
from custody.cli.sql_cmd import sql
from custody.cli.status_cmd import status
from custody.cli.swh_cmd import swh
from custody.cli.verify_cmd import attest_head, verify_all


@click.group(cls=EndedGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="custody")
@click.option(
    "--repository",
    "-r",
    envvar="CUSTODY_REPOSITORY",
    type=click.Path(path_type=Path),
    default=Path("repository"),
    show_default=True,
    help="Folder of the repository.",
)
@click.pass_context
def cli(ctx: click.Context, repository: Path) -> None:
    """Keep, search and prove the chain of custody of data.

    \b
    Example:
      custody init demo
      custody -r demo ingest provenance-*.json
      custody -r demo run all
      custody -r demo search "event_type:SEND AND filename:orders*"

    Exit codes: 0 done, 1 some work failed, 2 wrong usage, 10 to 21 an error of custody, 130 interrupted (docs/cli.md).
    """
    ctx.obj = repository


_COMMANDS = (
    attest_head,
    catalog,
    compact,
    containers,
    content,
    event,
    events,
    forget,
    hold,
    index,
    ingest,
    init,
    landing,
    lineage,
    ngsi,
    quarantine,
    recover,
    repair,
    retention,
    run,
    sample,
    scrub,
    search,
    sql,
    status,
    swh,
    verify_all,
)
for _command in _COMMANDS:
    cli.add_command(_command)


takes_repository(cli)


def main() -> None:
    """Entry point of the installed command."""
    cli()
