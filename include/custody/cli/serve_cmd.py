"""`custody serve`: one server for all producers, with the doors that the settings name."""

from __future__ import annotations

import asyncio
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from custody.cli.output import clean, stderr
from custody.clock import SystemClock
from custody.config import Settings
from custody.config.sections import DoorName
from custody.errors import ConfigurationError
from custody.ingest.slots import retired_slots
from custody.repository import Repository
from custody.vfs import PosixFileSystem

if TYPE_CHECKING:
    from custody.serving.server_metrics import ServerMetrics


@click.command()
@click.option("--host", help="Address to listen on, instead of serve.host.")
@click.option("--port", type=click.IntRange(0, 65_535), help="Port to listen on, instead of serve.port.")
@click.option("--workers", type=click.IntRange(1, 64), help="Processes that share the address, not serve.workers.")
@click.option(
    "--door", "doors", multiple=True, type=click.Choice(get_args(DoorName)), help="Take this instead of serve.doors."
)
@click.option("--quiet", "-q", is_flag=True, help="Write no line a request to stderr.")
@click.option("--worker", type=int, hidden=True)
@click.option("--listener", type=int, hidden=True)
@click.option("--siblings", type=click.Path(path_type=Path), hidden=True)
@click.pass_obj
def serve(
    repository: Path,
    host: str | None,
    port: int | None,
    workers: int | None,
    doors: tuple[DoorName, ...],
    quiet: bool,
    worker: int | None,
    listener: int | None,
    siblings: Path | None,
) -> None:
    """Take events over HTTP from all kinds of producers until SIGTERM; each is durable before it is answered.

    The doors of serve.doors are open: OpenLineage, NiFi's Site-to-Site, events, notifications of context brokers,
    questions about software. /healthz, /readyz and /metrics say how the server is. docs/serve.md has what a producer
    types in. Each worker holds a writer slot.

    \b
    Example:
      custody -r demo serve
      custody -r demo serve --door openlineage --door ngsi --port 5080
      custody -r demo serve --host 0.0.0.0 --workers 4
    """
    at = Repository.open(repository)
    overrides = {
        name: value
        for name, value in (("host", host), ("port", port), ("workers", workers), ("doors", doors or None))
        if value is not None
    }
    settings = at.settings.model_copy(update={"serve": at.settings.serve.model_copy(update=overrides)})
    from custody.serving.server_log import log_to_stderr

    log_to_stderr(settings.serve.log_format, logging.WARNING if quiet else logging.INFO)
    # The entrance writes a line a request already.
    for name in ("custody.ngsi.access", "custody.swh.access"):
        logging.getLogger(name).setLevel(logging.WARNING)
    if worker is None and settings.serve.workers > 1:
        _serve_by_workers(settings, quiet)
    else:
        _serve_here(at, settings, worker, listener, siblings)


def _serve_by_workers(settings: Settings, quiet: bool) -> None:
    from custody.serving.workers import run_workers

    retired = retired_slots(PosixFileSystem(), settings)
    slots = len(settings.repository.slots) - len(retired)
    if slots < settings.serve.workers:
        but = f" beside the retired {', '.join(retired)}" if retired else ""
        raise ConfigurationError(
            f"repository.writer_slots: expected at least {settings.serve.workers}, one for each of serve.workers, "
            f"got {slots}{but}."
        )

    def command(number: int, descriptor: int, folder: Path) -> list[str]:
        program = "from custody.cli.main import main; main()"
        doors = [word for door in settings.serve.doors for word in ("--door", door)]
        own = ["--worker", str(number), "--listener", str(descriptor), "--siblings", str(folder)]
        place = ["--host", settings.serve.host, *(["--quiet"] if quiet else [])]
        return ["-c", program, "-r", str(settings.root), "serve", *place, *doors, *own]

    _check_access(settings)
    run_workers(settings.serve, command, lambda url: _announce(settings, url))


def _serve_here(
    at: Repository, settings: Settings, worker: int | None, listener: int | None, siblings: Path | None
) -> None:
    from custody.serving.application import application
    from custody.serving.door import Services
    from custody.serving.doors import open_doors
    from custody.serving.http_server import serve as serve_app
    from custody.serving.repository_measures import RepositoryMeasures
    from custody.serving.server_metrics import ServerMetrics
    from custody.serving.serving_access import access_of
    from custody.serving.workers import siblings_of, socket_of

    access = access_of(settings)
    services = Services(at, settings, SystemClock())
    metrics = ServerMetrics(RepositoryMeasures(at, PosixFileSystem(), SystemClock()))

    # Some event loops close a server to which nothing refers any more.
    number_servers: list[asyncio.Server] = []

    async def say_numbers() -> None:
        if worker is not None and siblings is not None:
            metrics.share(worker, lambda: siblings_of(siblings, worker))
            number_servers.append(await _say_numbers(metrics, socket_of(siblings, worker)))

    try:
        with open_doors(settings.serve.doors, services) as doors:
            serve_app(
                application(settings.serve, doors, access, metrics, settings.serve.waiting_bytes_max),
                settings.root,
                settings.serve,
                "",
                lambda url: None if worker is not None else _announce(settings, url),
                listener=None if listener is None else socket.socket(fileno=listener),
                on_loop=say_numbers,
            )
    finally:
        services.close()


async def _say_numbers(metrics: ServerMetrics, path: Path) -> asyncio.Server:
    """Say the numbers of this worker to whoever of the others connects."""

    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await metrics.own_text())
        await writer.drain()
        writer.close()

    return await asyncio.start_unix_server(answer, str(path))


def _check_access(settings: Settings) -> None:
    from custody.serving.serving_access import access_of

    access_of(settings)


def _announce(settings: Settings, url: str) -> None:
    doors = ", ".join(settings.serve.doors)
    stderr().print(clean(f"custody: events are taken at {url} (doors: {doors})"))
    if "pages" in settings.serve.doors:
        stderr().print(clean(f"custody: open {url}/ui/ in a browser"))
