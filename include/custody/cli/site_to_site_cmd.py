"""`custody site-to-site`: an input port to which NiFi's reporting tasks deliver."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from custody.cli.groups import CommandGroup
from custody.cli.output import clean, stderr
from custody.clock import SystemClock
from custody.repository import Repository
from custody.vfs import PosixFileSystem


@click.group("site-to-site", cls=CommandGroup)
def site_to_site() -> None:
    """Take provenance from NiFi's own reporting task, over Site-to-Site."""


@site_to_site.command()
@click.option("--host", help="Address to listen on, instead of site_to_site.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port of HTTP, instead of site_to_site.port.")
@click.option("--raw-port", type=click.IntRange(0, 65_535), help="Port of RAW, instead of site_to_site.raw_port.")
@click.option("--quiet", "-q", is_flag=True, help="Write no line a transaction to stderr.")
@click.pass_obj
def serve(repository: Path, host: str | None, port: int | None, raw_port: int | None, quiet: bool) -> None:
    """Be an input port for NiFi's SiteToSiteProvenanceReportingTask until SIGTERM; each event is stored once.

    In NiFi: Destination URL is the address that this command prints, Input Port Name is `provenance`. Transport
    Protocol is HTTP, or RAW where a RAW port is set. What is no provenance goes to the quarantine. The process
    holds a writer slot.

    \b
    Example:
      custody -r demo site-to-site serve --port 5070 --raw-port 5071
    """
    # FastAPI and uvicorn take a second to import, and only servers need them.
    from custody.serving.application import application
    from custody.serving.http_server import checked_tokens
    from custody.serving.http_server import serve as serve_app
    from custody.serving.serving_access import access_alone
    from custody.serving.site_to_site_door import SiteToSiteDoor
    from custody.serving.site_to_site_intake import IngestStore, PacketIntake

    at = Repository.open(repository)
    given = (("host", host), ("port", port), ("raw_port", raw_port))
    overrides = {name: value for name, value in given if value is not None}
    options = at.settings.site_to_site.model_copy(update=overrides)
    settings = at.settings.model_copy(update={"site_to_site": options})
    tokens = checked_tokens(settings.root, "site_to_site", options)
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING if quiet else logging.INFO, format="%(message)s")
    # The door writes a line a transaction itself.
    logging.getLogger("custody.access").setLevel(logging.WARNING)
    with at.ingest() as ingest:
        intake = PacketIntake(settings, IngestStore(ingest), at.quarantine, SystemClock())
        door = SiteToSiteDoor(settings, intake, PosixFileSystem(), SystemClock(), tokens=tokens)
        app = application(options, [door], access_alone(options, tokens))

        def say(url: str) -> None:
            raw = "" if door.raw_port is None else f", and by RAW at port {door.raw_port}"
            stderr().print(clean(f"custody: provenance is taken at {url}{raw}"))

        try:
            serve_app(app, settings.root, options, "/nifi", say)
        finally:
            door.close()
    stderr().print(clean(f"custody: {intake.stored} events were stored"))
